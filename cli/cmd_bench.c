/* tileglu bench: which backend, which problems, where the lines go. */
#include <argp.h>
#include <math.h>
#include <string.h>

#include "bench.h"
#include "build_commit.h"
#include "cli.h"
#include "cuda_bench/bench_cuda.h"
#include "json_out.h"

enum { OPTION_DEVICE = OPTION_OWN, OPTION_ROWS, OPTION_ROUNDS, OPTION_SLICE, OPTION_WARM_UP,
       OPTION_CACHE, OPTION_CSV, OPTION_COMMIT, OPTION_LIST };

/* A backend of the bench, by its name for --device. */
static const struct {
  const char *name;
  int (*run)(const bench_args *args, bench_sink *sink);
} devices[] = {
  {"cpu", bench_cpu},
};

/* Whether the options say --device cuda, the last of them where there are more: that bench
 * has options of its own.  As with all options, a beginning will do that no other has. */
static int device_is_cuda(int argc, char **argv) {
  static const char name[] = "--device";
  const char *device = "";
  for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
    const size_t length = strcspn(argv[i], "=");
    if (length < strlen("--de") || length >= sizeof name ||
        strncmp(argv[i], name, length) != 0) {
      continue;
    }
    if (argv[i][length]) device = argv[i] + length + 1;
    else if (i + 1 < argc) device = argv[++i];
  }
  return strcmp(device, "cuda") == 0;
}

typedef struct bench_command {
  bench_args args;
  const char *device;
  int list;
} bench_command;

static const struct argp_option bench_options[] = {
  {NULL, 0, NULL, 0, "How to measure:", 3},
  {"device", OPTION_DEVICE, "cpu|cuda", 0,
   "what to measure (default cpu); \"--device cuda --help\" tells about the GPU's", 3},
  {"rows", OPTION_ROWS, "chosen|all|NAME,...", 0,
   "kernel rows beside the chosen one (default chosen: none)", 3},
  {"rounds", OPTION_ROUNDS, "N", 0, "rounds, each in a new random order (default 9)", 3},
  {"slice", OPTION_SLICE, "SECONDS", 0, "time per contender and round (default 0.05)", 3},
  {"warm-up", OPTION_WARM_UP, "SECONDS", 0, "time per contender before (default 0.2)", 3},
  {"cache-mib", OPTION_CACHE, "MIB", 0,
   "last-level cache; the weights rotate over three times that (default: the system's)", 3},
  {"list", OPTION_LIST, NULL, 0, "print the table of models and leave", 3},
  {"csv", OPTION_CSV, "FILE", 0,
   "also write CSV, line by line, over what FILE held; \"-\": stdout alone", 9},
  {"commit", OPTION_COMMIT, "TEXT", 0, "commit to note (default: the one compiled in)", 9},
  {0},
};

static double seconds(const char *name, const char *text, struct argp_state *state) {
  double value = 0;
  if (!parse_real(text, &value) || !(value >= 0 && value <= 3600)) {
    argp_error(state, "--%s: \"%s\" is not a number of seconds from 0 to 3600", name, text);
  }
  return value;
}

