#include "options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

int parse_int(const char *text, int64_t least, int64_t most, int64_t *value) {
  char *end;
  errno = 0;
  long long number = strtoll(text, &end, 10);
  if (end == text || *end || errno || number < least || number > most) return 0;
  *value = number;
  return 1;
}

int64_t option_integer(const char *name, const char *text, int64_t least, int64_t most,
                       struct argp_state *state) {
  int64_t value = least;
  if (!parse_int(text, least, most, &value)) {
    argp_error(state, "--%s: \"%s\" is not a number from %lld to %lld", name, text,
               (long long)least, (long long)most);
  }
  return value;
}

const char *option_file(const char *name, const char *text, struct argp_state *state) {
  if (!*text) argp_error(state, "--%s: the name of the file is empty", name);
  return text;
}

int parse_real(const char *text, double *value) {
  char *end;
  *value = strtod(text, &end);
  return end != text && !*end;
}

/* ---- where ---- */
enum { MOST_THREADS = 1024 }; /* the library's limit */

static const struct argp_option place_options[] = {
  {NULL, 0, NULL, 0, "Where to run:", 1},
  {"backend", OPTION_BACKEND, "NAME", 0, "auto (default), cpu or cuda", 1},
  {"threads", OPTION_THREADS, "N", 0,
   "CPU threads, at most 1024; 0 (default): one per usable CPU", 1},
  {"row", OPTION_ROW, "NAME", 0, "force this kernel row (\"tileglu info\" lists them)", 1},
  {"cpu-isa", OPTION_CPU_ISA, "LEVEL", 0,
   "use no more than portable, avx2, avx512 or amx", 1},
  {"batch-invariant", OPTION_INVARIANT, NULL, 0,
   "a token's bits do not depend on the tokens around it", 1},
  {NULL, 0, NULL, 0, "Output:", 9},
  {"json", OPTION_JSON, NULL, 0, "one JSON document instead of tables", 9},
  {"seed", OPTION_SEED, "N", 0, "seed of the random numbers (default 1)", 9},
  {0},
};

static void parse_backend(place_args *args, const char *option, const char *text,
                          struct argp_state *state) {
  if (tglu_backend_from_name(text, &args->options.backend) != TGLU_OK) {
    argp_error(state, "--%s: %s", option, tglu_last_error());
  }
}

static error_t parse_place(int key, char *text, struct argp_state *state) {
  place_args *args = state->input;
  int64_t number = 0;
  switch (key) {
  case OPTION_BACKEND: parse_backend(args, "backend", text, state); return 0;
  case OPTION_THREADS:
    if (!parse_int(text, 0, MOST_THREADS, &number)) {
      argp_error(state, "--threads: \"%s\" is not a number from 0 to %d", text, MOST_THREADS);
    }
    args->options.threads = (int32_t)number;
    return 0;
  case OPTION_ROW: args->options.row = text; return 0;
  case OPTION_CPU_ISA: args->options.cpu_isa = text; return 0;
  case OPTION_INVARIANT: args->options.batch_invariant = 1; return 0;
  case OPTION_JSON: args->json = 1; return 0;
  case OPTION_SEED:
    if (!parse_int(text, 0, INT64_MAX, &number)) {
      argp_error(state, "--seed: \"%s\" is not a number from 0 to 2^63 - 1", text);
    }
    args->seed = (uint64_t)number;
    return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

const struct argp place_argp = {place_options, parse_place, NULL, NULL, NULL, NULL, NULL};

static const struct argp_option device_options[] = {
  {"device", OPTION_BACKEND, "NAME", 0, "the same as --backend", 1},
  {0},
};

static error_t parse_device(int key, char *text, struct argp_state *state) {
  if (key != OPTION_BACKEND) return ARGP_ERR_UNKNOWN;
  parse_backend(state->input, "device", text, state);
  return 0;
}

const struct argp device_argp = {device_options, parse_device, NULL, NULL, NULL, NULL, NULL};

void offer_argp(offered_argp *offered, const struct argp *shared, const int *refused) {
  const int room = sizeof offered->options / sizeof offered->options[0];
  memset(offered, 0, sizeof *offered);
  offered->argp = *shared;
  offered->argp.options = offered->options;
  for (int i = 0; i < room - 1 && (shared->options[i].name || shared->options[i].doc); i++) {
    offered->options[i] = shared->options[i];
    for (const int *key = refused; *key; key++) {
      if (shared->options[i].key == *key) offered->options[i].flags |= OPTION_HIDDEN;
    }
  }
}

void log_warnings(void *user, tglu_log_level level, const char *message) {
  (void)user;
  if (level == TGLU_LOG_WARNING) cli_warn("%s", message);
}

void place_init(place_args *args) {
  memset(args, 0, sizeof *args);
  tglu_context_options_init(&args->options);
  args->options.log = log_warnings;
  args->seed = 1;
}

int place_exit_code(tglu_status status) {
  return status == TGLU_ERR_INVALID_ARGUMENT || status == TGLU_ERR_NOT_FOUND ? CLI_USAGE
                                                                             : CLI_RUNTIME;
}

int place_open(const place_args *args, tglu_context **context, tglu_context_info *info) {
  tglu_status status = tglu_context_create(&args->options, context);
  if (status != TGLU_OK) return cli_library_error(place_exit_code(status), "context");
  tglu_context_info_init(info);
  tglu_context_get_info(*context, info);
  return CLI_OK;
}

/* ---- a forced row ---- */

/* Returns 0 where none is forced, or the context does not have it. */
static int find_forced_row(const place_args *args, const tglu_context *context,
                           tglu_row_info *row) {
  const char *name = args->options.row ? args->options.row : getenv("TILEGLU_ROW");
  for (int32_t i = 0; name && i < tglu_row_count(context); i++) {
    tglu_row_info_init(row);
    if (tglu_row_get(context, i, row) == TGLU_OK && strcmp(row->name, name) == 0) return 1;
  }
  return 0;
}

static int serves_op(const tglu_row_info *row, op_kind op) {
  return op == OP_MLP || strcmp(row->op, op_name(op)) == 0;
}

int place_row_serves(const place_args *args, const tglu_context *context, op_kind op,
                     tglu_dtype type) {
  tglu_row_info row;
  return !find_forced_row(args, context, &row) ||
         (serves_op(&row, op) && (row.dtypes >> type & 1));
}

int place_check_row(const place_args *args, const tglu_context *context, op_kind op,
                    tglu_dtype type, const char *what) {
  tglu_row_info row;
  char types[64] = "";
  if (!find_forced_row(args, context, &row)) return CLI_OK;
  const char *option = args->options.row ? "--row" : "TILEGLU_ROW";
  if (!serves_op(&row, op)) {
    return cli_error(CLI_USAGE, "%s: \"%s\" serves op %s, and the op asked for is %s (--op)",
                     option, row.name, row.op, op_name(op));
  }
  if (row.dtypes >> type & 1) return CLI_OK;
  for (int d = TGLU_DTYPE_BF16; d <= TGLU_DTYPE_F32; d++) {
    size_t length = strlen(types);
    if (!(row.dtypes >> d & 1)) continue;
    snprintf(types + length, sizeof types - length, "%s%s", length ? " and " : "",
             tglu_dtype_name((tglu_dtype)d));
  }
  return cli_error(CLI_USAGE, "%s: \"%s\" serves %s, and %s is %s (--dtype)", option, row.name,
                   types, what, tglu_dtype_name(type));
}
