/* tileglu verify: results against the float64 oracle. */
#include <argp.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "cli.h"
#include "json_out.h"
#include "layers.h"
#include "mem.h"
#include "progress.h"
#include "sweep.h"
#include "table.h"

enum { OPTION_QUICK = OPTION_OWN, OPTION_FULL, OPTION_INJECT, OPTION_LAYER, OPTION_INPUT,
       OPTION_CONFIG, OPTION_CONFIG_ACTIVATION };

typedef struct verify_args {
  place_args place;
  shape_args shape;
  const char *file, *layer, *input, *config, *config_activation;
  int quick, full, tokens_given, dtype_given;
  injections faults;
} verify_args;

static const struct argp_option verify_options[] = {
  {NULL, 0, NULL, 0, "Sweeps and files:", 3},
  {"quick", OPTION_QUICK, NULL, 0, "every op, type, activation and layout once (seconds)", 3},
  {"full", OPTION_FULL, NULL, 0, "eight times that, larger (minutes)", 3},
  {"layer", OPTION_LAYER, "L|A-B|all", 0, "layers of FILE (default all)", 3},
  {"input", OPTION_INPUT, "FILE[:TENSOR]", 0, "hidden states for FILE's layers", 3},
  {"config", OPTION_CONFIG, "PATH", 0, "config.json of FILE, if not beside it", 3},
  {"config-activation", OPTION_CONFIG_ACTIVATION, "NAME", 0,
   "FILE's activation, as a config.json names it", 3},
  {"inject", OPTION_INJECT, "[WHAT:]VALUE@INDEX", OPTION_HIDDEN, "plant a fault", 3},
  {0},
};

/* What was asked for must fit together: an option that would be ignored is refused. */
static void check_choice(const verify_args *args, struct argp_state *state) {
  const int sweep = args->quick || args->full, file = args->file != NULL;
  const int ways = sweep + file + shape_given(&args->shape);
  if (ways == 0) {
    argp_error(state, "name a shape (--model, or --hidden and --intermediate), a sweep "
               "(--quick, --full) or a FILE");
  }
  if (ways > 1) argp_error(state, "a shape, a sweep or a FILE: one of them");
  if (!file && (args->input || args->layer || args->config || args->config_activation)) {
    argp_error(state, "--layer, --input, --config and --config-activation belong to a FILE");
  }
  unsigned allowed = file ? SHAPE_BIT(OPTION_TOKENS) | SHAPE_BIT(OPTION_DTYPE) : ~0u;
  const char *stranger = shape_stranger(&args->shape, sweep ? 0 : allowed);
  if (stranger) {
    argp_error(state, "--%s does not go with a %s", stranger, sweep ? "sweep" : "FILE");
  }
  if (file && (args->shape.token_count > 1 || args->shape.dtype_count > 1)) {
    argp_error(state, "--tokens and --dtype: one of each with a FILE");
  }
}

