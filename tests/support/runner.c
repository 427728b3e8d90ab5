#include "runner.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>


#if defined(__has_feature)
#define TT_FEATURE(name) __has_feature(name)
#else
#define TT_FEATURE(name) 0
#endif

bool tt_under_asan(void) {
#if defined(__SANITIZE_ADDRESS__) || TT_FEATURE(address_sanitizer)
  return true;
#else
  return false;
#endif
}

bool tt_under_tsan(void) {
#if defined(__SANITIZE_THREAD__) || TT_FEATURE(thread_sanitizer)
  return true;
#else
  return false;
#endif
}

/* ---- contexts ---- */

const char *const tt_isa_levels[] = {"portable", "avx2", "avx512", "amx", NULL};

static int rank_of(const char *isa) {
  for (int i = 0; tt_isa_levels[i] != NULL; i++) {
    if (strcmp(tt_isa_levels[i], isa) == 0) return i;
  }
  return -1;
}

tglu_context *tt_cpu_context(const char *isa, int32_t threads, bool batch_invariant) {
  tglu_context_options options;
  tglu_context_options_init(&options);
  options.backend = TGLU_BACKEND_CPU;
  options.threads = threads;
  options.cpu_isa = isa;
  options.batch_invariant = batch_invariant;
  options.tune_cache = "";
  tglu_context *context;
  const tglu_status status = tglu_context_create(&options, &context);
  if (status == TGLU_OK) {
    tglu_context_info info;
    tglu_context_info_init(&info);
    if (tglu_context_get_info(context, &info) != TGLU_OK ||
        strcmp(info.cpu_isa, isa == NULL ? tglu_cpu_isa() : isa) != 0) {
      fprintf(stderr, "context: asked for ISA level %s, got %s\n",
              isa == NULL ? "the best" : isa, info.cpu_isa);
      exit(1);
    }
    return context;
  }
  const int best = rank_of(tglu_cpu_isa());
  if (best < 0 || isa == NULL || rank_of(isa) <= best) {
    fprintf(stderr, "context at %s (best %s): %s: %s\n", isa == NULL ? "best" : isa,
            tglu_cpu_isa(), tglu_status_name(status), tglu_last_error());
    exit(1);
  }
  return NULL;
}

const char *tt_isa_from_arguments(int argc, char **argv) {
  if (argc < 2 || rank_of(argv[1]) < 0) {
    fprintf(stderr, "usage: %s portable|avx2|avx512|amx\n", argv[0]);
    exit(2);
  }
  tglu_context *context = tt_cpu_context(argv[1], 1, false);
  if (context == NULL) {
    printf("SKIP: ISA level %s: %s\n", argv[1], tglu_last_error());
    exit(TT_EXIT_SKIPPED);
  }
  tglu_context_destroy(context);
  return argv[1];
}

/* ---- objects ---- */

tglu_status tt_object_create(tglu_context *context, const tt_case *c,
                             const tt_pointers *p, tt_object *object) {
  memset(object, 0, sizeof *object);
  if (c->op == TT_OP_LINEAR) {
    tglu_linear_desc linear;
    tt_fill_linear_desc(c, p, &linear);
    return tglu_linear_create(context, &linear, &object->linear);
  }
  tglu_mlp_desc desc;
  tt_fill_desc(c, p, &desc);
  return c->op == TT_OP_GLU ? tglu_glu_create(context, &desc.glu, &object->glu)
                            : tglu_mlp_create(context, &desc, &object->mlp);
}

void tt_object_destroy(tt_object *object) {
  tglu_glu_destroy(object->glu);
  tglu_mlp_destroy(object->mlp);
  tglu_linear_destroy(object->linear);
  memset(object, 0, sizeof *object);
}

tglu_status tt_object_workspace(const tt_object *object, int64_t tokens, size_t *bytes) {
  if (object->glu != NULL) return tglu_glu_workspace_bytes(object->glu, tokens, bytes);
  if (object->mlp != NULL) return tglu_mlp_workspace_bytes(object->mlp, tokens, bytes);
  return tglu_linear_workspace_bytes(object->linear, tokens, bytes);
}

tglu_status tt_object_run_bare(const tt_object *object, const tglu_run_args *args) {
  if (object->glu != NULL) return tglu_glu_run(object->glu, args);
  if (object->mlp != NULL) return tglu_mlp_run(object->mlp, args);
  return tglu_linear_run(object->linear, args);
}

static bool failed(char *why, size_t why_bytes, const char *call, tglu_status status) {
  snprintf(why, why_bytes, "%s: %s: %s", call, tglu_status_name(status),
           tglu_last_error());
  return false;
}

