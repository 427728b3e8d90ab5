/* Contexts: options and environment, the choice of a backend, memory, the log. */
#include "internal.h"
#include "plan/tune.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INVALID(...) tglu__fail(TGLU_ERR_INVALID_ARGUMENT, __VA_ARGS__)
#define MAX_THREADS 1024

/* ---- memory, log, references ---- */

void *tglu__alloc(const tglu_context *context, size_t bytes, size_t alignment)
{
  if (alignment < 64) alignment = 64;
  const tglu_context_options *options = &context->options;
  if (options->alloc) return options->alloc(options->alloc_user, bytes, alignment);
  void *pointer = NULL;
  return posix_memalign(&pointer, alignment, bytes) == 0 ? pointer : NULL;
}

void tglu__free(const tglu_context *context, void *pointer, size_t bytes)
{
  if (!pointer) return;
  const tglu_context_options *options = &context->options;
  if (options->free)
    options->free(options->alloc_user, pointer, bytes);
  else
    free(pointer);
}

void tglu__log(const tglu_context *context, tglu_log_level level, const char *format, ...)
{
  if (!context->options.log) return;
  char message[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  context->options.log(context->options.log_user, level, message);
}

void tglu__context_retain(tglu_context *context)
{
  atomic_fetch_add_explicit(&context->references, 1, memory_order_relaxed);
}

/* The context owns its strings; options hold them as const for the callers. */
static void free_text(const tglu_context *context, const char *text)
{
  if (text) tglu__free(context, (void *)(uintptr_t)text, strlen(text) + 1);
}

static void dispose(tglu_context *context)
{
  tglu__tune_free(context);
  if (context->ops) context->ops->close(context, context->state);
  free_text(context, context->options.row);
  free_text(context, context->options.cpu_isa);
  free_text(context, context->options.tune_cache);
  free_text(context, context->options.cuda_library);
  free_text(context, context->reason);
  tglu__free(context, context, sizeof *context);
}

void tglu__context_release(tglu_context *context)
{
  if (atomic_fetch_sub_explicit(&context->references, 1, memory_order_acq_rel) == 1)
    dispose(context);
}

void tglu_context_destroy(tglu_context *context)
{
  if (context) tglu__context_release(context);
}

/* ---- environment ---- */

typedef enum variable {
  VARIABLE_BACKEND, VARIABLE_DEVICE, VARIABLE_THREADS, VARIABLE_CPU_ISA, VARIABLE_ROW,
  VARIABLE_SM_LIMIT, VARIABLE_PDL, VARIABLE_TUNE_CACHE, VARIABLE_CUDA_LIBRARY,
  VARIABLE_COUNT
} variable;

static const struct {
  const char *name, *option;
} variables[VARIABLE_COUNT] = {
  [VARIABLE_BACKEND] = {"TILEGLU_BACKEND", "backend"},
  [VARIABLE_DEVICE] = {"TILEGLU_DEVICE", "device"},
  [VARIABLE_THREADS] = {"TILEGLU_THREADS", "threads"},
  [VARIABLE_CPU_ISA] = {"TILEGLU_CPU_ISA", "cpu_isa"},
  [VARIABLE_ROW] = {"TILEGLU_ROW", "row"},
  [VARIABLE_SM_LIMIT] = {"TILEGLU_SM_LIMIT", "sm_limit"},
  [VARIABLE_PDL] = {"TILEGLU_PDL", "pdl"},
  [VARIABLE_TUNE_CACHE] = {"TILEGLU_TUNE_CACHE", "tune_cache"},
  [VARIABLE_CUDA_LIBRARY] = {"TILEGLU_CUDA_LIBRARY", "cuda_library"},
};

/* Which options came from the environment. */
typedef struct environment {
  bool used[VARIABLE_COUNT];
} environment;

static const char *read_variable(environment *env, variable which)
{
  const char *value = getenv(variables[which].name);
  if (value) env->used[which] = true;
  return value;
}

static tglu_status merge_integer(environment *env, variable which, int32_t unset,
                                 int32_t *option)
{
  if (*option != unset) return TGLU_OK;
  const char *text = read_variable(env, which);
  if (!text) return TGLU_OK;
  char *end = NULL;
  const long value = strtol(text, &end, 10); /* beyond long: its limits, refused too */
  if (end == text || *end || value < INT32_MIN || value > INT32_MAX)
    return INVALID("%s: \"%s\" is not a whole number of 32 bits", variables[which].name,
                   text);
  *option = (int32_t)value;
  return TGLU_OK;
}

static void merge_text(environment *env, variable which, const char **option)
{
  if (!*option) *option = read_variable(env, which);
}

static tglu_status merge_environment(tglu_context_options *options, environment *env)
{
  if (options->backend == TGLU_BACKEND_AUTO) {
    const char *name = read_variable(env, VARIABLE_BACKEND);
    if (name) {
      tglu_status status = tglu_backend_from_name(name, &options->backend);
      if (status) return status;
    }
  }
  tglu_status status = merge_integer(env, VARIABLE_DEVICE, -1, &options->device);
  if (!status) status = merge_integer(env, VARIABLE_THREADS, 0, &options->threads);
  if (!status) status = merge_integer(env, VARIABLE_SM_LIMIT, 0, &options->sm_limit);
  if (!status) status = merge_integer(env, VARIABLE_PDL, 1, &options->pdl);
  merge_text(env, VARIABLE_CPU_ISA, &options->cpu_isa);
  merge_text(env, VARIABLE_ROW, &options->row);
  merge_text(env, VARIABLE_TUNE_CACHE, &options->tune_cache);
  merge_text(env, VARIABLE_CUDA_LIBRARY, &options->cuda_library);
  return status;
}

/* A refusal begins with the option's name; where the value came from a variable,
 * the message shall begin with that one's. */
static tglu_status blame_variable(const environment *env, tglu_status status)
{
  const char *message = tglu_last_error();
  for (int i = 0; i < VARIABLE_COUNT; i++) {
    const size_t length = strlen(variables[i].option);
    if (env->used[i] && strncmp(message, variables[i].option, length) == 0 &&
        message[length] == ':')
      return tglu__fail(status, "%s%s", variables[i].name, message + length);
  }
  return status;
}

/* Where the tuning cache lies unless the caller says: "" if there is no home, and for
 * "/", which stands for none where a user has no entry in the system's list. */
static void default_tune_cache(char *path, size_t bytes)
{
  const char *cache = getenv("XDG_CACHE_HOME");
  const char *home = getenv("HOME");
  int length = 0;
  path[0] = '\0';
  if (cache && cache[0] == '/')
    length = snprintf(path, bytes, "%s/tileglu/tune.txt", cache);
  else if (home && home[0] == '/' && home[strspn(home, "/")])
    length = snprintf(path, bytes, "%s/.cache/tileglu/tune.txt", home);
  if ((size_t)length >= bytes) path[0] = '\0';
}

/* ---- options ---- */

void tglu_context_options_init(tglu_context_options *options)
{
  if (options) *options = (tglu_context_options){.size = sizeof *options, .device = -1,
                                                 .pdl = 1};
}

static tglu_status check_isa(const char *name)
{
  static const char *const levels[] = {"portable", "avx2", "avx512", "amx"};
  for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
    if (strcmp(levels[i], name) == 0) return TGLU_OK;
  return INVALID("cpu_isa: \"%s\" is none of portable, avx2, avx512, amx", name);
}

static tglu_status check_options(const tglu_context_options *o)
{
  if (!tglu_backend_name(o->backend))
    return INVALID("backend: %d is none of auto, cpu, cuda", (int)o->backend);
  if (o->device < -1)
    return INVALID("device: %d is neither -1 (default) nor an ordinal", (int)o->device);
  if (o->backend == TGLU_BACKEND_CPU && o->device > 0)
    return INVALID("device: %d, but the cpu backend has none beyond 0", (int)o->device);
  if (o->threads < 0 || o->threads > MAX_THREADS)
    return INVALID("threads: %d is not between 0 (one a CPU) and %d", (int)o->threads,
                   MAX_THREADS);
  if (o->sm_limit < 0)
    return INVALID("sm_limit: %d is negative (0 means all)", (int)o->sm_limit);
  if (o->batch_invariant != 0 && o->batch_invariant != 1)
    return INVALID("batch_invariant: %d is neither 0 nor 1", (int)o->batch_invariant);
  if (o->stable_weights != 0 && o->stable_weights != 1)
    return INVALID("stable_weights: %d is neither 0 nor 1", (int)o->stable_weights);
  if (o->pdl != 0 && o->pdl != 1)
    return INVALID("pdl: %d is neither 0 nor 1", (int)o->pdl);
  if (o->sleep_threads != 0 && o->sleep_threads != 1)
    return INVALID("sleep_threads: %d is neither 0 nor 1", (int)o->sleep_threads);
  if (o->row && !*o->row) return INVALID("row: must not be empty (NULL means the planner)");
  if (o->cuda_library && !*o->cuda_library)
    return INVALID("cuda_library: must not be empty (NULL means libcuda.so.1)");
  if (!o->alloc != !o->free)
    return INVALID("%s: alloc and free are given both or neither",
                   o->alloc ? "free" : "alloc");
  return o->cpu_isa ? check_isa(o->cpu_isa) : TGLU_OK;
}

/* ---- the backend ---- */

static tglu_status own_text(const tglu_context *context, const char *text, char **out)
{
  const size_t bytes = strlen(text) + 1;
  *out = tglu__alloc(context, bytes, 1);
  if (!*out)
    return tglu__fail(TGLU_ERR_OUT_OF_MEMORY, "context: %zu bytes could not be allocated",
                      bytes);
  memcpy(*out, text, bytes);
  return TGLU_OK;
}

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static tglu_status set_reason(tglu_context *context, const char *format, ...)
{
  char text[1200];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  tglu_status status = own_text(context, text, &context->reason);
  context->info.reason = context->reason;
  return status;
}

static tglu_status open_backend(tglu_context *context, const tglu__backend_ops *ops)
{
  char *reason = context->reason;
  tglu_context_info_init(&context->info);
  tglu_status status = ops->open(context, &context->state);
  if (status) return status;
  context->ops = ops;
  context->info.size = sizeof context->info;
  context->info.backend = ops->id;
  context->info.reason = reason;
  return TGLU_OK;
}

static tglu_status open_cuda(tglu_context *context)
{
#ifdef TILEGLU_HAVE_CUDA
  return open_backend(context, &tglu__cuda_backend);
#else
  (void)context;
  return tglu__fail(TGLU_ERR_UNSUPPORTED, "backend: built without the CUDA backend");
#endif
}

/* A machine without a usable GPU is no reason to fail, a wrong option is. */
static bool falls_back(tglu_status status)
{
  return status == TGLU_ERR_UNSUPPORTED || status == TGLU_ERR_NO_DRIVER ||
         status == TGLU_ERR_NO_DEVICE || status == TGLU_ERR_DEVICE ||
         status == TGLU_ERR_FORKED;
}

static tglu_status open_auto(tglu_context *context)
{
  char before[1024]; /* a call that succeeds leaves the last message alone */
  snprintf(before, sizeof before, "%s", tglu_last_error());
  tglu_status status = open_cuda(context);
  if (status == TGLU_OK)
    return set_reason(context, "auto: %s is a usable Hopper GPU",
                      context->info.device_name);
  if (!falls_back(status)) return status;
  char why[1024];
  snprintf(why, sizeof why, "%s", tglu_last_error());
  if (context->options.device > 0)
    return tglu__fail(TGLU_ERR_NO_DEVICE, "device: %d was asked for, but no GPU is usable "
                      "(%s)", (int)context->options.device, why);
  status = set_reason(context, "auto: the CPU, since no GPU is usable (%s)", why);
  if (status == TGLU_OK) status = open_backend(context, &tglu__cpu_backend);
  return status ? status : tglu__fail(TGLU_OK, "%s", before);
}

static tglu_status choose_backend(tglu_context *context, const environment *env)
{
  const tglu_backend backend = context->options.backend;
  if (backend == TGLU_BACKEND_AUTO) return open_auto(context);
  tglu_status status =
    set_reason(context, "%s: asked for by %s", tglu_backend_name(backend),
               env->used[VARIABLE_BACKEND] ? "TILEGLU_BACKEND" : "the option backend");
  if (status) return status;
  return backend == TGLU_BACKEND_CPU ? open_backend(context, &tglu__cpu_backend)
                                     : open_cuda(context);
}

static tglu_status check_forced_row(const tglu_context *context)
{
  const char *row = context->options.row;
  if (!row) return TGLU_OK;
  const char *backend = tglu_backend_name(context->ops->id);
  char names[640] = "";
  size_t length = 0;
  const int32_t count = context->ops->row_count(context);
  for (int32_t i = 0; i < count; i++) {
    tglu_row_info info;
    tglu_row_info_init(&info);
    context->ops->row_get(context, i, &info);
    if (strcmp(info.name, row) == 0) {
      if (info.usable) return TGLU_OK;
      return tglu__fail(TGLU_ERR_UNSUPPORTED,
                        "row: \"%s\" needs %s, which this %s context cannot use", row,
                        info.isa, backend);
    }
    if (length < sizeof names)
      length += (size_t)snprintf(names + length, sizeof names - length, "%s%s",
                                 i ? ", " : "", info.name);
  }
  if (length >= sizeof names) memcpy(names + sizeof names - 4, "...", 4);
  return tglu__fail(TGLU_ERR_NOT_FOUND, "row: the %s backend has no \"%s\"; it has %s",
                    backend, row, names);
}

/* Replaces the borrowed strings by copies: those not copied yet are NULL, so that
 * dispose is right at every point. */
static tglu_status own_options(tglu_context *context, const tglu_context_options *given)
{
  char path[4096];
  if (!given->tune_cache) default_tune_cache(path, sizeof path);
  tglu_context_options *own = &context->options;
  const struct {
    const char *given;
    const char **own;
  } texts[] = {
    {given->row, &own->row},
    {given->cpu_isa, &own->cpu_isa},
    {given->tune_cache ? given->tune_cache : path, &own->tune_cache},
    {given->cuda_library, &own->cuda_library},
  };
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    if (!texts[i].given) continue;
    char *copy = NULL;
    tglu_status status = own_text(context, texts[i].given, &copy);
    if (status) return status;
    *texts[i].own = copy;
  }
  return TGLU_OK;
}

