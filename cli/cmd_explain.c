/* tileglu explain: which kernel row a shape gets, and why. */
#include <argp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "gpu_place.h"
#include "json_out.h"
#include "mem.h"
#include "options.h"

typedef struct explain_args {
  place_args place;
  shape_args shape;
} explain_args;

static error_t parse(int key, char *text, struct argp_state *state) {
  explain_args *args = state->input;
  switch (key) {
  case ARGP_KEY_INIT:
    state->child_inputs[0] = state->child_inputs[1] = &args->place;
    state->child_inputs[2] = &args->shape;
    return 0;
  case ARGP_KEY_ARG: argp_error(state, "no argument is taken, not \"%s\"", text); return 0;
  case ARGP_KEY_END:
    if (!shape_given(&args->shape)) {
      argp_error(state, "name a shape: --model, or --hidden and --intermediate");
    }
    return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

static const char doc[] =
  "Says which kernel row would serve a shape, and why.  Nothing is computed; strides "
  "and alignment count, as with --pad and --misalign."
  "\v"
  "Examples:\n"
  "  tileglu explain --model Qwen2.5-7B --tokens 1,16,1024\n"
  "  tileglu explain --hidden 577 --intermediate 33 --dtype f32 --pad 1\n"
  "\n" CLI_EXIT_HELP;

/* Addresses that are reserved but never touched: zeroed memory that large costs
 * nothing until it is read. */
static void *untouched(int64_t rows, int64_t columns, const spec *s) {
  double bytes = (double)rows * (double)(columns + s->pad) *
                 (double)tglu_dtype_bytes(s->dtype) + 64 + 64;
  return bytes < 0x1p46 ? calloc((size_t)bytes, 1) : NULL;
}

static char *place(void *base, const spec *s) {
  uintptr_t at = ((uintptr_t)base + 63) / 64 * 64 + (uintptr_t)s->misalign;
  return (char *)at;
}

/* Prints each line of text indented. */
static void print_lines(const char *text) {
  while (*text) {
    int length = (int)strcspn(text, "\n");
    if (length) printf("  %.*s\n", length, text);
    text += length + (text[length] == '\n');
  }
}

static int explain_object(const spec *s, const op *o, json_t *into) {
  char text[4096];
  tglu_run_args run;
  tglu_plan_info plan;
  tglu_run_args_init(&run);
  run.tokens = s->tokens;
  run.ldx = s->hidden + s->pad;
  run.ldo = (s->op == OP_MLP ? s->hidden : s->intermediate) + s->pad;
  static _Alignas(64) char sample[128]; /* for its alignment alone */
  run.x = run.out = sample + s->misalign;
  run.residual = s->residual ? run.out : NULL;
  run.ldr = s->residual ? run.ldo : 0;
  tglu_status status = op_explain(o, &run, text, sizeof text);
  if (status == TGLU_OK) status = op_plan(o, s->tokens, &plan);
  if (status != TGLU_OK) return cli_library_error(place_exit_code(status), "explain");
  char name[256];
  spec_text(s, name, sizeof name);
  if (!into) {
    printf("%s%s%s\n", s->model ? s->model : "", s->model ? ": " : "", name);
    printf("  row %s%s%s\n", plan.row ? plan.row : "none", plan.down_row ? " + " : "",
           plan.down_row ? plan.down_row : "");
    print_lines(text);
    return CLI_OK;
  }
  json_t *entry = json_object();
  jo_text(entry, "model", s->model);
  jo_text(entry, "case", name);
  jo_text(entry, "row", plan.row);
  jo_text(entry, "down_row", plan.down_row);
  jo_bool(entry, "tuned", plan.tuned);
  jo_real(entry, "predicted_us", plan.predicted_us > 0 ? plan.predicted_us : NAN);
  jo_text(entry, "why", text);
  json_array_append_new(into, entry);
  return CLI_OK;
}

static int explain_one(tglu_context *context, const gpu *g, const spec *s, json_t *into) {
  const int merged = s->layout != TGLU_LAYOUT_SEPARATE;
  void *parts[3] = {untouched(merged ? 2 * s->intermediate : s->intermediate, s->hidden, s),
                    untouched(s->intermediate, s->hidden, s),
                    untouched(s->hidden, s->intermediate, s)};
  tglu_mlp_desc desc;
  tglu_mlp_desc_init(&desc);
  desc.glu.hidden = s->hidden;
  desc.glu.intermediate = s->intermediate;
  desc.glu.dtype = s->dtype;
  desc.glu.activation = s->activation;
  desc.glu.alpha = s->alpha;
  desc.glu.limit = s->limit;
  desc.glu.offset = s->offset;
  desc.glu.layout = s->layout;
  desc.glu.ld = s->hidden + s->pad;
  desc.ld_down = s->intermediate + s->pad;
  int code = CLI_OK;
  if (!parts[0] || !parts[1] || !parts[2]) {
    code = cli_error(CLI_RUNTIME, "no address space for weights of this size");
  } else {
    op o;
    if (merged) {
      desc.glu.gate_up = place(parts[0], s);
    } else {
      desc.glu.gate = place(parts[0], s);
      desc.glu.up = place(parts[1], s);
    }
    desc.down = place(parts[2], s);
    if (s->bias) { /* any address will do */
      desc.glu.gate_up_bias = merged ? desc.glu.gate_up : NULL;
      desc.glu.gate_bias = desc.glu.gate;
      desc.glu.up_bias = desc.glu.up;
      desc.down_bias = desc.down;
    }
    gpu_weights there = {.desc = desc};
    if (g) code = gpu_weights_reserve(&there, g, s->op, &desc, (size_t)s->misalign);
    if (code == CLI_OK) {
      tglu_status status = op_create(&o, s->op, context, &there.desc);
      code = status == TGLU_OK ? explain_object(s, &o, into)
                               : cli_library_error(place_exit_code(status), "%s",
                                                   op_name(s->op));
      op_destroy(&o);
    }
    if (g) gpu_weights_free(&there, g);
  }
  for (int i = 0; i < 3; i++) free(parts[i]);
  return code;
}

int cmd_explain(int argc, char **argv) {
  const struct argp_child children[] = {{&place_argp, 0, NULL, 1}, {&device_argp, 0, NULL, 1},
                                        {&shape_argp, 0, NULL, 2},
                                        {0}};
  const struct argp argp = {NULL, parse, NULL, doc, children, NULL, NULL};
  explain_args args;
  place_init(&args.place);
  shape_init(&args.shape, OP_MLP, 16);
  argp_parse(&argp, argc, argv, 0, NULL, &args);
  tglu_context *context = NULL;
  tglu_context_info info;
  gpu g = {0};
  int code = place_open(&args.place, &context, &info);
  if (code != CLI_OK) return code;
  const int on_gpu = info.backend == TGLU_BACKEND_CUDA;
  code = shape_check_row(&args.shape, &args.place, context, 1);
  if (on_gpu && code == CLI_OK) code = gpu_place_open(&g, &args.place.options, &info);
  json_t *entries = args.place.json ? json_array() : NULL;
  for (size_t i = 0; i < shape_count(&args.shape) && code == CLI_OK; i++) {
    const spec s = shape_at(&args.shape, i);
    code = explain_one(context, on_gpu ? &g : NULL, &s, entries);
  }
  if (entries && code == CLI_OK) {
    json_t *document = jo_document("explain");
    jo_text(document, "backend", tglu_backend_name(info.backend));
    json_object_set(document, "plans", entries);
    code = jo_print(document);
  }
  json_decref(entries);
  tglu_context_destroy(context);
  if (g.library) gpu_close(&g);
  return code;
}
