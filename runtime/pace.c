#include "pace.h"

#include <stdlib.h>

enum moe_code pace_init(struct pace *p, const struct step_template *templates, uint32_t n_template, uint64_t limit_us,
                        struct moe_error *err) {
  *p = (struct pace){.templates = templates, .n_template = n_template, .limit_us = limit_us};
  p->sample = calloc((size_t)n_template + 1, sizeof *p->sample);
  return p->sample ? MOE_OK : moe_fail(err, MOE_FAILED, "out of memory for %u templates", n_template);
}

void pace_deinit(struct pace *p) {
  free(p->sample);
  p->sample = NULL;
}

void pace_record(struct pace *p, uint32_t template, uint32_t n_row, uint64_t us, uint32_t number) {
  p->sample[template] = (struct pace_sample){.us = us, .n_row = n_row, .number = number};
}

/* Whether a template is known to take at most us microseconds: by its last step, or by those of smaller ones. */
static bool pace_keeps(const struct pace *p, uint32_t template, uint64_t us) {
  const struct pace_sample *own = &p->sample[template];
  if (own->n_row && own->us <= us) return true;
  for (uint32_t i = 0; i < template; i++) {
    const struct pace_sample *s = &p->sample[i];
    if (s->n_row && s->us <= us && s->us * p->templates[template].n_row <= us * s->n_row) return true;
  }
  return false;
}

/* Whether to use a template whose predecessor in size is allowed; first: the smallest one that is not always. */
static bool pace_allows(const struct pace *p, uint32_t template, bool first, uint32_t number) {
  if (pace_keeps(p, template, p->limit_us)) return true;
  const struct pace_sample *own = &p->sample[template];
  if (own->n_row && number - own->number < PACE_RETRY) return false;
  return first || pace_keeps(p, template - 1, p->limit_us / 2);
}

uint32_t pace_max_row(const struct pace *p, uint32_t number) {
  if (!p->limit_us) return UINT32_MAX;
  uint32_t most = p->templates[0].n_row > IMG_MAX_SELECT ? p->templates[0].n_row : IMG_MAX_SELECT;
  bool first = true;
  for (uint32_t i = 0; i < p->n_template; i++) {
    if (p->templates[i].n_row <= most) continue;
    if (!pace_allows(p, i, first, number)) break;
    most = p->templates[i].n_row;
    first = false;
  }
  return most;
}
