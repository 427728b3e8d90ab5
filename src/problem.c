/* From a descriptor to the checked problem: every layout becomes (gate, up, ld). */
#include "internal.h"

#include <math.h>

/* Sizes, strides and byte counts stay below these, so that sums of a few of them
 * cannot overflow. */
#define MAX_ELEMENTS (INT64_C(1) << 60)
#define MAX_BYTES (UINT64_C(1) << 61)

#define INVALID(...) tglu__fail(TGLU_ERR_INVALID_ARGUMENT, __VA_ARGS__)

tglu_status tglu__check_extent(const char *name, const void *base, int64_t rows,
                               int64_t columns, int64_t ld, size_t element_bytes)
{
  if (rows == 0 || columns == 0) return TGLU_OK;
  uint64_t bytes = 0;
  if (__builtin_mul_overflow((uint64_t)(rows - 1), (uint64_t)ld, &bytes) ||
      __builtin_add_overflow(bytes, (uint64_t)columns, &bytes) ||
      __builtin_mul_overflow(bytes, (uint64_t)element_bytes, &bytes) || bytes > MAX_BYTES)
    return INVALID("%s: %lld rows of %lld elements at stride %lld are more bytes than "
                   "memory can have", name, (long long)rows, (long long)columns,
                   (long long)ld);
  uintptr_t end = 0;
  if (__builtin_add_overflow((uintptr_t)base, (uintptr_t)bytes, &end))
    return INVALID("%s: %llu bytes from %p reach past the end of the address space", name,
                   (unsigned long long)bytes, base);
  return TGLU_OK;
}

static tglu_status check_count(const char *name, int64_t value, int64_t least)
{
  if (value < least || value > MAX_ELEMENTS)
    return INVALID("%s: %lld is not between %lld and 2^60", name, (long long)value,
                   (long long)least);
  return TGLU_OK;
}

/* Resolves 0 to tight. */
static tglu_status resolve_ld(const char *name, int64_t given, int64_t columns,
                              const char *columns_name, int64_t *ld)
{
  *ld = given == 0 ? columns : given;
  if (*ld < columns || *ld > MAX_ELEMENTS)
    return INVALID("%s: %lld is not between %s = %lld and 2^60 (0 means tight)", name,
                   (long long)given, columns_name, (long long)columns);
  return TGLU_OK;
}

static tglu_status check_dtype(tglu_dtype dtype)
{
  if (tglu_dtype_name(dtype)) return TGLU_OK;
  return INVALID("dtype: %d is none of bf16, f16, f32 (0 means that it was not set)",
                 (int)dtype);
}

static tglu_status check_activation(const tglu_glu_desc *desc)
{
  if (!tglu_activation_name(desc->activation))
    return INVALID("activation: %d is none of the activations (0 means that it was not "
                   "set)", (int)desc->activation);
  if (isnan(desc->alpha) || isnan(desc->limit) || isnan(desc->offset))
    return INVALID("%s: must not be NaN", isnan(desc->alpha)   ? "alpha"
                                          : isnan(desc->limit) ? "limit"
                                                               : "offset");
  if (isinf(desc->alpha)) return INVALID("alpha: must be finite");
  if (isinf(desc->offset)) return INVALID("offset: must be finite");
  if (!(desc->limit > 0.0f))
    return INVALID("limit: %g is not above 0 (INFINITY means none)", (double)desc->limit);
  if (desc->activation == TGLU_ACTIVATION_SWIGLUOAI) return TGLU_OK;

  tglu_glu_desc defaults;
  tglu_glu_desc_init(&defaults);
  const char *changed = desc->alpha != defaults.alpha     ? "alpha"
                        : desc->limit != defaults.limit   ? "limit"
                        : desc->offset != defaults.offset ? "offset"
                                                          : NULL;
  if (changed)
    return INVALID("%s: is a parameter of swigluoai; %s takes none", changed,
                   tglu_activation_name(desc->activation));
  return TGLU_OK;
}

static tglu_status must_be_null(const char *name, const void *pointer, tglu_layout layout)
{
  if (!pointer) return TGLU_OK;
  return INVALID("%s: must be NULL with layout %s", name, tglu_layout_name(layout));
}

static tglu_status must_be_set(const char *name, const void *pointer, tglu_layout layout)
{
  if (pointer) return TGLU_OK;
  return INVALID("%s: must not be NULL with layout %s", name, tglu_layout_name(layout));
}

