/* group.glsl: reductions over a workgroup, in the order of its subgroups. A workgroup of one subgroup has no barrier. Call in uniform
 * control flow. */
shared float group_part[WG / SUBGROUP];

float group_sum(float v) {
  v = subgroup_sum(v);
  if (WG > SUBGROUP) {
    if (TID % SUBGROUP == 0) group_part[TID / SUBGROUP] = v;
    barrier();
    v = 0;
    for (uint i = 0; i < WG / SUBGROUP; i++) v += group_part[i];
    barrier();
  }
  return v;
}
float group_max(float v) {
  v = subgroup_max(v);
  if (WG > SUBGROUP) {
    if (TID % SUBGROUP == 0) group_part[TID / SUBGROUP] = v;
    barrier();
    for (uint i = 0; i < WG / SUBGROUP; i++) v = max(v, group_part[i]);
    barrier();
  }
  return v;
}
