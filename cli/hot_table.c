#include "hot.h"

#include <string.h>

extern const hot_loops hot_portable;
#ifdef CLI_HOT_AVX2
extern const hot_loops hot_avx2;
#endif

const hot_loops *hot_for(const char *isa) {
#ifdef CLI_HOT_AVX2
  /* Every level above portable includes AVX2 and FMA. */
  if (isa && strcmp(isa, "portable") != 0) return &hot_avx2;
#else
  (void)isa;
#endif
  return &hot_portable;
}
