/* What the tests of the tuning cache share: a folder that is emptied, contexts on the CPU
 * that count warnings, one small problem. */
#ifndef TGLU_TEST_TUNER_H
#define TGLU_TEST_TUNER_H

#include <stdio.h>

#include "../api/check.h"
#include "plan/cache.h"

enum { N = 48, K = 40, M = 100 }; /* far from the counts where the CPU's rule changes */

/* Of this test; it ends in no slash.  path is folder/tune.txt. */
extern char folder[256], path[300];

/* A warning counted through the log. */
extern int warnings;
extern char warned[1024];

int make_folder(void **state);    /* cmocka setup: a new empty one */
int remove_folder(void **state);

tglu_context_options options_at(const char *cache);
tglu_context *context_at(const char *cache);

/* Two different rows that serve a GLU of f32: the one chosen by rule for M tokens and
 * another one (the same where this CPU has only one). */
typedef struct rows {
  char chosen[96], other[96];
} rows;
rows find_rows(void);

tglu_tune_entry entry_for(const char *row);
void record(const char *cache, const tglu_tune_entry *e);
/* The plan for `tokens` of an object made in the context. */
tglu_plan_info plan_for(tglu_context *context, tglu_dtype dtype, int64_t n, int64_t k,
                        int64_t tokens);
/* Whether an object of an own context takes its row from the cache at path. */
int tuned(tglu_dtype dtype, int64_t n, int64_t k, int64_t tokens);
/* Runs a GLU in the context and compares with plain arithmetic. */
void assert_computes(tglu_context *context);

/* Whole files. */
size_t read_file(const char *name, char *bytes, size_t room); /* SIZE_MAX: none */
void write_file(const char *name, const void *bytes, size_t count);
/* The bytes of a cache with that body and a right last line; returns their count. */
size_t whole_file(const char *body, char *out);
/* Lines of the body of a whole cache; -1: not whole, -2: missing. */
int cache_lines(const char *name);
int count_files(void); /* in folder */

#endif /* TGLU_TEST_TUNER_H */
