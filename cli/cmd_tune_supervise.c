/* Starts workers, follows what they say, and knows whom to blame. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"
#include "cmd_tune.h"
#include "mem.h"
#include "progress.h"

extern char **environ;

enum { LINE_BYTES = 512, OPEN_SECONDS = 300 };

typedef struct worker {
  pid_t pid;
  int pipe;
  int current;           /* candidate that it is busy with; -1: none  */
  int ended;             /* it said that it was done                  */
  int late;              /* killed for taking too long                */
  char line[LINE_BYTES]; /* what has come of a line                   */
  size_t length;
} worker;

/* ---- starting ---- */

static int start(worker *w, int argc, char **argv, const char *order) {
  int ends[2];
  *w = (worker){.pipe = -1, .current = -1};
  if (pipe2(ends, O_CLOEXEC) != 0) return cli_error(CLI_RUNTIME, "no pipe: %s", strerror(errno));
  char **words = mem_zeroed((size_t)argc + 3, sizeof *words);
  char *option = mem_text("--worker=%s", order), command[] = "tune", program[] = "tileglu";
  words[0] = program;
  words[1] = command;
  for (int i = 1; i < argc; i++) words[1 + i] = argv[i];
  words[1 + argc] = option;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], TUNE_PIPE);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  int error = posix_spawn(&w->pid, "/proc/self/exe", &actions, NULL, words, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  w->pipe = ends[0];
  mem_free(option);
  mem_free(words);
  if (error == 0) return CLI_OK;
  close(w->pipe);
  return cli_error(CLI_RUNTIME, "no worker could be started: %s", strerror(error));
}

/* ---- following ---- */

static int find(const tune_point *p, const char *name) {
  for (int i = 0; i < p->count; i++) {
    if (strcmp(p->list[i].name, name) == 0) return i;
  }
  return -1;
}

static void settle(candidate *c, tune_state state, const char *text) {
  c->state = state;
  c->us = state == TUNE_TIMED || state == TUNE_SLOW ? strtod(text, NULL) : NAN;
  snprintf(c->why, sizeof c->why, "%s", state == TUNE_WRONG || state == TUNE_FAILED ? text : "");
}

static void follow(worker *w, tune_point *p, char *line) {
  static const struct {
    const char *word;
    tune_state state;
  } ends[] = {{"unsupported", TUNE_UNSUPPORTED}, {"wrong", TUNE_WRONG}, {"slow", TUNE_SLOW},
              {"time", TUNE_TIMED}};
  char *rest = line, *what = strsep(&rest, "\t"), *name = strsep(&rest, "\t");
  if (!name || !rest) return;
  if (strcmp(what, "untuned") == 0) snprintf(p->untuned, sizeof p->untuned, "%s", name);
  if (strcmp(what, "done") == 0) w->ended = 1;
  int i = find(p, name);
  w->current = strcmp(what, "begin") == 0 || strcmp(what, "sample") == 0 ? i : -1;
  for (size_t e = 0; e < sizeof ends / sizeof ends[0]; e++) {
    if (i >= 0 && strcmp(what, ends[e].word) == 0) settle(&p->list[i], ends[e].state, rest);
  }
}

/* Whole lines among what was read; 0 at the end of the pipe. */
static int take(worker *w, tune_point *p) {
  ssize_t got = read(w->pipe, w->line + w->length, sizeof w->line - w->length);
  if (got < 0 && errno == EINTR) return 1;
  if (got <= 0) return 0;
  w->length += (size_t)got;
  for (char *end; (end = memchr(w->line, '\n', w->length)) != NULL;) {
    size_t bytes = (size_t)(end - w->line) + 1;
    *end = 0;
    follow(w, p, w->line);
    memmove(w->line, w->line + bytes, w->length - bytes);
    w->length -= bytes;
  }
  if (w->length == sizeof w->line) w->length = 0; /* no line of ours is that long */
  return 1;
}

/* When a step that begins now must have ended. */
static double deadline_of(const worker *w, const tune_args *args) {
  return clock_now() + (w->current < 0 ? fmax(OPEN_SECONDS, args->limit) : args->limit);
}

/* Until the worker is gone; one whose step does not end is killed.  Its wait status. */
static int wait_for(worker *w, const tune_args *args, tune_point *p) {
  int status = 0;
  double deadline = deadline_of(w, args);
  while (!w->late) {
    double left = deadline - clock_now();
    struct pollfd one = {.fd = w->pipe, .events = POLLIN};
    int ready = left > 0 ? poll(&one, 1, (int)fmin(1000, ceil(1e3 * left))) : 0;
    if (ready > 0) {
      if (!take(w, p)) break;
      deadline = deadline_of(w, args);
    } else if (left <= 0) {
      w->late = 1;
      kill(w->pid, SIGKILL);
    }
  }
  close(w->pipe);
  while (waitpid(w->pid, &status, 0) < 0 && errno == EINTR) {}
  return status;
}

/* Says how the worker ended. */
static void describe_end(const worker *w, int status, double limit, char *text, size_t bytes) {
  if (w->late) {
    snprintf(text, bytes, "no end within %g s", limit);
  } else if (WIFSIGNALED(status)) {
    snprintf(text, bytes, "killed by signal %d, %s", WTERMSIG(status),
             strsignal(WTERMSIG(status)));
  } else {
    snprintf(text, bytes, "an error (exit status %d)", WEXITSTATUS(status));
  }
}

static int any_open(const tune_point *p) {
  for (int i = 0; i < p->count; i++) {
    if (p->list[i].state == TUNE_OPEN) return 1;
  }
  return 0;
}

/* What a worker found out before it failed is of a process that was failing: measured
 * again, but for verdicts. */
static void reopen(tune_point *p) {
  for (int i = 0; i < p->count; i++) {
    tune_state state = p->list[i].state;
    if (state == TUNE_TIMED || state == TUNE_SLOW) p->list[i].state = TUNE_OPEN;
  }
}

int tune_supervise(const tune_args *args, int argc, char **argv, tune_point *p) {
  const int cuda = args->place.options.backend == TGLU_BACKEND_CUDA;
  while (any_open(p)) {
    worker w;
    char why[200];
    char *order = tune_order(p, cuda);
    int code = start(&w, argc, argv, order);
    mem_free(order);
    if (code != CLI_OK) return code;
    int status = wait_for(&w, args, p);
    if (w.ended) break;
    describe_end(&w, status, args->limit, why, sizeof why);
    if (w.current < 0) {
      return cli_error(CLI_RUNTIME, "the measurement could not begin or end: %s", why);
    }
    candidate *c = &p->list[w.current];
    settle(c, TUNE_FAILED, why);
    cli_warn("%s: %s: it is left out", c->name, why);
    reopen(p);
  }
  return CLI_OK;
}