bool tt_object_run(const tt_object *object, const tglu_run_args *args, char *why,
                   size_t why_bytes) {
  tglu_run_args own = *args;
  size_t bytes;
  tglu_status status = tt_object_workspace(object, args->tokens, &bytes);
  if (status != TGLU_OK) return failed(why, why_bytes, "workspace_bytes", status);
  tt_buffer workspace = {0};
  if (bytes > 0) {
    tt_buffer_create(&workspace, bytes, TT_PLACE_INSIDE, 13);
    own.workspace = workspace.data;
    own.workspace_bytes = bytes;
  }
  status = tt_object_run_bare(object, &own);
  int64_t offset = 0;
  const bool intact = bytes == 0 || tt_buffer_intact(&workspace, &offset);
  tt_buffer_destroy(&workspace);
  if (status != TGLU_OK) return failed(why, why_bytes, "run", status);
  if (!intact) {
    snprintf(why, why_bytes, "workspace: sentinel at byte %lld of %zu was overwritten",
             (long long)offset, bytes);
  }
  return intact;
}

bool tt_run(tglu_context *context, const tt_case *c, const tt_operands *o, char *why,
            size_t why_bytes) {
  tt_pointers pointers;
  tt_object object;
  tglu_run_args args;
  tt_pointers_of(o, &pointers);
  const tglu_status status = tt_object_create(context, c, &pointers, &object);
  if (status != TGLU_OK) return failed(why, why_bytes, "create", status);
  tt_fill_args(c, &pointers, &args);
  const bool ran = tt_object_run(&object, &args, why, why_bytes);
  tt_object_destroy(&object);
  return ran;
}

bool tt_check_case(tglu_context *context, const tt_case *c, tt_report *report, char *why,
                   size_t why_bytes) {
  char text[TT_WHY_BYTES];
  tt_case_text(c, text, sizeof text);
  tt_announce(text);
  tt_operands operands;
  tt_operands_create(c, &operands);
  bool good = tt_run(context, c, &operands, why, why_bytes) &&
              tt_operands_intact(c, &operands, why, why_bytes);
  if (good) {
    tt_reference reference;
    tt_report own;
    tt_reference_create(c, &operands, &reference);
    tt_compare(c->dtype, operands.out.data, tt_ld_out(c), &reference, &own);
    tt_reference_destroy(&reference);
    const double slack = c->dtype == TGLU_DTYPE_F32 ? 0x1p-20 : 0;
    good = tt_report_passes(&own, slack, why, why_bytes);
    if (report != NULL) *report = own;
  }
  tt_operands_destroy(&operands);
  tt_announce(NULL);
  return good;
}

/* ---- crashes and children ---- */

/* A thread's own: a fault's signal comes to the thread that caused it. */
static _Thread_local char announced[TT_WHY_BYTES + 64];

enum { FAULTS = 3 };
static const int faults[FAULTS] = {SIGSEGV, SIGBUS, SIGILL};
static struct sigaction previous[FAULTS];
static pthread_mutex_t previous_mutex = PTHREAD_MUTEX_INITIALIZER;

static void on_fault(int number) {
  (void)number;
  if (announced[0] != '\0') {
    const ssize_t written = write(STDERR_FILENO, announced, strlen(announced));
    (void)written;
  }
  /* The faulting instruction runs again, now under the former handler. */
  for (int i = 0; i < FAULTS; i++) sigaction(faults[i], &previous[i], NULL);
}

void tt_announce(const char *text) {
  if (text == NULL) {
    announced[0] = '\0';
    return;
  }
  snprintf(announced, sizeof announced, "\nfault while running: %s\n", text);
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_fault;
  sigemptyset(&action.sa_mask);
  pthread_mutex_lock(&previous_mutex);
  for (int i = 0; i < FAULTS; i++) { /* the test runner sets its own for each test */
    struct sigaction found;
    sigaction(faults[i], &action, &found);
    if (found.sa_handler != on_fault) previous[i] = found;
  }
  pthread_mutex_unlock(&previous_mutex);
}

bool tt_in_child(int (*body)(void *user), void *user, unsigned seconds, char *why,
                 size_t why_bytes) {
  fflush(NULL);
  const pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < FAULTS; i++) {
      if (!tt_under_asan() && !tt_under_tsan()) signal(faults[i], SIG_DFL);
    }
    signal(SIGABRT, SIG_DFL);
    alarm(seconds);
    const int code = body(user);
    fflush(NULL);
    _exit(code);
  }
  int state = 0;
  if (child < 0 || waitpid(child, &state, 0) != child) {
    snprintf(why, why_bytes, "fork or wait failed");
    return false;
  }
  if (WIFSIGNALED(state)) {
    snprintf(why, why_bytes, "child ended by signal %d (%s)", WTERMSIG(state),
             WTERMSIG(state) == SIGALRM ? "time limit" : strsignal(WTERMSIG(state)));
    return false;
  }
  snprintf(why, why_bytes, "child returned %d", WEXITSTATUS(state));
  return WEXITSTATUS(state) == 0;
}
