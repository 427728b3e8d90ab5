#include "args.h"

#include <argp.h>
#include <math.h>
#include <string.h>

#include "../cli.h"
#include "build_commit.h"

enum { OPTION_DEVICE = OPTION_OWN, OPTION_ROWS, OPTION_FROM, OPTION_TOP, OPTION_PART,
       OPTION_TIME_LIMIT, OPTION_SETTLE, OPTION_SAMPLE, OPTION_ROUNDS, OPTION_BURST,
       OPTION_BURST_REPEATS, OPTION_BURST_MS, OPTION_IDLE, OPTION_PDL, OPTION_STABLE,
       OPTION_RESUME, OPTION_OUT, OPTION_TABLES, OPTION_COMMIT, OPTION_CUBLAS,
       OPTION_CUBLASLT, OPTION_DRIVER, OPTION_NVML, OPTION_GPU, OPTION_HOST_TIME,
       OPTION_CONTROLS, OPTION_WAIT_LIMIT, OPTION_WITHIN, OPTION_SUITE, OPTION_READ,
       OPTION_INVARIANT_OUT, OPTION_ENERGY, OPTION_ENERGY_MS, OPTION_ENERGY_WARM,
       OPTION_TUNED, OPTION_ALONE };

static const struct argp_option options[] = {
  {NULL, 0, NULL, 0, "What to measure:", 3},
  {"device", OPTION_DEVICE, "cpu|cuda", 0, "cuda: this bench", 3},
  {"suite", OPTION_SUITE, "NAME", 0,
   "few, large, mlp, regret or extra: a list of tokens and shapes (below)", 3},
  {"alone", OPTION_ALONE, NULL, 0, "rows only: no cuBLAS, no PyTorch, no ratios", 3},
  {"rows", OPTION_ROWS, "chosen|best|near|all|NAME,...", 0,
   "kernel rows beside the planner's choice (default chosen: none)", 3},
  {"from", OPTION_FROM, "FILE", 0, "with --rows best: results of a former run", 3},
  {"top", OPTION_TOP, "N", 0,
   "with --rows best: so many of a shape's best rows (3); near: most rows (6)", 3},
  {"within", OPTION_WITHIN, "PERCENT", 0,
   "with --rows near: rows predicted within this of the fastest (25)", 3},
  {"tune-cache", OPTION_TUNED, "FILE", 0, "let the planner's choice come from this cache", 3},
  {"pdl", OPTION_PDL, "0|1|0,1", 0,
   "0 (default): a chain of plain calls; 1: each call follows a kernel that writes X", 3},
  {"stable-weights", OPTION_STABLE, NULL, 0, "with pdl 1: promise stable weights", 3},
  {"burst", OPTION_BURST, NULL, 0, "the first 20 ms after an idle second too", 3},
  {"controls", OPTION_CONTROLS, NULL, 0,
   "torch's linear against cuBLAS at six shapes of the run (Python driver)", 3},
  {"read", OPTION_READ, "FILE", 0,
   "also time a kernel that only reads the weights, and append it there", 3},
  {"invariant", OPTION_INVARIANT_OUT, "FILE", 0,
   "also time the planner's choice in a batch-invariant context, and append it there", 3},
  {"energy", OPTION_ENERGY, "FILE", 0,
   "also measure energy a call and mean clock of bare and chosen, twice, and append them there",
   3},
  {"energy-ms", OPTION_ENERGY_MS, "MS", 0, "length of an energy sample (700)", 3},
  {"energy-warm-ms", OPTION_ENERGY_WARM, "MS", 0, "under the same load just before it (500)", 3},
  {"host-time", OPTION_HOST_TIME, NULL, 0, "only the host time of run and of creation", 3},
  {NULL, 0, NULL, 0, "How:", 4},
  {"rounds", OPTION_ROUNDS, "N", 0, "rounds, each in a new random order (5)", 4},
  {"settle-ms", OPTION_SETTLE, "MS", 0, "run before each sample (20)", 4},
  {"sample-ms", OPTION_SAMPLE, "MS", 0, "length of a sample (30)", 4},
  {"burst-repeats", OPTION_BURST_REPEATS, "N", 0, "bursts (10)", 4},
  {"burst-ms", OPTION_BURST_MS, "MS", 0, "length of a burst (20)", 4},
  {"idle-ms", OPTION_IDLE, "MS", 0, "idle before a burst (1000)", 4},
  {"part", OPTION_PART, "I/N", 0, "only every N-th shape, from the I-th", 4},
  {"time-limit", OPTION_TIME_LIMIT, "SECONDS", 0,
   "begin no shape that would end later; exit status 5 then", 4},
  {"wait-limit", OPTION_WAIT_LIMIT, "SECONDS", 0,
   "give up when the GPU takes longer over one sample (60)", 4},
  {"resume", OPTION_RESUME, NULL, 0, "leave out shapes that --out has already", 4},
  {"seed", OPTION_SEED, "N", 0, "of the inputs and of the orders (1)", 4},
  {NULL, 0, NULL, 0, "Where:", 5},
  {"gpu", OPTION_GPU, "N", 0, "ordinal of the GPU (0)", 5},
  {"cublas", OPTION_CUBLAS, "FILE", 0, "libcublas.so.13 or .12", 5},
  {"cublaslt", OPTION_CUBLASLT, "FILE", 0, "libcublasLt (default: beside cuBLAS)", 5},
  {"cuda-library", OPTION_DRIVER, "FILE", 0, "the driver (libcuda.so.1)", 5},
  {"nvml", OPTION_NVML, "FILE", 0, "for clocks (libnvidia-ml.so.1)", 5},
  {NULL, 0, NULL, 0, "Output:", 9},
  {"out", OPTION_OUT, "FILE", 0, "append CSV, shape by shape", 9},
  {"tables", OPTION_TABLES, "FILE", 0, "only print the tables of a results file", 9},
  {"commit", OPTION_COMMIT, "TEXT", 0, "commit to note (default: the one compiled in)", 9},
  {"json", OPTION_JSON, NULL, 0, "one JSON document instead of tables", 9},
  {0},
};

