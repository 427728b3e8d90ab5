#include "pick.h"

#include <math.h>
#include <string.h>

int pick_same_shape(const result *r, const spec *s) {
  return strcmp(r->op, op_name(s->op)) == 0 && r->m == s->tokens &&
         r->n == s->intermediate && r->k == s->hidden &&
         strcmp(r->dtype, tglu_dtype_name(s->dtype)) == 0 &&
         strcmp(r->activation, tglu_activation_name(s->activation)) == 0 &&
         strcmp(r->layout, tglu_layout_name(s->layout)) == 0;
}

static int listed(const result_list *list, const int *indices, int count, const result *r) {
  for (int i = 0; i < count; i++) {
    const result *o = &list->items[indices[i]];
    if (strcmp(o->row, r->row) == 0 && strcmp(o->down_row, r->down_row) == 0) return 1;
  }
  return 0;
}

static int pick_with(const result_list *list, const spec *s, int pdl, int top, int *indices) {
  int count = 0;
  while (count < top) {
    int best = -1;
    for (size_t i = 0; i < list->count; i++) {
      const result *r = &list->items[i];
      if (!pick_same_shape(r, s) || r->pdl != pdl || strcmp(r->mode, "sustained") != 0 ||
          !isfinite(r->us) || listed(list, indices, count, r)) {
        continue;
      }
      if (best < 0 || r->us < list->items[best].us) best = (int)i;
    }
    if (best < 0) break;
    indices[count++] = best;
  }
  return count;
}

int pick_best(const result_list *list, const spec *s, int pdl, int top, int *indices) {
  int count = pick_with(list, s, pdl, top, indices);
  return count ? count : pick_with(list, s, !pdl, top, indices);
}
