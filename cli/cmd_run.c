/* tileglu run: the MLPs of a model file, fused, timed and checked. */
#include <argp.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli.h"
#include "json_out.h"
#include "layers.h"
#include "mem.h"
#include "progress.h"
#include "run_layer.h"
#include "table.h"

enum { OPTION_LAYER = OPTION_OWN, OPTION_INPUT, OPTION_RUN_TOKENS, OPTION_RUN_DTYPE,
       OPTION_REPEAT, OPTION_CONFIG, OPTION_RUN_ACTIVATION, OPTION_NO_CHECK,
       OPTION_NO_UNFUSED };

typedef struct run_options {
  place_args place;
  const char *file, *layer, *input, *config, *activation;
  int64_t tokens;          /* -1: not given */
  tglu_dtype dtype;        /* 0: keep */
  run_plan plan;
} run_options;

static const struct argp_option options[] = {
  {NULL, 0, NULL, 0, "What to run:", 2},
  {"layer", OPTION_LAYER, "L|A-B|all", 0,
   "these layers (default all); parts may be joined by commas", 2},
  {"tokens", OPTION_RUN_TOKENS, "M", 0, "tokens (default: those of --input, else 16)", 2},
  {"input", OPTION_INPUT, "FILE[:TENSOR]", 0,
   "hidden states [tokens, hidden] from a safetensors file (default: random normal)", 2},
  {"dtype", OPTION_RUN_DTYPE, "keep|TYPE", 0,
   "convert the weights to bf16, f16 or f32 first (default: keep)", 2},
  {"config", OPTION_CONFIG, "PATH", 0, "config.json, if it is not beside the file", 2},
  {"activation", OPTION_RUN_ACTIVATION, "NAME", 0,
   "activation, as a config.json names it, where none does or another is meant", 2},
  {NULL, 0, NULL, 0, "How:", 3},
  {"repeat", OPTION_REPEAT, "N", 0,
   "time N rounds a layer (default: at least 5 and 0.1 s, up to 0.5 s if times vary)", 3},
  {"no-check", OPTION_NO_CHECK, NULL, 0, "skip the float64 oracle", 3},
  {"no-unfused", OPTION_NO_UNFUSED, NULL, 0, "skip the unfused way", 3},
  {0},
};