static error_t parse(int key, char *text, struct argp_state *state) {
  bench_command *c = state->input;
  switch (key) {
  case ARGP_KEY_INIT:
    state->child_inputs[0] = &c->args.place;
    state->child_inputs[1] = &c->args.shape;
    return 0;
  case OPTION_DEVICE: c->device = text; return 0;
  case OPTION_ROWS: c->args.rows = text; return 0;
  case OPTION_ROUNDS:
    if (!parse_int(text, 1, 10000, &c->args.rounds)) {
      argp_error(state, "--rounds: \"%s\" is not a number from 1 to 10000", text);
    }
    return 0;
  case OPTION_SLICE: c->args.slice = seconds("slice", text, state); return 0;
  case OPTION_WARM_UP: c->args.warm_up = seconds("warm-up", text, state); return 0;
  case OPTION_CACHE:
    if (!parse_real(text, &c->args.cache_mib) ||
        !(c->args.cache_mib >= 0 && c->args.cache_mib <= 65536)) {
      argp_error(state, "--cache-mib: \"%s\" is not a number from 0 to 65536", text);
    }
    return 0;
  case OPTION_CSV: c->args.csv = option_file("csv", text, state); return 0;
  case OPTION_COMMIT: c->args.commit = text; return 0;
  case OPTION_LIST: c->list = 1; return 0;
  case ARGP_KEY_ARG: argp_error(state, "no argument is taken, not \"%s\"", text); return 0;
  case ARGP_KEY_END:
    if (!c->list && !shape_given(&c->args.shape)) {
      argp_error(state, "name a shape: --model, or --hidden and --intermediate (--list "
                 "prints the models)");
    }
    if (c->args.shape.pad || c->args.shape.misalign) {
      argp_error(state, "--pad and --misalign: the unfused way is only made for tight, "
                 "aligned matrices");
    }
    if (c->args.place.json && c->args.csv && strcmp(c->args.csv, "-") == 0) {
      argp_error(state, "--json and --csv - both want standard output");
    }
    for (size_t i = 0; i < c->args.shape.token_count; i++) {
      if (c->args.shape.tokens[i] == 0) argp_error(state, "--tokens: 0 cannot be timed");
    }
    if (c->args.shape.intermediate == 0) {
      argp_error(state, "--intermediate: 0 cannot be timed");
    }
    return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

static const char doc[] =
  "Times kernel rows against the unfused way in one process: contenders take turns in a "
  "new random order every round, medians are reported, ratios are formed within the "
  "rounds.\n"
  "\n"
  "The weights rotate over copies of more than three times the last-level cache.  The "
  "unfused way uses the same kernels and threads but writes both intermediates to "
  "memory.  \"read\" is a plain loop that reads the same weights with the same number "
  "of threads: \"of read\" is how near a row comes to it, which is what counts for few "
  "tokens.  The first tokens' results are compared with a float64 oracle."
  "\v"
  "Examples:\n"
  "  tileglu bench --model Qwen2.5-7B --tokens 1,16,128\n"
  "  tileglu bench --hidden 2048 --intermediate 8192 --dtype bf16,f32 --rows all\n"
  "  tileglu bench --model SmolLM2-135M --op mlp --csv out.csv\n"
  "\n" CLI_EXIT_HELP;

static int print_models(int json) {
  static const char *const heads[] = {"<model", "hidden", "intermediate", "<activation",
                                      "<layout", NULL};
  table *t = table_new(heads);
  json_t *list = json_array();
  for (size_t i = 0; i < model_shape_count; i++) {
    const model_shape *m = &model_shapes[i];
    table_cell(t, "%s", m->name);
    table_cell(t, "%lld", (long long)m->hidden);
    table_cell(t, "%lld", (long long)m->intermediate);
    table_cell(t, "%s", tglu_activation_name(m->activation));
    table_cell(t, "%s", tglu_layout_name(m->layout));
    json_t *o = json_object();
    json_object_set_new(o, "model", json_string(m->name));
    json_object_set_new(o, "hidden", json_integer(m->hidden));
    json_object_set_new(o, "intermediate", json_integer(m->intermediate));
    json_object_set_new(o, "activation", json_string(tglu_activation_name(m->activation)));
    json_object_set_new(o, "layout", json_string(tglu_layout_name(m->layout)));
    json_array_append_new(list, o);
  }
  int code = CLI_OK;
  if (json) {
    json_t *document = json_object();
    json_object_set(document, "models", list);
    code = jo_print(document);
  } else {
    table_print(t, stdout);
  }
  json_decref(list);
  table_free(t);
  return code;
}

int cmd_bench(int argc, char **argv) {
  static const int refused[] = {OPTION_PAD, OPTION_MISALIGN, 0};
  offered_argp shape;
  offer_argp(&shape, &shape_argp, refused);
  const struct argp_child children[] = {{&place_argp, 0, NULL, 1}, {&shape.argp, 0, NULL, 2},
                                        {0}};
  const struct argp argp = {bench_options, parse, NULL, doc, children, NULL, NULL};
  bench_command c = {.device = "cpu"};
  if (device_is_cuda(argc, argv)) return bench_cuda_main(argc, argv, NULL);
  place_init(&c.args.place);
  shape_init(&c.args.shape, OP_GLU, 16);
  c.args.rows = "chosen";
  c.args.rounds = 9;
  c.args.slice = 0.05;
  c.args.warm_up = 0.2;
  c.args.cache_mib = NAN;
  c.args.commit = CLI_BUILD_COMMIT;
  argp_parse(&argp, argc, argv, 0, NULL, &c);
  if (c.list) return print_models(c.args.place.json);
  for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
    if (strcmp(devices[i].name, c.device) != 0) continue;
    bench_sink sink;
    int code = sink_open(&sink, &c.args);
    if (code != CLI_OK) return code;
    return sink_close(&sink, devices[i].run(&c.args, &sink));
  }
  return cli_error(CLI_USAGE, "--device: \"%s\" is neither cpu nor cuda", c.device);
}
