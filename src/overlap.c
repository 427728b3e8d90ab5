/* Do two strided matrices share a byte? */
#include "internal.h"

static uintptr_t end_of(const tglu__region *region)
{
  return region->begin + (region->rows - 1) * region->stride + region->row_bytes;
}

bool tglu__regions_overlap(const tglu__region *a, const tglu__region *b)
{
  if (b->begin < a->begin) {
    const tglu__region *swap = a;
    a = b;
    b = swap;
  }
  if (end_of(a) <= b->begin) return false;
  if (a->rows > 1 && b->rows > 1 && a->stride != b->stride) return true;
  if (a->rows == 1 && b->rows == 1) return true;
  const uint64_t stride = a->rows > 1 ? a->stride : b->stride;
  /* Modulo the stride a fills [0, row_bytes) and b [offset, offset + row_bytes).
   * Where those meet, so do two rows: the ranges do, and b begins inside a's. */
  const uint64_t offset = (b->begin - a->begin) % stride;
  return offset < a->row_bytes || offset + b->row_bytes > stride;
}