/* ---- lists of tokens and shapes ---- */

#define QWEN(size, hidden, intermediate) \
  {"Qwen2.5-" size, hidden, intermediate, TGLU_ACTIVATION_SILU, TGLU_LAYOUT_SEPARATE}
static const model_shape qwen[] = {
  QWEN("0.5B", 896, 4864),   QWEN("1.5B", 1536, 8960),   QWEN("3B", 2048, 11008),
  QWEN("7B", 3584, 18944),   QWEN("14B", 5120, 13824),   QWEN("32B", 5120, 27648),
  QWEN("72B", 8192, 29568),
};
#undef QWEN

/* Shapes that the planner's constants were not fitted to. */
#define BARE(hidden, intermediate) \
  {#hidden "x" #intermediate, hidden, intermediate, TGLU_ACTIVATION_SILU, TGLU_LAYOUT_SEPARATE}
static const model_shape extra[] = {
  BARE(8192, 3696),  BARE(4096, 1792), BARE(4096, 12800), BARE(4608, 36864), BARE(7168, 2048),
  BARE(1152, 6912),  BARE(3072, 8192), BARE(6144, 16384), BARE(12288, 28672), BARE(2048, 768),
};
#undef BARE

#define SUITE_NAMES "few, large, mlp, regret, extra"
static const struct suite {
  const char *name;
  int extra;
  int64_t tokens[20];          /* up to the first 0 */
} suites[] = {
  {"few", 0, {1, 4, 16, 64}},
  {"large", 0, {128, 256, 512, 1024, 2048, 4096, 8192}},
  {"mlp", 0, {1, 4, 16, 64, 256, 1024, 4096}},
  {"regret", 0, {1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
                 4096, 8192}},
  {"extra", 1, {1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
                4096, 8192}},
};

static const struct suite *suite_find(const char *name) {
  for (size_t i = 0; i < sizeof suites / sizeof suites[0]; i++) {
    if (strcmp(suites[i].name, name) == 0) return &suites[i];
  }
  return NULL;
}

static double real(const char *name, const char *text, double most, struct argp_state *state) {
  double value = 0;
  if (!parse_real(text, &value) || !(value > 0 && value <= most)) {
    argp_error(state, "--%s: \"%s\" is not a number above 0 and up to %.0f", name, text, most);
  }
  return value;
}

static void parse_pdl(cuda_args *args, const char *text, struct argp_state *state) {
  args->with_pdl[0] = strcmp(text, "0") == 0 || strcmp(text, "0,1") == 0;
  args->with_pdl[1] = strcmp(text, "1") == 0 || strcmp(text, "0,1") == 0;
  if (!args->with_pdl[0] && !args->with_pdl[1]) {
    argp_error(state, "--pdl: \"%s\" is none of 0, 1 and 0,1", text);
  }
}

static void parse_part(cuda_args *args, const char *text, struct argp_state *state) {
  char first[16];
  const char *slash = strchr(text, '/');
  size_t length = slash ? (size_t)(slash - text) : sizeof first;
  int good = length < sizeof first;
  if (good) {
    memcpy(first, text, length);
    first[length] = 0;
    good = parse_int(slash + 1, 1, 10000, &args->parts) &&
           parse_int(first, 1, args->parts, &args->part);
  }
  if (!good) argp_error(state, "--part: \"%s\" is no I/N with 1 <= I <= N <= 10000", text);
}

static void check(const cuda_args *args, struct argp_state *state) {
  const shape_args *s = &args->shape;
  if (args->tables) return;
  if (args->host_time && s->op != OP_GLU) argp_error(state, "--host-time: of op glu only");
  if (args->suite && shape_given(s)) {
    argp_error(state, "--suite names shapes: give it, or --model or sizes");
  }
  if (args->alone && (args->controls || args->energy_out)) {
    argp_error(state, "--alone: --controls and --energy need cuBLAS");
  }
  if (s->bias || s->residual || s->pad || s->misalign) {
    argp_error(state, "--bias, --residual, --pad and --misalign are not for --device cuda");
  }
  for (size_t i = 0; i < s->dtype_count; i++) {
    if (s->dtypes[i] == TGLU_DTYPE_F32) argp_error(state, "--dtype: f32 has no GPU kernels");
  }
  for (size_t i = 0; i < s->token_count; i++) {
    if (s->tokens[i] == 0) argp_error(state, "--tokens: 0 cannot be timed");
  }
  if (s->intermediate == 0) argp_error(state, "--intermediate: 0 cannot be timed");
  if (args->from && strcmp(args->rows, "best") != 0) {
    argp_error(state, "--from is for --rows best");
  }
  if (!args->from && strcmp(args->rows, "best") == 0) {
    argp_error(state, "--rows best needs the results of a former run: --from FILE");
  }
  if (args->resume && !args->out) argp_error(state, "--resume needs --out");
}

static error_t parse(int key, char *text, struct argp_state *state) {
  cuda_args *a = state->input;
  switch (key) {
  case ARGP_KEY_INIT: state->child_inputs[0] = &a->shape; return 0;
  case OPTION_DEVICE: return 0; /* read before */
  case OPTION_ROWS: a->rows = text; return 0;
  case OPTION_FROM: a->from = option_file("from", text, state); return 0;
  case OPTION_SUITE:
    if (!suite_find(text)) argp_error(state, "--suite: \"%s\" is none of " SUITE_NAMES, text);
    a->suite = text;
    return 0;
  case OPTION_ALONE: a->alone = 1; return 0;
  case OPTION_WITHIN: a->within = real("within", text, 1e6, state) / 100; return 0;
  case OPTION_TUNED: a->tune_cache = text; return 0;
  case OPTION_READ: a->read_out = option_file("read", text, state); return 0;
  case OPTION_INVARIANT_OUT:
    a->invariant_out = option_file("invariant", text, state);
    return 0;
  case OPTION_ENERGY: a->energy_out = option_file("energy", text, state); return 0;
  case OPTION_ENERGY_MS: a->energy_ms = real("energy-ms", text, 1e5, state); return 0;
  case OPTION_ENERGY_WARM:
    a->energy_warm_ms = real("energy-warm-ms", text, 1e5, state);
    return 0;
  case OPTION_TOP: a->top = option_integer("top", text, 1, 100, state); return 0;
  case OPTION_PART: parse_part(a, text, state); return 0;
  case OPTION_TIME_LIMIT: a->time_limit = real("time-limit", text, 1e6, state); return 0;
  case OPTION_WAIT_LIMIT: a->wait_limit = real("wait-limit", text, 1e6, state); return 0;
  case OPTION_SETTLE: a->timing.settle_ms = real("settle-ms", text, 1e4, state); return 0;
  case OPTION_SAMPLE: a->timing.sample_ms = real("sample-ms", text, 1e4, state); return 0;
  case OPTION_ROUNDS: a->rounds = option_integer("rounds", text, 1, MOST_ROUNDS, state); return 0;
  case OPTION_BURST: a->burst = 1; return 0;
  case OPTION_BURST_REPEATS:
    a->burst_repeats = option_integer("burst-repeats", text, 1, MOST_ROUNDS, state);
    return 0;
  case OPTION_BURST_MS: a->timing.burst_ms = real("burst-ms", text, 1e4, state); return 0;
  case OPTION_IDLE: a->timing.idle_ms = real("idle-ms", text, 1e5, state); return 0;
  case OPTION_PDL: parse_pdl(a, text, state); return 0;
  case OPTION_STABLE: a->stable_weights = 1; return 0;
  case OPTION_RESUME: a->resume = 1; return 0;
  case OPTION_OUT: a->out = option_file("out", text, state); return 0;
  case OPTION_TABLES: a->tables = option_file("tables", text, state); return 0;
  case OPTION_COMMIT: a->commit = text; return 0;
  case OPTION_CUBLAS: a->cublas = text; return 0;
  case OPTION_CUBLASLT: a->cublaslt = text; return 0;
  case OPTION_DRIVER: a->driver = text; return 0;
  case OPTION_NVML: a->nvml = text; return 0;
  case OPTION_GPU: a->gpu = option_integer("gpu", text, 0, 1023, state); return 0;
  case OPTION_HOST_TIME: a->host_time = 1; return 0;
  case OPTION_CONTROLS: a->controls = 1; return 0;
  case OPTION_JSON: a->json = 1; return 0;
  case OPTION_SEED:
    a->seed = (uint64_t)option_integer("seed", text, 0, INT64_MAX, state);
    return 0;
  case ARGP_KEY_ARG: argp_error(state, "no argument is taken, not \"%s\"", text); return 0;
  case ARGP_KEY_END: check(a, state); return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

static const char doc[] =
  "Times kernel rows on a Hopper GPU against cuBLAS in one process: the GLU, the whole "
  "MLP (--op mlp) or its down projection alone (--op down).\n"
  "\n"
  "Every contender is one CUDA graph of calls over inputs that rotate through more than "
  "three times the L2 cache.  In each round the contenders, cuBLAS among them, take "
  "turns in a new random order; each settles before it is sampled; medians over the "
  "rounds are reported.  \"bare\" is the faster of cublasGemmEx and of the best of eight "
  "cublasLt heuristics for ONE product [M, 2N, K] with no activation; \"unfused\" is that "
  "and an activation kernel; \"eager\" is PyTorch's, from the Python driver "
  "bench/cuda/with_torch.py.  Of an MLP \"bare\" are its two products (\"gemm3\"), of which "
  "the second reads what the first has just written, and each row stands for itself and the "
  "other half's choice; \"floor\" is a kernel that only reads the weights.  With pdl 1 "
  "every call, ours and cuBLAS's, follows in the graph the same small kernel that writes X, "
  "whose own time is subtracted from both.  "
  "What is timed is checked first: on 64 token rows against float64, and every output "
  "for elements that were not written."
  "\v"
  "Without --model or sizes: Qwen2.5 0.5B to 72B, 1024 to 8192 tokens.  Suites, of the "
  "same models unless said: few 1, 4, 16, 64 tokens; large 128 to 8192; mlp 1 to 64, 256, "
  "1024, 4096; regret 19 counts from 1 to 8192; extra those with ten other shapes "
  "(--tokens: other counts).\n"
  "\n"
  "Examples:\n"
  "  tileglu bench --device cuda --cublas /path/libcublas.so.13 --out glu.csv\n"
  "  tileglu bench --device cuda --model Qwen2.5-7B --tokens 128,256 --rows all --pdl 0,1\n"
  "  tileglu bench --device cuda --rows best --from glu.csv --rounds 9 --out again.csv\n"
  "  tileglu bench --device cuda --op mlp --suite mlp --out mlp.csv --resume\n"
  "  tileglu bench --device cuda --suite regret --rows near --alone --out near.csv\n"
  "  tileglu bench --device cuda --tables glu.csv\n"
  "\n"
  "Exit status: 0 all is well; 1 a result was wrong; 2 wrong use; 3 a file cannot be "
  "read, written or used; 4 no driver, no GPU, or one of them failed; 5 the time limit "
  "left shapes out (--resume goes on).";

static void defaults(cuda_args *args) {
  memset(args, 0, sizeof *args);
  shape_init(&args->shape, OP_GLU, 0);
  args->shape.op_down = 1;
  args->shape.token_count = 0;
  args->rows = "chosen";
  args->within = 0.25;
  args->energy_ms = 700;
  args->energy_warm_ms = 500;
  args->part = args->parts = 1;
  args->timing = (timing){.settle_ms = 20, .sample_ms = 30, .idle_ms = 1000, .burst_ms = 20};
  args->rounds = 5;
  args->wait_limit = 60;
  args->burst_repeats = 10;
  args->with_pdl[0] = 1;
  args->commit = CLI_BUILD_COMMIT;
  args->seed = 1;
}

static void default_shapes(cuda_args *args) {
  shape_args *s = &args->shape;
  const struct suite *suite = args->suite ? suite_find(args->suite) : NULL;
  if (suite && s->token_count == 0) {
    for (int i = 0; suite->tokens[i]; i++) s->tokens[s->token_count++] = suite->tokens[i];
  } else if (s->token_count == 0) {
    for (int64_t m = 1024; m <= 8192; m *= 2) s->tokens[s->token_count++] = m;
  }
  if (shape_given(s)) return;
  size_t count = suite && suite->extra ? sizeof extra / sizeof extra[0]
                                       : sizeof qwen / sizeof qwen[0];
  for (size_t i = 0; i < count; i++) {
    s->models[s->model_count++] = suite && suite->extra ? &extra[i] : &qwen[i];
  }
}

void cuda_args_parse(cuda_args *args, int argc, char **argv) {
  static const int refused[] = {OPTION_BIAS, OPTION_RESIDUAL, OPTION_PAD, OPTION_MISALIGN, 0};
  offered_argp shape;
  defaults(args);
  offer_shape(&shape, &args->shape, refused);
  const struct argp_child children[] = {{&shape.argp, 0, NULL, 2}, {0}};
  const struct argp argp = {options, parse, NULL, doc, children, NULL, NULL};
  argp_parse(&argp, argc, argv, 0, NULL, args);
  default_shapes(args);
  if (args->top == 0) args->top = strcmp(args->rows, "near") == 0 ? 6 : 3;
}