static error_t parse(int key, char *text, struct argp_state *state) {
  run_options *args = state->input;
  switch (key) {
  case ARGP_KEY_INIT:
    state->child_inputs[0] = state->child_inputs[1] = &args->place;
    return 0;
  case OPTION_LAYER: args->layer = text; return 0;
  case OPTION_INPUT: args->input = text; return 0;
  case OPTION_CONFIG: args->config = text; return 0;
  case OPTION_RUN_ACTIVATION:
    if (!layers_activation_known(text)) argp_error(state, "--%s", tglu_last_error());
    args->activation = text;
    return 0;
  case OPTION_NO_CHECK: args->plan.check = 0; return 0;
  case OPTION_NO_UNFUSED: args->plan.unfused = 0; return 0;
  case OPTION_RUN_TOKENS:
    if (!parse_int(text, 1, INT64_C(1) << 32, &args->tokens)) {
      argp_error(state, "--tokens: \"%s\" is not a number from 1 to 2^32", text);
    }
    return 0;
  case OPTION_REPEAT:
    if (!parse_int(text, 1, RUN_MAX_ROUNDS, &args->plan.rounds)) {
      argp_error(state, "--repeat: \"%s\" is not a number from 1 to %d", text, RUN_MAX_ROUNDS);
    }
    return 0;
  case OPTION_RUN_DTYPE:
    args->dtype = 0;
    if (strcmp(text, "keep") != 0 && tglu_dtype_from_name(text, &args->dtype) != TGLU_OK) {
      argp_error(state, "--dtype: keep, or %s", tglu_last_error());
    }
    return 0;
  case ARGP_KEY_ARG:
    if (args->file) argp_error(state, "one FILE or FOLDER, not also \"%s\"", text);
    args->file = text;
    return 0;
  case ARGP_KEY_NO_ARGS: argp_error(state, "name a safetensors FILE or a model's FOLDER"); return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

static const char doc[] =
  "Runs the gated MLP of each layer of a model file, fused, and prints per layer and in "
  "total: kernel rows, time, GFLOP/s, speed-up over the unfused way, and the error "
  "against a float64 oracle.\n"
  "\n"
  "FILE is a .safetensors file or its index .json, FOLDER one that holds them, with "
  "config.json beside.  The weights are read where they lie.  Every layer gets the same "
  "hidden states.  The unfused way uses the same kernels and threads but writes both "
  "intermediates: gate product, up product, an activation pass over both, then down; "
  "fused and unfused calls alternate in random order and medians are compared."
  "\v"
  "Examples:\n"
  "  tileglu run model.safetensors\n"
  "  tileglu run model-folder --layer 0-3 --tokens 128 --json\n"
  "  tileglu run model.safetensors --input states.safetensors:hidden\n"
  "\n" CLI_EXIT_HELP;

/* ---- totals ---- */
typedef struct totals {
  int layers;
  double us, unfused_us, flops;
  comparison sum;
  double worst_rel_l2;
  int failed, noisy;
} totals;

static void add_totals(totals *t, const layer_run *l) {
  if (t->layers++ == 0) compare_begin(&t->sum, OP_MLP, l->dtype);
  t->us += l->us;
  t->unfused_us += l->unfused_us;
  t->flops += l->flops;
  t->noisy += l->spread > RUN_NOISY;
  if (!l->checked) return;
  compare_merge(&t->sum, &l->comparison);
  double rel_l2 = compare_rel_l2(&l->comparison);
  if (!(rel_l2 <= t->worst_rel_l2)) t->worst_rel_l2 = rel_l2;
  t->failed += !compare_passes(&l->comparison, NULL, 0);
}

static void warn_of_failures(const layer_run *runs, int count) {
  char why[256];
  for (int i = 0; i < count; i++) {
    if (!runs[i].checked || compare_passes(&runs[i].comparison, why, sizeof why)) continue;
    cli_warn("layer %d: %s", (int)runs[i].number, why);
  }
}

/* ---- for people ---- */
/* Layers mostly share their rows: each pair gets a letter, explained below. */
enum { LEGENDS = 26 };
typedef struct legend {
  int count;
  char text[LEGENDS][200];
} legend;

static char legend_letter(legend *g, const layer_run *l) {
  char text[200];
  snprintf(text, sizeof text, "%s%s%s", l->row, l->down_row[0] ? " + " : "", l->down_row);
  for (int i = 0; i < g->count; i++) {
    if (strcmp(g->text[i], text) == 0) return (char)('a' + i);
  }
  if (g->count == LEGENDS) return '*';
  memcpy(g->text[g->count], text, sizeof text);
  return (char)('a' + g->count++);
}

static const char *const heads[] = {"layer", "hidden", "interm.", "<type", "<activation",
                                    "<rows", "fused us", "GFLOP/s", "unfused us", "speed-up",
                                    "rel L2", ">1 % (%)", "NaN", "<result", NULL};

static void error_cells(table *t, int checked, const comparison *c, double rel_l2, int pass) {
  if (!checked) {
    table_cell(t, "-");
    table_cell(t, "-");
    table_cell(t, "-");
    table_cell(t, "not checked");
    return;
  }
  table_cell(t, "%.2e", rel_l2);
  table_cell(t, "%.3f", 100 * compare_share(c->over_1pct, c->elements));
  table_cell(t, "%" PRId64, c->nan_both + c->nan_wrong);
  table_cell(t, "%s", pass ? "ok" : "FAIL");
}

static void time_cells(table *t, double us, double flops, double unfused_us) {
  table_cell(t, "%.1f", us);
  table_cell(t, "%.1f", flops / us * 1e-3);
  if (unfused_us > 0) {
    table_cell(t, "%.1f", unfused_us);
    table_cell(t, "%.2f", unfused_us / us);
  } else {
    table_cell(t, "-");
    table_cell(t, "-");
  }
}

static void print_text(const layer_run *runs, const totals *sum, const run_plan *plan) {
  table *t = table_new(heads);
  legend rows = {0};
  for (int i = 0; i < sum->layers; i++) {
    const layer_run *l = &runs[i];
    char why[256];
    table_cell(t, "%d", (int)l->number);
    table_cell(t, "%" PRId64, l->hidden);
    table_cell(t, "%" PRId64, l->intermediate);
    table_cell(t, "%s", tglu_dtype_name(l->dtype));
    table_cell(t, "%s", tglu_activation_name(l->activation));
    table_cell(t, "%c", legend_letter(&rows, l));
    time_cells(t, l->us, l->flops, l->unfused_us);
    error_cells(t, l->checked, &l->comparison, compare_rel_l2(&l->comparison),
                compare_passes(&l->comparison, why, sizeof why));
  }
  table_cell(t, "all %d", sum->layers);
  for (int i = 0; i < 5; i++) table_cell(t, "%s", "");
  time_cells(t, sum->us, sum->flops, sum->unfused_us);
  error_cells(t, plan->check, &sum->sum, sum->worst_rel_l2, sum->failed == 0);
  table_print(t, stdout);
  table_free(t);
  for (int i = 0; i < rows.count; i++) printf("rows %c: %s\n", 'a' + i, rows.text[i]);
  if (sum->noisy) {
    printf("%d layers' times vary by more than %.0f %%: the machine is busy with something "
           "else\n", sum->noisy, 100 * RUN_NOISY);
  }
  if (plan->check) printf("(the total's rel L2 is the largest of its layers')\n");
}

/* ---- for programs ---- */
static json_t *parts_json(const layer_run *l) {
  if (!(l->unfused_us > 0)) return json_null();
  json_t *o = json_object();
  jo_real(o, "gate", l->part_us[BASELINE_GATE]);
  jo_real(o, "up", l->part_us[BASELINE_UP]);
  jo_real(o, "activation", l->part_us[BASELINE_ACTIVATION]);
  jo_real(o, "down", l->part_us[BASELINE_DOWN]);
  return o;
}

static json_t *layer_json(const layer_run *l) {
  json_t *o = json_object();
  jo_int(o, "layer", l->number);
  jo_text(o, "prefix", l->prefix);
  jo_text(o, "family", l->family);
  jo_int(o, "hidden", l->hidden);
  jo_int(o, "intermediate", l->intermediate);
  jo_text(o, "dtype", tglu_dtype_name(l->dtype));
  jo_text(o, "activation", tglu_activation_name(l->activation));
  jo_text(o, "activation_source", l->activation_source);
  jo_text(o, "layout", tglu_layout_name(l->layout));
  jo_text(o, "row", l->row[0] ? l->row : NULL);
  jo_text(o, "down_row", l->down_row[0] ? l->down_row : NULL);
  jo_int(o, "rounds", l->rounds);
  jo_real(o, "us", l->us);
  jo_real(o, "spread", l->spread);
  jo_real(o, "gflops", l->flops / l->us * 1e-3);
  jo_real(o, "unfused_us", l->unfused_us > 0 ? l->unfused_us : NAN);
  jo_real(o, "speedup", l->unfused_us > 0 ? l->unfused_us / l->us : NAN);
  json_object_set_new(o, "unfused_parts_us", parts_json(l));
  json_object_set_new(o, "error", l->checked ? compare_json(&l->comparison) : json_null());
  return o;
}

static int print_json(const run_options *args, const tools *t, const hidden_states *states,
                      const layer_run *runs, const totals *sum) {
  json_t *document = jo_document("run");
  jo_text(document, "file", args->file);
  tools_json(t, document);
  jo_int(document, "tokens", states->tokens);
  jo_text(document, "input", states->source);
  json_t *list = json_array();
  for (int i = 0; i < sum->layers; i++) json_array_append_new(list, layer_json(&runs[i]));
  json_object_set_new(document, "layers", list);
  json_t *total = json_object();
  jo_int(total, "layers", sum->layers);
  jo_int(total, "noisy_layers", sum->noisy);
  jo_real(total, "us", sum->us);
  jo_real(total, "gflops", sum->flops / sum->us * 1e-3);
  jo_real(total, "unfused_us", sum->unfused_us > 0 ? sum->unfused_us : NAN);
  jo_real(total, "speedup", sum->unfused_us > 0 ? sum->unfused_us / sum->us : NAN);
  if (args->plan.check) {
    jo_real(total, "max_rel_l2", sum->worst_rel_l2);
    jo_real(total, "share_over_1pct",
            compare_share(sum->sum.over_1pct, sum->sum.elements));
    jo_real(total, "share_over_1pct_significant",
            compare_share(sum->sum.significant_over_1pct, sum->sum.significant));
    jo_int(total, "failed", sum->failed);
  }
  json_object_set_new(document, "total", total);
  return jo_print(document);
}

/* ---- the run ---- */
static int check_row(const run_options *args, const tools *t, const layer *l) {
  char what[64] = "the type asked for";
  if (!args->dtype) snprintf(what, sizeof what, "the type of layer %d", (int)l->mlp.layer);
  return place_check_row(&args->place, t->context, OP_MLP, l->mlp.desc.glu.dtype, what);
}

static int run_layers(const run_options *args, const tools *t, const tglu_model *model,
                      const hidden_states *states, const int32_t *numbers, int count) {
  layer_run *runs = mem_zeroed((size_t)count, sizeof *runs);
  totals sum = {0};
  progress bar;
  int code = CLI_OK;
  progress_begin(&bar, "run", count);
  for (int i = 0; i < count && code == CLI_OK; i++) {
    layer l;
    code = layer_load(&l, model, args->file, numbers[i], args->dtype, t->hot);
    if (code != CLI_OK) break;
    code = check_row(args, t, &l);
    if (code == CLI_OK) {
      code = run_layer(t, &args->plan, &l, states, args->place.seed, &runs[i]);
    }
    layer_free(&l);
    progress_at(&bar, i + 1);
    if (code == CLI_OK) add_totals(&sum, &runs[i]);
  }
  progress_end(&bar);
  warn_of_failures(runs, sum.layers);
  if (code == CLI_OK) {
    if (args->place.json) {
      code = print_json(args, t, states, runs, &sum);
    } else {
      tools_print(t, stdout);
      printf("%s: %" PRId64 " tokens (%s)\n\n", args->file, states->tokens, states->source);
      print_text(runs, &sum, &args->plan);
    }
    if (code == CLI_OK && sum.failed) code = CLI_MISMATCH;
  }
  mem_free(runs);
  return code;
}

static int run_file(const run_options *args, const tools *t) {
  tglu_model *model = NULL;
  hidden_states states = {0};
  int32_t *numbers = NULL;
  int count = 0;
  int code = layers_open(args->file, args->config, args->activation, &model);
  if (code == CLI_OK) {
    code = layers_choose(model, args->file, args->layer, &numbers, &count);
  }
  if (code == CLI_OK) {
    code = hidden_load(&states, args->input, args->tokens, args->place.seed);
  }
  if (code == CLI_OK && states.tokens == 0) {
    code = cli_error(CLI_INPUT, "--input: %s has no tokens", states.source);
  }
  if (code == CLI_OK) code = run_layers(args, t, model, &states, numbers, count);
  hidden_free(&states);
  mem_free(numbers);
  tglu_model_close(model);
  return code;
}

int cmd_run(int argc, char **argv) {
  const struct argp_child children[] = {{&place_argp, 0, NULL, 1}, {&device_argp, 0, NULL, 1},
                                        {0}};
  const struct argp argp = {options, parse, "FILE|FOLDER", doc, children, NULL, NULL};
  run_options args;
  memset(&args, 0, sizeof args);
  place_init(&args.place);
  args.layer = "all";
  args.tokens = -1;
  args.plan = (run_plan){.check = 1, .unfused = 1};
  argp_parse(&argp, argc, argv, 0, NULL, &args);
  tools t;
  int code = tools_open(&t, &args.place);
  if (code != CLI_OK) return code;
  code = run_file(&args, &t);
  tools_close(&t);
  return code;
}