static tglu_status bind_separate(const tglu_glu_desc *desc, int64_t ld, tglu__problem *out)
{
  const tglu_layout layout = desc->layout;
  const size_t element = tglu_dtype_bytes(desc->dtype);
  tglu_status status = must_be_null("gate_up", desc->gate_up, layout);
  if (!status) status = must_be_null("gate_up_bias", desc->gate_up_bias, layout);
  if (!status && out->n > 0) status = must_be_set("gate", desc->gate, layout);
  if (!status && out->n > 0) status = must_be_set("up", desc->up, layout);
  if (!status) status = tglu__check_extent("gate", desc->gate, out->n, out->k, ld, element);
  if (!status) status = tglu__check_extent("up", desc->up, out->n, out->k, ld, element);
  if (!status && desc->gate_bias)
    status = tglu__check_extent("gate_bias", desc->gate_bias, 1, out->n, out->n, element);
  if (!status && desc->up_bias)
    status = tglu__check_extent("up_bias", desc->up_bias, 1, out->n, out->n, element);
  if (status) return status;
  out->gate = desc->gate;
  out->up = desc->up;
  out->ld = ld;
  out->gate_bias = desc->gate_bias;
  out->up_bias = desc->up_bias;
  out->bias_stride = 1;
  return TGLU_OK;
}

static const void *advance(const void *base, int64_t elements, size_t element_bytes)
{
  return base ? (const char *)base + (size_t)elements * element_bytes : NULL;
}

static tglu_status bind_merged(const tglu_glu_desc *desc, int64_t ld, tglu__problem *out)
{
  const tglu_layout layout = desc->layout;
  const size_t element = tglu_dtype_bytes(desc->dtype);
  const void *base = desc->gate_up, *bias = desc->gate_up_bias;
  tglu_status status = must_be_null("gate", desc->gate, layout);
  if (!status) status = must_be_null("up", desc->up, layout);
  if (!status) status = must_be_null("gate_bias", desc->gate_bias, layout);
  if (!status) status = must_be_null("up_bias", desc->up_bias, layout);
  if (!status && out->n > 0) status = must_be_set("gate_up", base, layout);
  if (!status) status = tglu__check_extent("gate_up", base, 2 * out->n, out->k, ld, element);
  if (!status && bias)
    status = tglu__check_extent("gate_up_bias", bias, 1, 2 * out->n, 2 * out->n, element);
  if (status) return status;

  if (layout == TGLU_LAYOUT_INTERLEAVED) {
    out->gate = base;
    out->up = out->n > 0 ? advance(base, ld, element) : NULL;
    out->ld = 2 * ld;
    out->gate_bias = bias;
    out->up_bias = out->n > 0 ? advance(bias, 1, element) : NULL;
    out->bias_stride = 2;
    return TGLU_OK;
  }
  const void *second = out->n > 0 ? advance(base, out->n * ld, element) : NULL;
  const void *second_bias = out->n > 0 ? advance(bias, out->n, element) : NULL;
  const bool gate_first = layout == TGLU_LAYOUT_STACKED_GATE_FIRST;
  out->gate = gate_first ? base : second;
  out->up = gate_first ? second : base;
  out->ld = ld;
  out->gate_bias = gate_first ? bias : second_bias;
  out->up_bias = gate_first ? second_bias : bias;
  out->bias_stride = 1;
  return TGLU_OK;
}

/* The part that glu and mlp share; desc has every field that this library knows. */
static tglu_status fill_glu(const tglu_glu_desc *desc, tglu__problem *out)
{
  *out = (tglu__problem){0};
  int64_t ld = 0;
  tglu_status status = check_count("hidden", desc->hidden, 1);
  if (!status) status = check_count("intermediate", desc->intermediate, 0);
  if (status) return status;
  status = check_dtype(desc->dtype);
  if (!status) status = check_activation(desc);
  if (status) return status;
  if (!tglu_layout_name(desc->layout))
    return INVALID("layout: %d is none of the layouts (0 means that it was not set)",
                   (int)desc->layout);
  status = resolve_ld("ld", desc->ld, desc->hidden, "hidden", &ld);
  if (status) return status;

  out->dtype = desc->dtype;
  out->n = desc->intermediate;
  out->k = desc->hidden;
  out->activation = desc->activation;
  out->alpha = desc->alpha;
  out->limit = desc->limit;
  out->offset = desc->offset;
  out->layout = desc->layout;
  return desc->layout == TGLU_LAYOUT_SEPARATE ? bind_separate(desc, ld, out)
                                              : bind_merged(desc, ld, out);
}

tglu_status tglu__problem_from_glu(const tglu_glu_desc *given, tglu__problem *out)
{
  tglu_glu_desc desc;
  tglu_glu_desc_init(&desc);
  tglu_status status = tglu__struct_in("desc", given, sizeof desc, sizeof desc, &desc);
  return status ? status : fill_glu(&desc, out);
}

