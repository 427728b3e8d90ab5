/* The command's own inner loops, compiled once per ISA level in the table below
 * from the one source hot.c: the oracle's dot products, the activation pass of the
 * unfused baseline, and the plain read loop. */
#ifndef CLI_HOT_H
#define CLI_HOT_H

#include <stddef.h>
#include <stdint.h>

#include <tileglu/tileglu.h>

enum { HOT_ROWS = 4 };

typedef struct hot_activation {
  tglu_activation kind;
  float alpha, limit, offset;
} hot_activation;

typedef struct hot_loops {
  const char *isa;
  /* sum[r] = w . a[r] and squares[r] = sum over k of (w[k] * b[r][k])^2, for r in
   * 0 ... rows - 1, rows <= HOT_ROWS. */
  void (*dot)(const double *w, const double *const *a, const double *const *b, int rows,
              int64_t k, double *sum, double *squares);
  void (*widen)(const void *from, tglu_dtype dtype, int64_t count, double *to);
  /* h[i] = act(gate[i]) * up[i], computed in fp32, rounded once; accuracy about
   * 2^-20 relative, which is a baseline's and not the library's promise. */
  void (*activate)(const void *gate, const void *up, void *h, tglu_dtype dtype,
                   int64_t count, const hot_activation *activation);
  /* Reads every byte; the result depends on all of them. */
  uint64_t (*read)(const void *data, size_t bytes);
} hot_loops;

/* The best level that does not go beyond the library's ISA level of that name. */
const hot_loops *hot_for(const char *isa);

#endif /* CLI_HOT_H */
