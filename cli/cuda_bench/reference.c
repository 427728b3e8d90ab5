/* The float64 reference of the sampled token rows, computed on the device. */
#include "../cli.h"
#include "../mem.h"
#include "../numbers.h"
#include "data.h"

/* glu [row_count, N] := the GLU of the sampled rows. */
static int reference_glu(data *d, gpu_pointer glu) {
  const gpu *g = d->g;
  gpu_pointer rows = 0;
  int32_t row_count = d->row_count;
  void *parameters[] = {&d->problem, &d->set[0].x, &rows, &row_count, &glu};
  int code = CLI_RUNTIME;
  if (gpu_allocate(g, &rows, sizeof d->rows, "row numbers") == CLI_OK &&
      gpu_upload(g, rows, d->rows, sizeof d->rows) == CLI_OK &&
      gpu_launch(g, g->reference_kernel, 32 * d->spec.intermediate, g->stream, parameters) ==
        CLI_OK) {
    code = gpu_wait(g, "the reference");
  }
  gpu_release(g, &rows);
  return code;
}

/* The same of op down: the sampled rows of x as they are. */
static int widen_x(data *d, gpu_pointer h) {
  const gpu *g = d->g;
  int64_t n = d->spec.intermediate;
  double *wide = mem_zeroed((size_t)(d->row_count * n), sizeof *wide);
  uint16_t *narrow = mem_zeroed((size_t)n, sizeof *narrow);
  int code = CLI_OK;
  for (int i = 0; i < d->row_count && code == CLI_OK; i++) {
    gpu_pointer from = d->set[0].x + 2 * (uint64_t)(d->rows[i] * n);
    code = gpu_check(g, g->to_host(narrow, from, 2 * (size_t)n), "cuMemcpyDtoH");
    for (int64_t j = 0; j < n; j++) wide[i * n + j] = num_load(narrow, d->spec.dtype, j);
  }
  if (code == CLI_OK) code = gpu_upload(g, h, wide, 8 * (size_t)(d->row_count * n));
  mem_free(wide);
  mem_free(narrow);
  return code;
}

/* out [row_count, K] := h Wd'. */
static int reference_down(data *d, gpu_pointer h, gpu_pointer out) {
  const gpu *g = d->g;
  int64_t n = d->spec.intermediate, k = d->spec.hidden;
  int32_t row_count = d->row_count, dtype = (int32_t)d->spec.dtype;
  void *parameters[] = {&h, &d->set[0].down, &n, &k, &row_count, &dtype, &out};
  if (gpu_launch(g, g->reference_down_kernel, 32 * k, g->stream, parameters)) return CLI_RUNTIME;
  return gpu_wait(g, "the reference");
}

int data_reference(data *d) {
  const gpu *g = d->g;
  size_t rows = (size_t)d->row_count, columns = (size_t)data_out_columns(&d->spec);
  gpu_pointer h = 0, out = 0;
  int code = gpu_allocate(g, &h, 8 * rows * (size_t)d->spec.intermediate, "the reference");
  if (code == CLI_OK) code = d->spec.op == OP_DOWN ? widen_x(d, h) : reference_glu(d, h);
  if (code == CLI_OK && d->spec.op != OP_GLU) {
    code = gpu_allocate(g, &out, 8 * rows * columns, "the reference");
    if (code == CLI_OK) code = reference_down(d, h, out);
  }
  if (code == CLI_OK) {
    code = gpu_check(g, g->to_host(d->reference, out ? out : h, 8 * rows * columns),
                     "cuMemcpyDtoH");
  }
  gpu_release(g, &h);
  gpu_release(g, &out);
  return code;
}
