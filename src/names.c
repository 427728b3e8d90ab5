/* The exact names of the enumerations. */
#include "internal.h"

#include <stdio.h>
#include <string.h>

typedef struct name_row {
  int value;
  const char *name;
} name_row;

static const name_row dtypes[] = {
  {TGLU_DTYPE_BF16, "bf16"}, {TGLU_DTYPE_F16, "f16"}, {TGLU_DTYPE_F32, "f32"}, {0, NULL}};

static const name_row activations[] = {
  {TGLU_ACTIVATION_SILU, "silu"},         {TGLU_ACTIVATION_GELU_TANH, "gelu_tanh"},
  {TGLU_ACTIVATION_GELU_ERF, "gelu_erf"}, {TGLU_ACTIVATION_RELU, "relu"},
  {TGLU_ACTIVATION_SIGMOID, "sigmoid"},   {TGLU_ACTIVATION_SWIGLUOAI, "swigluoai"},
  {0, NULL}};

static const name_row layouts[] = {
  {TGLU_LAYOUT_SEPARATE, "separate"},
  {TGLU_LAYOUT_STACKED_GATE_FIRST, "stacked_gate_first"},
  {TGLU_LAYOUT_STACKED_UP_FIRST, "stacked_up_first"},
  {TGLU_LAYOUT_INTERLEAVED, "interleaved"},
  {0, NULL}};

static const name_row backends[] = {{TGLU_BACKEND_AUTO, "auto"},
                                    {TGLU_BACKEND_CPU, "cpu"},
                                    {TGLU_BACKEND_CUDA, "cuda"},
                                    {0, NULL}};

static const char *name_of(const name_row *table, int value)
{
  for (; table->name; table++)
    if (table->value == value) return table->name;
  return NULL;
}

static tglu_status value_of(const name_row *table, const char *what, const char *name,
                            int *value)
{
  if (!name) return tglu__fail(TGLU_ERR_INVALID_ARGUMENT, "name: must not be NULL");
  char list[256] = "";
  size_t length = 0;
  for (const name_row *row = table; row->name; row++) {
    if (strcmp(row->name, name) == 0) {
      *value = row->value;
      return TGLU_OK;
    }
    length += (size_t)snprintf(list + length, sizeof list - length, "%s%s",
                               row == table ? "" : ", ", row->name);
  }
  return tglu__fail(TGLU_ERR_INVALID_ARGUMENT, "%s: \"%s\" is none of %s", what, name,
                    list);
}

const char *tglu_dtype_name(tglu_dtype dtype) { return name_of(dtypes, (int)dtype); }

size_t tglu_dtype_bytes(tglu_dtype dtype)
{
  switch (dtype) {
    case TGLU_DTYPE_BF16:
    case TGLU_DTYPE_F16: return 2;
    case TGLU_DTYPE_F32: return 4;
    default: return 0;
  }
}

const char *tglu_activation_name(tglu_activation activation)
{
  return name_of(activations, (int)activation);
}

const char *tglu_layout_name(tglu_layout layout) { return name_of(layouts, (int)layout); }

const char *tglu_backend_name(tglu_backend backend)
{
  return name_of(backends, (int)backend);
}

static tglu_status no_output(void)
{
  return tglu__fail(TGLU_ERR_INVALID_ARGUMENT, "out: must not be NULL");
}

tglu_status tglu_dtype_from_name(const char *name, tglu_dtype *out)
{
  int value = 0;
  if (!out) return no_output();
  tglu_status status = value_of(dtypes, "dtype", name, &value);
  if (status == TGLU_OK) *out = (tglu_dtype)value;
  return status;
}

tglu_status tglu_activation_from_name(const char *name, tglu_activation *out)
{
  int value = 0;
  if (!out) return no_output();
  tglu_status status = value_of(activations, "activation", name, &value);
  if (status == TGLU_OK) *out = (tglu_activation)value;
  return status;
}

tglu_status tglu_layout_from_name(const char *name, tglu_layout *out)
{
  int value = 0;
  if (!out) return no_output();
  tglu_status status = value_of(layouts, "layout", name, &value);
  if (status == TGLU_OK) *out = (tglu_layout)value;
  return status;
}

tglu_status tglu_backend_from_name(const char *name, tglu_backend *out)
{
  int value = 0;
  if (!out) return no_output();
  tglu_status status = value_of(backends, "backend", name, &value);
  if (status == TGLU_OK) *out = (tglu_backend)value;
  return status;
}