static tglu_status build(const tglu_context_options *options, const environment *env,
                         tglu_context **out)
{
  tglu_context draft = {.options = *options, .references = 1};
  tglu_context_options *own = &draft.options;
  own->row = own->cpu_isa = own->tune_cache = own->cuda_library = NULL;
  tglu_context *context = tglu__alloc(&draft, sizeof *context, _Alignof(tglu_context));
  if (!context)
    return tglu__fail(TGLU_ERR_OUT_OF_MEMORY, "context: %zu bytes could not be allocated",
                      sizeof *context);
  memcpy(context, &draft, sizeof draft);
  tglu_status status = own_options(context, options);
  if (!status) status = choose_backend(context, env);
  if (!status) status = check_forced_row(context);
  if (status) {
    dispose(context);
    return status;
  }
  context->info.tune_cache = context->options.tune_cache;
  tglu__tune_load(context);
  tglu__log(context, TGLU_LOG_INFO, "tileglu %s: %s", tglu_version_string(),
            context->info.reason);
  *out = context;
  return TGLU_OK;
}

tglu_status tglu_context_create(const tglu_context_options *given, tglu_context **out)
{
  if (!out) return INVALID("out: must not be NULL");
  *out = NULL;
  tglu_context_options options;
  environment env = {{false}};
  tglu_context_options_init(&options);
  if (given) {
    tglu_status status =
      tglu__struct_in("options", given, sizeof options, sizeof options, &options);
    if (status) return status;
  }
  tglu_status status = merge_environment(&options, &env);
  if (!status) status = check_options(&options);
  if (!status) status = build(&options, &env, out);
  return status ? blame_variable(&env, status) : TGLU_OK;
}

