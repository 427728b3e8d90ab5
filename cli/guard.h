/* Memory with sentinels on both sides, so that a write outside is seen. */
#ifndef CLI_GUARD_H
#define CLI_GUARD_H

#include <stddef.h>

typedef struct guard {
  unsigned char *data;   /* the bytes asked for                            */
  size_t bytes;
  unsigned char *base;   /* what was allocated                             */
} guard;

enum { GUARD_BYTES = 256 };

/* data lies misalign bytes (< 64) past a multiple of 64; it is filled with 0xff,
 * which is NaN in every type of the library.  Returns 0, or -1 out of memory. */
int guard_new(guard *g, size_t bytes, size_t misalign);
/* Number of sentinel bytes that changed. */
size_t guard_damage(const guard *g);
void guard_free(guard *g); /* accepts a zeroed one */

#endif /* CLI_GUARD_H */