tglu_status tglu__problem_from_mlp(const tglu_mlp_desc *given, tglu__problem *out)
{
  tglu_mlp_desc desc;
  tglu_mlp_desc_init(&desc);
  tglu_status status = tglu__struct_in("desc", given, sizeof desc, sizeof desc, &desc);
  if (status) return status;
  /* The inner struct has no room to grow in: down lies right behind it. */
  if (desc.glu.size != sizeof desc.glu)
    return INVALID("desc.glu: its size field is %zu instead of %zu (call "
                   "tglu_mlp_desc_init)", desc.glu.size, sizeof desc.glu);
  status = fill_glu(&desc.glu, out);
  if (status) return status;

  const size_t element = tglu_dtype_bytes(out->dtype);
  status = resolve_ld("ld_down", desc.ld_down, out->n, "intermediate", &out->ld_down);
  if (status) return status;
  if (out->n > 0 && !desc.down) return INVALID("down: must not be NULL");
  status = tglu__check_extent("down", desc.down, out->k, out->n, out->ld_down, element);
  if (!status && desc.down_bias)
    status = tglu__check_extent("down_bias", desc.down_bias, 1, out->k, out->k, element);
  if (status) return status;
  out->has_down = true;
  out->down = desc.down;
  out->down_bias = desc.down_bias;
  return TGLU_OK;
}

tglu_status tglu__problem_from_linear(const tglu_linear_desc *given, tglu__problem *out)
{
  tglu_linear_desc desc;
  tglu_linear_desc_init(&desc);
  tglu_status status = tglu__struct_in("desc", given, sizeof desc, sizeof desc, &desc);
  if (!status) status = check_count("in_features", desc.in_features, 1);
  if (!status) status = check_count("out_features", desc.out_features, 1);
  if (!status) status = check_dtype(desc.dtype);
  if (status) return status;
  *out = (tglu__problem){.dtype = desc.dtype, .n = desc.in_features,
                         .k = desc.out_features, .has_down = true, .down = desc.weight,
                         .down_bias = desc.bias};
  const size_t element = tglu_dtype_bytes(out->dtype);
  status = resolve_ld("ld", desc.ld, out->n, "in_features", &out->ld_down);
  if (status) return status;
  if (!desc.weight) return INVALID("weight: must not be NULL");
  status = tglu__check_extent("weight", desc.weight, out->k, out->n, out->ld_down, element);
  if (!status && desc.bias)
    status = tglu__check_extent("bias", desc.bias, 1, out->k, out->k, element);
  return status;
}

tglu__operand_names tglu__names_of(const tglu__problem *problem)
{
  if (tglu__is_linear(problem))
    return (tglu__operand_names){.down = "weight", .down_bias = "bias"};
  if (problem->layout == TGLU_LAYOUT_SEPARATE)
    return (tglu__operand_names){"gate", "up", "gate_bias", "up_bias", "down", "down_bias"};
  return (tglu__operand_names){"gate_up", "gate_up", "gate_up_bias", "gate_up_bias",
                               "down", "down_bias"};
}

tglu_status tglu__problem_check_alignment(const tglu__problem *problem)
{
  const tglu__operand_names names = tglu__names_of(problem);
  const struct {
    const char *name;
    const void *pointer;
  } operands[] = {
    {names.gate, problem->gate},           {names.up, problem->up},
    {names.gate_bias, problem->gate_bias}, {names.up_bias, problem->up_bias},
    {names.down, problem->down},           {names.down_bias, problem->down_bias},
  };
  const size_t element = tglu_dtype_bytes(problem->dtype);
  for (size_t i = 0; i < sizeof operands / sizeof operands[0]; i++)
    if ((uintptr_t)operands[i].pointer % element != 0)
      return INVALID("%s: %p is not a multiple of %s's %zu bytes, which this backend needs",
                     operands[i].name, operands[i].pointer,
                     tglu_dtype_name(problem->dtype), element);
  return TGLU_OK;
}

tglu_status tglu__check_tokens(const tglu__problem *problem, int64_t tokens)
{
  if (tokens < 0) return INVALID("tokens: %lld is negative", (long long)tokens);
  const int64_t widest = problem->n > problem->k ? problem->n : problem->k;
  return tglu__check_extent("tokens", NULL, tokens, widest, widest,
                            tglu_dtype_bytes(problem->dtype));
}

void tglu_glu_desc_init(tglu_glu_desc *desc)
{
  if (!desc) return;
  *desc = (tglu_glu_desc){.size = sizeof *desc, .alpha = 1.702f, .limit = 7.0f,
                          .offset = 1.0f};
}

void tglu_mlp_desc_init(tglu_mlp_desc *desc)
{
  if (!desc) return;
  *desc = (tglu_mlp_desc){.size = sizeof *desc};
  tglu_glu_desc_init(&desc->glu);
}

void tglu_linear_desc_init(tglu_linear_desc *desc)
{
  if (desc) *desc = (tglu_linear_desc){.size = sizeof *desc};
}
