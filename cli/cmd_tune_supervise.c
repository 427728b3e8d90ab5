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

struct tune_crew {
  const tune_args *args;
  int argc;
  char **argv;
  pid_t pid;             /* of the worker; 0: there is none           */
  int to, from;          /* pipes                                     */
  int served;            /* problems that it has done                 */
  int current;           /* candidate that it is busy with; -1: none  */
  int done;              /* with the problem                          */
  int late;              /* killed for taking too long                */
  char line[LINE_BYTES]; /* what has come of a line                   */
  size_t length;
};

tune_crew *tune_crew_new(const tune_args *args, int argc, char **argv) {
  tune_crew *w = mem_zeroed(1, sizeof *w);
  signal(SIGPIPE, SIG_IGN); /* a worker that is gone is noticed otherwise */
  w->args = args;
  w->argc = argc;
  w->argv = argv;
  return w;
}

/* ---- starting ---- */

/* Its standard input and TUNE_PIPE are pipes. */
static int spawn(tune_crew *w, const int *to, const int *from) {
  char **words = mem_zeroed((size_t)w->argc + 3, sizeof *words);
  char *contract = tune_contract(w->args), *option = mem_text("--worker=%s", contract);
  char command[] = "tune", program[] = "tileglu";
  words[0] = program;
  words[1] = command;
  for (int i = 1; i < w->argc; i++) words[1 + i] = w->argv[i];
  words[1 + w->argc] = option;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, from[1], TUNE_PIPE);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  int error = posix_spawn(&w->pid, "/proc/self/exe", &actions, NULL, words, environ);
  posix_spawn_file_actions_destroy(&actions);
  mem_free(contract);
  mem_free(option);
  mem_free(words);
  return error;
}

static int start(tune_crew *w) {
  int to[2], from[2];
  if (pipe2(to, O_CLOEXEC) != 0) return cli_error(CLI_RUNTIME, "no pipe: %s", strerror(errno));
  if (pipe2(from, O_CLOEXEC) != 0) {
    close(to[0]), close(to[1]);
    return cli_error(CLI_RUNTIME, "no pipe: %s", strerror(errno));
  }
  w->served = 0;
  w->length = 0;
  w->late = 0;
  int error = spawn(w, to, from);
  close(to[0]);
  close(from[1]);
  w->to = to[1];
  w->from = from[0];
  if (error == 0) return CLI_OK;
  close(w->to), close(w->from);
  w->pid = 0;
  return cli_error(CLI_RUNTIME, "no worker could be started: %s", strerror(error));
}

/* Its wait status. */
static int finish(tune_crew *w) {
  int status = 0;
  close(w->to);
  close(w->from);
  while (waitpid(w->pid, &status, 0) < 0 && errno == EINTR) {}
  w->pid = 0;
  return status;
}

void tune_crew_end(tune_crew *w) {
  if (!w) return;
  if (w->pid) finish(w);
  mem_free(w);
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

static void follow(tune_crew *w, tune_point *p, char *line) {
  static const struct {
    const char *word;
    tune_state state;
  } ends[] = {{"unsupported", TUNE_UNSUPPORTED}, {"far", TUNE_FAR}, {"wrong", TUNE_WRONG},
              {"slow", TUNE_SLOW}, {"time", TUNE_TIMED}};
  char *rest = line, *what = strsep(&rest, "\t"), *name = strsep(&rest, "\t");
  if (!name || !rest) return;
  if (strcmp(what, "untuned") == 0) snprintf(p->untuned, sizeof p->untuned, "%s", name);
  if (strcmp(what, "done") == 0) w->done = 1;
  int i = find(p, name);
  w->current = strcmp(what, "begin") == 0 || strcmp(what, "sample") == 0 ? i : -1;
  for (size_t e = 0; e < sizeof ends / sizeof ends[0]; e++) {
    if (i >= 0 && strcmp(what, ends[e].word) == 0) settle(&p->list[i], ends[e].state, rest);
  }
}

/* Whole lines among what was read; 0 at the end of the pipe. */
static int take(tune_crew *w, tune_point *p) {
  ssize_t got = read(w->from, w->line + w->length, sizeof w->line - w->length);
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
static double deadline_of(const tune_crew *w) {
  double limit = w->args->limit;
  return clock_now() + (w->current < 0 ? fmax(OPEN_SECONDS, limit) : limit);
}

/* Until the problem is done, or the worker gone; one whose step does not end is killed. */
static void wait_for(tune_crew *w, tune_point *p) {
  double deadline = deadline_of(w);
  while (!w->done && !w->late) {
    double left = deadline - clock_now();
    struct pollfd one = {.fd = w->from, .events = POLLIN};
    int ready = left > 0 ? poll(&one, 1, (int)fmin(1000, ceil(1e3 * left))) : 0;
    if (ready > 0) {
      if (!take(w, p)) return;
      deadline = deadline_of(w);
    } else if (left <= 0) {
      w->late = 1;
      kill(w->pid, SIGKILL);
    }
  }
}

/* A worker that is gone reads nothing: that shows when its words are waited for. */
static void send_order(const tune_crew *w, const tune_point *p) {
  char *order = tune_order(p);
  size_t left = strlen(order), sent = 0;
  while (left > 0) {
    ssize_t put = write(w->to, order + sent, left);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) break;
    sent += (size_t)put;
    left -= (size_t)put;
  }
  mem_free(order);
}

/* Says how the worker ended. */
static void describe_end(const tune_crew *w, int status, char *text, size_t bytes) {
  if (w->late) {
    snprintf(text, bytes, "no end within %g s", w->args->limit);
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
 * again, but for verdicts.  And another row takes the place of the one at fault. */
static void reopen(tune_point *p) {
  for (int i = 0; i < p->count; i++) {
    tune_state state = p->list[i].state;
    if (state == TUNE_TIMED || state == TUNE_SLOW || state == TUNE_FAR) {
      p->list[i].state = TUNE_OPEN;
    }
  }
}

int tune_supervise(tune_crew *w, tune_point *p) {
  while (any_open(p)) {
    char why[200];
    int code = w->pid ? CLI_OK : start(w);
    if (code != CLI_OK) return code;
    w->current = -1;
    w->done = 0;
    send_order(w, p);
    wait_for(w, p);
    if (w->done) {
      w->served++;
      return CLI_OK;
    }
    int served = w->served, status = finish(w);
    describe_end(w, status, why, sizeof why);
    reopen(p);
    if (w->current >= 0) {
      candidate *c = &p->list[w->current];
      settle(c, TUNE_FAILED, why);
      cli_warn("%s: %s: it is left out", c->name, why);
    } else if (served == 0) {
      return cli_error(CLI_RUNTIME, "the measurement could not begin or end: %s", why);
    } /* else: a new worker tries once */
  }
  return CLI_OK;
}
