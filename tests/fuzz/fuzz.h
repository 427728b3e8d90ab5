/* What the fuzz targets share.  A target is one function over bytes: libFuzzer calls it
 * with its own inputs, replay.c with the committed ones. */
#ifndef TGLU_TEST_FUZZ_H
#define TGLU_TEST_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#include "model/model_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Ends the process with the rule and its place if it does not hold. */
#define REQUIRE(rule) \
  ((rule) ? (void)0 : fuzz_broken(#rule, __FILE__, __LINE__))
void fuzz_broken(const char *rule, const char *file, int line);

/* A failure must say why, in clean and bounded text, and is never want of memory. */
void fuzz_check_status(tglu_status status);

/* A model of the given table over the bytes at map; takes the table over.  The caller
 * frees it with tglu__model_free. */
tglu_model *fuzz_model(tglu__table *table, const uint8_t *map, uint64_t bytes,
                       uint64_t data_at);
/* Takes every view and every layer of the model; each must lie inside its bytes. */
void fuzz_use_model(const tglu_model *model);

#endif /* TGLU_TEST_FUZZ_H */
