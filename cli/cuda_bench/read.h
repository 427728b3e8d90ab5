/* How fast this GPU reads: a kernel that only reads a shape's weights. */
#ifndef BENCH_READ_H
#define BENCH_READ_H

#include "data.h"
#include "variant.h"

typedef struct reader {
  const data *d;
  int kernel;            /* index among those tried */
  char name[32];         /* "read8_x4": 8 loads at a time, 4 blocks an SM */
} reader;

/* The choice holds for this many bytes; kept from shape to shape. */
typedef struct reader_choice {
  size_t bytes;          /* 0: none yet */
  int kernel;
} reader_choice;

/* Tries each kernel shortly unless `last` is of as many bytes.  An exit code. */
int reader_create(reader *r, const data *d, const timing *t, reader_choice *last);
/* enqueue of a variant whose user is the reader. */
int reader_enqueue(void *user, int set, gpu_stream stream);

#endif /* BENCH_READ_H */
