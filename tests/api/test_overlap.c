/* The overlap rule against a map of every byte. */
#include "check.h"
#include "internal.h"

enum { MAP = 512, CASES = 100000 };

static void paint(unsigned char *map, const tglu__region *region, uintptr_t origin,
                  unsigned char bit)
{
  for (uint64_t row = 0; row < region->rows; row++)
    for (uint64_t byte = 0; byte < region->row_bytes; byte++)
      map[region->begin - origin + row * region->stride + byte] |= bit;
}

static tglu__region random_region(uint64_t *seed, uintptr_t origin, uint64_t stride)
{
  tglu__region region = {0};
  region.rows = 1 + next_random(seed) % 6;
  region.stride = stride;
  region.row_bytes = region.rows == 1 ? 1 + next_random(seed) % (3 * stride)
                                      : 1 + next_random(seed) % stride;
  region.begin = origin + next_random(seed) % (6 * stride);
  return region;
}

static bool really_overlap(const tglu__region *a, const tglu__region *b, uintptr_t origin)
{
  static unsigned char map[MAP];
  memset(map, 0, sizeof map);
  paint(map, a, origin, 1);
  paint(map, b, origin, 2);
  for (size_t i = 0; i < sizeof map; i++)
    if (map[i] == 3) return true;
  return false;
}

static void equal_strides_are_exact(void **state)
{
  (void)state;
  uint64_t seed = 20260801;
  int apart = 0, inside = 0;
  for (int i = 0; i < CASES; i++) {
    const uintptr_t origin = 4096;
    const uint64_t stride = 1 + next_random(&seed) % 24;
    const tglu__region a = random_region(&seed, origin, stride);
    const tglu__region b = random_region(&seed, origin, stride);
    const bool truth = really_overlap(&a, &b, origin);
    if (tglu__regions_overlap(&a, &b) != truth || tglu__regions_overlap(&b, &a) != truth)
      fail_msg("case %d: a %llu rows of %llu at %llu, b %llu of %llu at %llu, stride %llu",
               i, (unsigned long long)a.rows, (unsigned long long)a.row_bytes,
               (unsigned long long)(a.begin - origin), (unsigned long long)b.rows,
               (unsigned long long)b.row_bytes, (unsigned long long)(b.begin - origin),
               (unsigned long long)stride);
    const uint64_t end = a.begin + (a.rows - 1) * a.stride + a.row_bytes;
    if (!truth && b.begin > a.begin && b.begin < end) apart++;
    if (truth) inside++;
  }
  /* The sweep must have met what it is for: blocks apart within each other's range. */
  assert_true(apart > CASES / 100);
  assert_true(inside > CASES / 10);
}

static void other_strides_never_miss(void **state)
{
  (void)state;
  uint64_t seed = 77;
  int inside = 0;
  for (int i = 0; i < CASES; i++) {
    const uintptr_t origin = 4096;
    const tglu__region a = random_region(&seed, origin, 1 + next_random(&seed) % 24);
    const tglu__region b = random_region(&seed, origin, 1 + next_random(&seed) % 24);
    if (!really_overlap(&a, &b, origin)) continue;
    inside++;
    assert_true(tglu__regions_overlap(&a, &b));
    assert_true(tglu__regions_overlap(&b, &a));
  }
  assert_true(inside > CASES / 10);
}

static void neighbours_are_apart(void **state)
{
  (void)state;
  const tglu__region a = {1000, 4, 16, 32};
  const tglu__region block = {1016, 4, 16, 32}, shifted = {1015, 4, 16, 32};
  const tglu__region after = {1000 + 3 * 32 + 16, 1, 5000, 5000};
  assert_false(tglu__regions_overlap(&a, &block));
  assert_true(tglu__regions_overlap(&a, &shifted));
  assert_false(tglu__regions_overlap(&a, &after));
  assert_true(tglu__regions_overlap(&a, &a));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(equal_strides_are_exact),
    cmocka_unit_test(other_strides_never_miss),
    cmocka_unit_test(neighbours_are_apart),
  };
  return cmocka_run_group_tests_name("overlap", tests, NULL, NULL);
}
