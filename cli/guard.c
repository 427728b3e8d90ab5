#include "guard.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SENTINEL = 0xa5, POISON = 0xff, ALIGN = 64 };

int guard_new(guard *g, size_t bytes, size_t misalign) {
  memset(g, 0, sizeof *g);
  if (bytes > SIZE_MAX - 4 * GUARD_BYTES) return -1;
  size_t whole = GUARD_BYTES + misalign + bytes + GUARD_BYTES;
  whole = (whole + ALIGN - 1) / ALIGN * ALIGN;
  g->base = aligned_alloc(ALIGN, whole);
  if (!g->base) return -1;
  g->data = g->base + GUARD_BYTES + misalign;
  g->bytes = bytes;
  memset(g->data - GUARD_BYTES, SENTINEL, GUARD_BYTES);
  memset(g->data, POISON, bytes);
  memset(g->data + bytes, SENTINEL, GUARD_BYTES);
  return 0;
}

size_t guard_damage(const guard *g) {
  size_t damage = 0;
  for (size_t i = 0; i < GUARD_BYTES; i++) {
    damage += g->data[-1 - (ptrdiff_t)i] != SENTINEL;
    damage += g->data[g->bytes + i] != SENTINEL;
  }
  return damage;
}

void guard_free(guard *g) {
  free(g->base);
  memset(g, 0, sizeof *g);
}
