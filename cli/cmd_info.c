/* tileglu info: what this build and this machine offer. */
#include <argp.h>
#include <stdio.h>
#include <string.h>

#include "build_commit.h"
#include "cache.h"
#include "cli.h"
#include "json_out.h"
#include "mem.h"
#include "options.h"
#include "table.h"

static const char doc[] =
  "Prints the version, the backends (with the reason where one cannot be used), the "
  "processor with what of its instruction sets counts here, and the kernel rows of "
  "this build."
  "\v" CLI_EXIT_HELP;

static error_t parse(int key, char *text, struct argp_state *state) {
  switch (key) {
  case ARGP_KEY_INIT: state->child_inputs[0] = state->input; return 0;
  case ARGP_KEY_ARG: argp_error(state, "no argument is taken, not \"%s\"", text); return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

/* ---- the processor ---- */
static const char *const features[] = {
  "sse4_2", "avx", "avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512bw", "avx512vl",
  "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_fp16",
};

/* The "flags" line of /proc/cpuinfo, with a space at both ends; NULL where there is
 * none.  To be freed with mem_free. */
static char *cpu_flags(void) {
  FILE *file = fopen("/proc/cpuinfo", "r");
  char *line = NULL, *flags = NULL;
  size_t size = 0;
  if (!file) return NULL;
  while (!flags && getline(&line, &size, file) > 0) {
    if (strncmp(line, "flags", 5) != 0 || !strchr(line, ':')) continue;
    line[strcspn(line, "\n")] = 0;
    flags = mem_text(" %s ", strchr(line, ':') + 1);
  }
  mem_free(line);
  fclose(file);
  return flags;
}

static int has_flag(const char *flags, const char *name) {
  char *word = mem_text(" %s ", name);
  int found = flags && strstr(flags, word);
  mem_free(word);
  return found;
}

/* ---- backends ---- */
typedef struct backend_report {
  tglu_backend id;
  tglu_context *context;   /* NULL: cannot be used */
  tglu_context_info info;
  char *why_not;
} backend_report;

static void probe(backend_report *b, const place_args *args, tglu_backend id) {
  memset(b, 0, sizeof *b);
  b->id = id;
  tglu_context_options options = args->options;
  options.backend = id;
  tglu_context_info_init(&b->info);
  if (tglu_context_create(&options, &b->context) != TGLU_OK) {
    b->why_not = mem_text("%s", tglu_last_error());
  } else {
    tglu_context_get_info(b->context, &b->info);
  }
}

static void probe_free(backend_report *b) {
  tglu_context_destroy(b->context);
  mem_free(b->why_not);
}

static void row_types(const tglu_row_info *row, char *buffer, size_t bytes) {
  buffer[0] = 0;
  for (int d = TGLU_DTYPE_BF16; d <= TGLU_DTYPE_F32; d++) {
    if (!(row->dtypes & 1 << d)) continue;
    size_t length = strlen(buffer);
    snprintf(buffer + length, bytes - length, "%s%s", length ? " " : "",
             tglu_dtype_name((tglu_dtype)d));
  }
}

static json_t *rows_json(const backend_report *b) {
  json_t *rows = json_array();
  for (int32_t i = 0; b->context && i < tglu_row_count(b->context); i++) {
    tglu_row_info row;
    char types[32];
    tglu_row_info_init(&row);
    if (tglu_row_get(b->context, i, &row) != TGLU_OK) continue;
    row_types(&row, types, sizeof types);
    json_t *o = json_object();
    jo_text(o, "name", row.name);
    jo_text(o, "op", row.op);
    jo_text(o, "schedule", row.schedule);
    jo_text(o, "isa", row.isa);
    jo_text(o, "dtypes", types);
    jo_text(o, "hash", row.hash && row.hash[0] ? row.hash : NULL);
    jo_bool(o, "usable", row.usable);
    json_array_append_new(rows, o);
  }
  return rows;
}

static json_t *backend_json(const backend_report *b) {
  json_t *o = json_object();
  jo_text(o, "name", tglu_backend_name(b->id));
  jo_bool(o, "usable", b->context != NULL);
  jo_text(o, "why_not", b->why_not);
  jo_text(o, "device", b->info.device_name);
  if (b->id == TGLU_BACKEND_CPU) {
    jo_int(o, "threads", b->info.threads);
    jo_text(o, "isa", b->info.cpu_isa);
  } else {
    jo_int(o, "sm_count", b->info.sm_count);
    jo_int(o, "compute_capability", b->info.compute_capability);
  }
  json_object_set_new(o, "rows", rows_json(b));
  return o;
}

static int print_json(const backend_report *chosen, const backend_report *all, int count,
                      const char *flags) {
  json_t *document = jo_document("info");
  jo_text(document, "commit", CLI_BUILD_COMMIT);
  jo_text(document, "backend", tglu_backend_name(chosen->info.backend));
  jo_text(document, "reason", chosen->info.reason);
  jo_text(document, "cpu_isa", tglu_cpu_isa());
  json_t *list = json_array();
  for (size_t i = 0; i < sizeof features / sizeof features[0]; i++) {
    if (has_flag(flags, features[i])) json_array_append_new(list, json_string(features[i]));
  }
  json_object_set_new(document, "cpu_features", list);
  jo_int(document, "l2_bytes", (int64_t)cache_level_bytes(2));
  jo_int(document, "l3_bytes", (int64_t)cache_level_bytes(3));
  json_t *backends = json_array();
  for (int i = 0; i < count; i++) json_array_append_new(backends, backend_json(&all[i]));
  json_object_set_new(document, "backends", backends);
  return jo_print(document);
}

static void print_rows(const backend_report *b) {
  static const char *const heads[] = {"<  kernel row", "<op", "<isa", "<schedule", "<types",
                                      "<usable here", NULL};
  table *t = table_new(heads);
  for (int32_t i = 0; i < tglu_row_count(b->context); i++) {
    tglu_row_info row;
    char types[32];
    tglu_row_info_init(&row);
    if (tglu_row_get(b->context, i, &row) != TGLU_OK) continue;
    row_types(&row, types, sizeof types);
    table_cell(t, "  %s", row.name);
    table_cell(t, "%s", row.op);
    table_cell(t, "%s", row.isa);
    table_cell(t, "%s", row.schedule);
    table_cell(t, "%s", types);
    table_cell(t, "%s", row.usable ? "yes" : "no");
  }
  table_print(t, stdout);
  table_free(t);
}

static void print_text(const backend_report *chosen, const backend_report *all, int count,
                       const char *flags) {
  printf("tileglu %s (commit %s)\n", tglu_version_string(), CLI_BUILD_COMMIT);
  printf("backend in use: %s (%s)\n", tglu_backend_name(chosen->info.backend),
         chosen->info.reason ? chosen->info.reason : "no reason given");
  printf("CPU features:  ");
  for (size_t i = 0; i < sizeof features / sizeof features[0]; i++) {
    if (has_flag(flags, features[i])) printf(" %s", features[i]);
  }
  printf("\ncaches:         L2 %.1f MiB, L3 %.1f MiB\n",
         cache_level_bytes(2) / 0x1p20,
         cache_level_bytes(3) / 0x1p20);
  for (int i = 0; i < count; i++) {
    const backend_report *b = &all[i];
    printf("\n%s: ", tglu_backend_name(b->id));
    if (!b->context) {
      printf("not usable: %s\n", b->why_not);
      continue;
    }
    printf("%s", b->info.device_name ? b->info.device_name : "unnamed");
    if (b->id == TGLU_BACKEND_CPU) {
      printf(", ISA level %s, %d threads\n", b->info.cpu_isa ? b->info.cpu_isa : "?",
             (int)b->info.threads);
    } else {
      printf(", device %d, %d SMs, compute capability %d\n", (int)b->info.device,
             (int)b->info.sm_count, (int)b->info.compute_capability);
    }
    print_rows(b);
  }
}

int cmd_info(int argc, char **argv) {
  const struct argp_child children[] = {{&place_argp, 0, NULL, 1}, {0}};
  const struct argp argp = {NULL, parse, NULL, doc, children, NULL, NULL};
  place_args args;
  place_init(&args);
  argp_parse(&argp, argc, argv, 0, NULL, &args);
  backend_report chosen = {0};
  tglu_context_info_init(&chosen.info);
  tglu_status status = tglu_context_create(&args.options, &chosen.context);
  if (status != TGLU_OK) return cli_library_error(place_exit_code(status), "context");
  tglu_context_get_info(chosen.context, &chosen.info);

  place_args quiet = args;
  quiet.options.log = NULL;
  backend_report all[2];
  probe(&all[0], &quiet, TGLU_BACKEND_CPU);
  probe(&all[1], &quiet, TGLU_BACKEND_CUDA);
  char *flags = cpu_flags();
  int code = CLI_OK;
  if (args.json) {
    code = print_json(&chosen, all, 2, flags);
  } else {
    print_text(&chosen, all, 2, flags);
  }
  mem_free(flags);
  probe_free(&all[0]);
  probe_free(&all[1]);
  probe_free(&chosen);
  return code;
}
