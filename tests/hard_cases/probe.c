#include "probe.h"

#include <string.h>

#include "buffer.h"
#include "cmocka_all.h"
#include "number.h"
#include "runner.h"

enum { HIDDEN = 8 };

tglu_context *probe_context;

tglu_glu_desc probe_desc(tglu_dtype dtype, tglu_activation activation) {
  tglu_glu_desc desc;
  tglu_glu_desc_init(&desc);
  desc.dtype = dtype;
  desc.activation = activation;
  return desc;
}

static void first_column(tglu_dtype dtype, tt_buffer *buffer, int64_t rows,
                         const double *values) {
  tt_buffer_create(buffer, (size_t)(rows * HIDDEN) * tt_bytes_of(dtype), TT_PLACE_END, 0);
  memset(buffer->data, 0, buffer->bytes);
  for (int64_t r = 0; r < rows; r++) {
    tt_store(dtype, buffer->data, r * HIDDEN, values == NULL ? 1 : values[r]);
  }
}

void probe_glu(const tglu_glu_desc *given, int64_t tokens, int64_t count,
               const double *gate, const double *up, void *out) {
  tt_buffer x, gates, ups, result;
  tglu_glu_desc desc = *given;
  const size_t out_bytes = (size_t)(tokens * count) * tt_bytes_of(desc.dtype);
  first_column(desc.dtype, &x, tokens, NULL);
  first_column(desc.dtype, &gates, count, gate);
  first_column(desc.dtype, &ups, count, up);
  tt_buffer_create(&result, out_bytes, TT_PLACE_END, 0);
  desc.hidden = HIDDEN;
  desc.intermediate = count;
  desc.layout = TGLU_LAYOUT_SEPARATE;
  desc.gate = gates.data;
  desc.up = ups.data;
  tt_object object = {0};
  if (tglu_glu_create(probe_context, &desc, &object.glu) != TGLU_OK) {
    fail_msg("create: %s", tglu_last_error());
  }
  tglu_run_args args;
  tglu_run_args_init(&args);
  args.x = x.data;
  args.tokens = tokens;
  args.out = result.data;
  char why[TT_WHY_BYTES];
  const bool ran = tt_object_run(&object, &args, why, sizeof why);
  tt_object_destroy(&object);
  memcpy(out, result.data, out_bytes);
  tt_buffer_destroy(&x);
  tt_buffer_destroy(&gates);
  tt_buffer_destroy(&ups);
  tt_buffer_destroy(&result);
  if (!ran) fail_msg("%s", why);
}

double probe_one(tglu_dtype dtype, tglu_activation activation, double gate, double up) {
  unsigned char out[4];
  const tglu_glu_desc desc = probe_desc(dtype, activation);
  probe_glu(&desc, 1, 1, &gate, &up, out);
  return tt_load(dtype, out, 0);
}
