/* weight.glsl: products of units of 32 weights with activations. */

/* Loops over the units of a row that this invocation takes: U0 runs over blocks (one lane a row: a block's scales are loaded once) or over
 * single units, U over the units of a block. N_UNIT: units a row; NUMBER: format. */
#define UNIT_BLOCKS(NUMBER, U0, N_UNIT)                                                                                \
  for (uint U0 = LANES == 1 ? 0 : TID % LANES; U0 < N_UNIT; U0 += LANES == 1 ? DECODE(NUMBER, UNITS) : LANES)
#define UNIT_EACH(NUMBER, U, U0) for (uint U = U0; U < U0 + (LANES == 1 ? DECODE(NUMBER, UNITS) : 1); U++)