static error_t parse(int key, char *text, struct argp_state *state) {
  verify_args *args = state->input;
  switch (key) {
  case ARGP_KEY_INIT:
    state->child_inputs[0] = state->child_inputs[1] = &args->place;
    state->child_inputs[2] = &args->shape;
    return 0;
  case OPTION_QUICK: args->quick = 1; return 0;
  case OPTION_FULL: args->full = 1; return 0;
  case OPTION_LAYER: args->layer = text; return 0;
  case OPTION_INPUT: args->input = text; return 0;
  case OPTION_CONFIG: args->config = text; return 0;
  case OPTION_CONFIG_ACTIVATION:
    if (!layers_activation_known(text)) argp_error(state, "--config-%s", tglu_last_error());
    args->config_activation = text;
    return 0;
  case OPTION_INJECT:
    if (!injection_parse(&args->faults, text)) {
      argp_error(state, "--inject: \"%s\" is not [out:|ref:|x:|guard:]VALUE@INDEX", text);
    }
    return 0;
  case ARGP_KEY_ARG:
    if (args->file) argp_error(state, "one FILE or FOLDER, not also \"%s\"", text);
    args->file = text;
    return 0;
  case ARGP_KEY_END: check_choice(args, state); return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

static const char doc[] =
  "Compares results with a float64 oracle which is independent of the library and "
  "rounds nothing on the way.\n"
  "\n"
  "Reported: relative L2 error; the share of elements off by more than 1 %, of all and "
  "of those with |reference| >= 2^-8 rms of their row; the largest ULP distance; NaN "
  "and infinities; bytes written outside the result; the worst element.  A case passes "
  "if no element is further off than the rounding contract allows (one rounding of H, "
  "one of O, fp32 accumulation), the relative L2 error is at most 2^-8 (bf16), 2^-11 "
  "(f16) or 2^-15 (f32) (more only where the result is a small difference of large "
  "terms), every NaN and infinity stands where the oracle has it, and "
  "nothing outside was touched."
  "\v"
  "Examples:\n"
  "  tileglu verify --quick\n"
  "  tileglu verify --model SmolLM2-135M --tokens 1,16 --dtype bf16,f16\n"
  "  tileglu verify --hidden 577 --intermediate 33 --activation gelu_erf --bias\n"
  "  tileglu verify model.safetensors --layer 0-3\n"
  "  tileglu verify --device cuda --model Qwen2.5-7B --tokens 1,64\n"
  "\n" CLI_EXIT_HELP;

/* ---- the report ---- */
typedef struct report {
  const verify_args *args;
  json_t *cases;
  table *failures;
  int64_t passed, failed, refused;
} report;

static void add_case(report *r, const char *name, const check_result *result, int single) {
  char why[256];
  int pass = compare_passes(&result->comparison, why, sizeof why);
  if (result->refused) {
    snprintf(why, sizeof why, "%s", tglu_last_error());
    r->refused++;
  } else if (pass) {
    r->passed++;
  } else {
    r->failed++;
  }
  if (r->args->place.json) {
    json_t *o = result->refused ? json_object() : compare_json(&result->comparison);
    jo_text(o, "case", name);
    jo_text(o, "row", result->row[0] ? result->row : NULL);
    jo_text(o, "down_row", result->down_row[0] ? result->down_row : NULL);
    jo_text(o, "refused", result->refused ? why : NULL);
    json_array_append_new(r->cases, o);
    return;
  }
  if (single && !result->refused) {
    printf("%s\n", name);
    if (result->row[0]) printf("  kernel row             %s", result->row);
    if (result->down_row[0]) printf(" + %s", result->down_row);
    if (result->row[0]) printf("\n");
    compare_print(&result->comparison, stdout);
    if (!pass) printf("  %s\n", why);
  }
  table_cell(r->failures, "%s", name);
  table_cell(r->failures, "%.2e", compare_rel_l2(&result->comparison));
  table_cell(r->failures, "%.4f", 100 * compare_share(result->comparison.over_1pct,
                                                      result->comparison.elements));
  table_cell(r->failures, "%" PRId64, result->comparison.max_ulp);
  table_cell(r->failures, "%s", result->refused ? "refused" : pass ? "pass" : "FAIL");
  table_cell(r->failures, "%s", why);
}

static void report_begin(report *r, const verify_args *args) {
  static const char *const heads[] = {"<case", "rel L2", ">1 % (%)", "ulp", "<result",
                                      "<why", NULL};
  memset(r, 0, sizeof *r);
  r->args = args;
  r->cases = json_array();
  r->failures = table_new(heads);
}

/* Ends the report and gives the exit code. */
static int report_end(report *r, const tools *t, int show_table) {
  int code = r->failed || r->passed == 0 ? CLI_MISMATCH : CLI_OK;
  const char *verdict = r->failed ? "FAIL" : r->passed ? "pass" : "nothing compared";
  if (r->args->place.json) {
    json_t *document = jo_document("verify");
    tools_json(t, document);
    jo_int(document, "seed", (int64_t)r->args->place.seed);
    jo_int(document, "passed", r->passed);
    jo_int(document, "failed", r->failed);
    jo_int(document, "refused", r->refused);
    jo_text(document, "verdict", verdict);
    json_object_set(document, "cases", r->cases);
    if (jo_print(document) != CLI_OK) code = CLI_RUNTIME;
  } else {
    if (show_table) table_print(r->failures, stdout);
    printf("%" PRId64 " passed, %" PRId64 " failed, %" PRId64 " refused as unsupported; seed "
           "%" PRIu64 ": %s\n", r->passed, r->failed, r->refused, r->args->place.seed,
           verdict);
  }
  json_decref(r->cases);
  table_free(r->failures);
  return code;
}

/* ---- the three ways ---- */
static int verify_shapes(const verify_args *args, const tools *t) {
  report r;
  /* Problems that are refused are counted; where each of them would be, nothing is. */
  int code = shape_check_row(&args->shape, &args->place, t->context, 0);
  if (code != CLI_OK) return code;
  report_begin(&r, args);
  const size_t count = shape_count(&args->shape);
  progress bar;
  progress_begin(&bar, "verify", (int64_t)count);
  for (size_t i = 0; i < count && code == CLI_OK; i++) {
    char name[256];
    check_result result;
    const spec s = shape_at(&args->shape, i);
    spec_text(&s, name, sizeof name);
    code = check_spec(t, &s, args->place.seed + i, &args->faults, &result);
    progress_at(&bar, (int64_t)i + 1);
    if (code == CLI_OK && result.refused && count == 1) {
      code = cli_library_error(CLI_RUNTIME, "%s", name);
    } else if (code == CLI_OK) {
      add_case(&r, name, &result, count == 1);
    }
  }
  progress_end(&bar);
  if (code == CLI_OK) return report_end(&r, t, count > 1);
  json_decref(r.cases);
  table_free(r.failures);
  return code;
}

/* The GPU takes neither fp32 nor addresses between two elements: it gets others. */
static spec sweep_spec(const verify_args *args, const tools *t, size_t i) {
  spec s = sweep_at(i, args->full, args->place.seed);
  if (!t->gpu) return s;
  if (s.dtype == TGLU_DTYPE_F32) s.dtype = i % 2 ? TGLU_DTYPE_F16 : TGLU_DTYPE_BF16;
  s.misalign -= s.misalign % (int64_t)tglu_dtype_bytes(s.dtype);
  return s;
}

static int verify_sweep(const verify_args *args, const tools *t) {
  report r;
  report_begin(&r, args);
  const size_t count = sweep_count(args->full);
  progress bar;
  progress_begin(&bar, "verify", (int64_t)count);
  int code = CLI_OK;
  for (size_t i = 0; i < count && code == CLI_OK; i++) {
    char name[256], numbered[288], why[256];
    check_result result;
    const spec s = sweep_spec(args, t, i);
    spec_text(&s, name, sizeof name);
    snprintf(numbered, sizeof numbered, "#%zu %s", i, name);
    code = check_spec(t, &s, args->place.seed + i, &args->faults, &result);
    progress_at(&bar, (int64_t)i + 1);
    if (code != CLI_OK) break;
    int plain = !result.refused && compare_passes(&result.comparison, why, sizeof why);
    if (plain && !args->place.json) {
      r.passed++;
    } else {
      add_case(&r, numbered, &result, 0);
    }
  }
  progress_end(&bar);
  if (code == CLI_OK) return report_end(&r, t, r.failed + r.refused > 0);
  json_decref(r.cases);
  table_free(r.failures);
  return code;
}

static int verify_layer(const verify_args *args, const tools *t, const tglu_model *model,
                        int32_t number, const hidden_states *states, report *r, int single) {
  layer l;
  const tglu_dtype dtype = args->dtype_given ? args->shape.dtypes[0] : 0;
  int code = layer_load(&l, model, args->file, number, dtype, t->hot);
  if (code != CLI_OK) return code;
  const tglu_glu_desc *d = &l.mlp.desc.glu;
  const spec s = {.op = OP_MLP, .tokens = states->tokens, .hidden = d->hidden,
                  .intermediate = d->intermediate, .dtype = d->dtype,
                  .activation = d->activation, .layout = d->layout,
                  .bias = d->gate_bias || d->gate_up_bias || l.mlp.desc.down_bias};
  void *x = hidden_matrix(states, d->hidden, d->dtype, args->place.seed);
  if (!x) {
    layer_free(&l);
    return CLI_INPUT;
  }
  rng random;
  rng_seed(&random, args->place.seed);
  check_result result;
  code = check_call(t, &s, &l.mlp.desc, x, &random, &args->faults, &result);
  if (code == CLI_OK) {
    char text[256], name[320];
    spec_text(&s, text, sizeof text);
    snprintf(name, sizeof name, "layer %d %s", (int)number, text);
    add_case(r, name, &result, single);
  }
  mem_free(x);
  layer_free(&l);
  return code;
}

static int verify_layers(const verify_args *args, const tools *t, const tglu_model *model,
                         const hidden_states *states) {
  int32_t *numbers = NULL;
  int count = 0;
  int code = layers_choose(model, args->file, args->layer ? args->layer : "all", &numbers,
                           &count);
  if (code != CLI_OK) return code;
  report r;
  report_begin(&r, args);
  progress bar;
  progress_begin(&bar, "verify", count);
  for (int i = 0; i < count && code == CLI_OK; i++) {
    code = verify_layer(args, t, model, numbers[i], states, &r, count == 1);
    progress_at(&bar, i + 1);
  }
  progress_end(&bar);
  mem_free(numbers);
  if (code == CLI_OK) return report_end(&r, t, count > 1);
  json_decref(r.cases);
  table_free(r.failures);
  return code;
}

static int verify_file(const verify_args *args, const tools *t) {
  tglu_model *model = NULL;
  hidden_states states;
  int code = CLI_OK;
  if (args->dtype_given) {
    code = place_check_row(&args->place, t->context, OP_MLP, args->shape.dtypes[0],
                           "the type asked for");
  }
  if (code == CLI_OK) {
    code = layers_open(args->file, args->config, args->config_activation, &model);
  }
  if (code != CLI_OK) return code;
  code = hidden_load(&states, args->input, args->tokens_given ? args->shape.tokens[0] : -1,
                     args->place.seed);
  if (code == CLI_OK) code = verify_layers(args, t, model, &states);
  hidden_free(&states);
  tglu_model_close(model);
  return code;
}

int cmd_verify(int argc, char **argv) {
  const struct argp_child children[] = {{&place_argp, 0, NULL, 1}, {&device_argp, 0, NULL, 1},
                                        {&shape_argp, 0, NULL, 2},
                                        {0}};
  const struct argp argp = {verify_options, parse, "[FILE|FOLDER]", doc, children, NULL,
                            NULL};
  verify_args args;
  memset(&args, 0, sizeof args);
  place_init(&args.place);
  shape_init(&args.shape, OP_MLP, -1);
  args.shape.dtype_count = 0;
  argp_parse(&argp, argc, argv, 0, NULL, &args);
  args.tokens_given = args.shape.tokens[0] >= 0;
  args.dtype_given = args.shape.dtype_count > 0;
  if (!args.tokens_given) args.shape.tokens[0] = 16;
  if (!args.dtype_given) args.shape.dtype_count = 1; /* bf16 */
  tools t;
  int code = tools_open(&t, &args.place);
  if (code != CLI_OK) return code;
  code = args.file ? verify_file(&args, &t)
         : shape_given(&args.shape) ? verify_shapes(&args, &t)
                                    : verify_sweep(&args, &t);
  tools_close(&t);
  return code;
}
