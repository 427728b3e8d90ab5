/* Hidden states for run and verify: see layers.h. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "layers.h"
#include "mem.h"
#include "numbers.h"
#include "rng.h"

/* Splits FILE:TENSOR unless a file of the whole name exists. */
static char *split_name(char *path) {
  char *colon = strrchr(path, ':');
  if (!colon || access(path, F_OK) == 0) return NULL;
  *colon = 0;
  return colon + 1;
}

static int find_tensor(const tglu_model *file, const char *path, const char *name,
                       tglu_tensor *tensor) {
  tglu_tensor_init(tensor);
  if (name) {
    if (tglu_model_find_tensor(file, name, tensor) == TGLU_OK) return CLI_OK;
    return cli_file_error(CLI_INPUT, "--input: ", path);
  }
  if (tglu_model_tensor_count(file) != 1) {
    return cli_error(CLI_INPUT, "--input: %s holds %lld tensors; name one as %s:TENSOR", path,
                     (long long)tglu_model_tensor_count(file), path);
  }
  if (tglu_model_tensor_at(file, 0, tensor) == TGLU_OK) return CLI_OK;
  return cli_file_error(CLI_INPUT, "--input: ", path);
}

static int read_tensor(hidden_states *states, const char *path, const tglu_tensor *tensor,
                       int64_t tokens) {
  int64_t rows = 1;
  for (int32_t i = 0; i + 1 < tensor->rank; i++) rows *= tensor->shape[i];
  if (tensor->dtype == 0) {
    return cli_error(CLI_INPUT, "--input: tensor %s of %s is %s; hidden states are BF16, F16 "
                     "or F32", tensor->name, path, tensor->dtype_name);
  }
  if (tensor->rank < 2) {
    return cli_error(CLI_INPUT, "--input: tensor %s of %s has %d dimensions; hidden states "
                     "are [tokens, hidden]", tensor->name, path, (int)tensor->rank);
  }
  if (tokens > rows) {
    return cli_error(CLI_USAGE, "--tokens: %lld asked for, tensor %s of %s has %lld rows",
                     (long long)tokens, tensor->name, path, (long long)rows);
  }
  states->tokens = tokens < 0 ? rows : tokens;
  states->hidden = tensor->shape[tensor->rank - 1];
  states->value = mem_zeroed((size_t)(states->tokens * states->hidden), sizeof(double));
  for (int64_t i = 0; i < states->tokens * states->hidden; i++) {
    states->value[i] = num_load(tensor->data, tensor->dtype, i);
  }
  states->source = mem_text("%s of %s", tensor->name, path);
  return CLI_OK;
}

int hidden_load(hidden_states *states, const char *input, int64_t tokens, uint64_t seed) {
  memset(states, 0, sizeof *states);
  if (!input) {
    states->tokens = tokens < 0 ? 16 : tokens;
    states->source = mem_text("random normal, seed %llu", (unsigned long long)seed);
    return CLI_OK;
  }
  char *path = mem_text("%s", input);
  char *name = split_name(path);
  tglu_model *file = NULL;
  int code;
  if (tglu_model_open(path, NULL, &file) != TGLU_OK) {
    code = cli_file_error(CLI_INPUT, "--input: ", path);
  } else {
    tglu_tensor tensor;
    code = find_tensor(file, path, name, &tensor);
    if (code == CLI_OK) code = read_tensor(states, path, &tensor, tokens);
  }
  tglu_model_close(file);
  mem_free(path);
  return code;
}

void *hidden_matrix(const hidden_states *states, int64_t hidden, tglu_dtype dtype,
                    uint64_t seed) {
  const int64_t count = states->tokens * hidden;
  if (states->value && states->hidden != hidden) {
    cli_error(CLI_INPUT, "--input: %s has %lld columns, the layer's hidden size is %lld",
              states->source, (long long)states->hidden, (long long)hidden);
    return NULL;
  }
  void *matrix = mem_zeroed((size_t)count, tglu_dtype_bytes(dtype));
  if (states->value) {
    for (int64_t i = 0; i < count; i++) num_store(matrix, dtype, i, states->value[i]);
  } else {
    rng random;
    rng_seed(&random, seed);
    rng_fill_normal(&random, matrix, dtype, count, 1);
  }
  return matrix;
}

void hidden_free(hidden_states *states) {
  mem_free(states->value);
  mem_free(states->source);
  memset(states, 0, sizeof *states);
}
