/* Buffers that notice: every one lies between two unreadable pages, the bytes of
 * its pages outside the data hold a known pattern, and the data begins as NaN. */
#ifndef TGLU_TEST_BUFFER_H
#define TGLU_TEST_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum tt_place {
  TT_PLACE_INSIDE = 0, /* sentinels on both sides, chosen misalignment           */
  TT_PLACE_END,        /* the last byte is the last readable one: finds over-read */
  TT_PLACE_START       /* the first byte is the first readable one: under-read   */
} tt_place;

typedef struct tt_buffer {
  unsigned char *data;
  size_t bytes;
  unsigned char *map; /* whole mapping, guard pages included */
  size_t map_bytes;
} tt_buffer;

/* Fatal if memory is missing.  `misalign` bytes off a multiple of 256, for
 * TT_PLACE_INSIDE only.  The data is filled with 0xFF: NaN in every type. */
void tt_buffer_create(tt_buffer *buffer, size_t bytes, tt_place place, size_t misalign);
void tt_buffer_destroy(tt_buffer *buffer); /* accepts a zeroed one */

/* True if the pattern around the data is whole; else *offset is the first wrong
 * byte, counted from data (negative: before it). */
bool tt_buffer_intact(const tt_buffer *buffer, int64_t *offset);

/* The pattern byte at an address-independent offset; also used to fill the gaps
 * between the rows of an output. */
unsigned char tt_pattern(int64_t offset);

/* A 64-bit sum over the bytes, to see that an input was left as it was. */
uint64_t tt_hash(const void *data, size_t bytes);

#endif /* TGLU_TEST_BUFFER_H */