/* ---- what a context is ---- */

void tglu_context_info_init(tglu_context_info *info)
{
  if (info) *info = (tglu_context_info){.size = sizeof *info, .device = -1};
}

tglu_status tglu_context_get_info(const tglu_context *context, tglu_context_info *info)
{
  if (!context) return INVALID("context: must not be NULL");
  const size_t first = offsetof(tglu_context_info, tune_cache);
  return tglu__struct_out("info", info, first, sizeof *info, &context->info);
}

void tglu_row_info_init(tglu_row_info *info)
{
  if (info) *info = (tglu_row_info){.size = sizeof *info};
}

int32_t tglu_row_count(const tglu_context *context)
{
  if (context) return context->ops->row_count(context);
  INVALID("context: must not be NULL");
  return 0;
}

tglu_status tglu_row_get(const tglu_context *context, int32_t index, tglu_row_info *info)
{
  if (!context) return INVALID("context: must not be NULL");
  const int32_t count = context->ops->row_count(context);
  if (index < 0 || index >= count)
    return INVALID("index: %d is not between 0 and %d, the last row", (int)index,
                   (int)count - 1);
  tglu_row_info filled;
  tglu_row_info_init(&filled);
  context->ops->row_get(context, index, &filled);
  return tglu__struct_out("info", info, sizeof filled, sizeof filled, &filled);
}
