/* tileglu tune: what its parts share.
 *
 * The command itself (cmd_tune.c) never launches a kernel.  It starts this program again as
 * a worker (cmd_tune_supervise.c) and gives it one problem after the other.  The worker
 * prepares, checks and times the candidates (cmd_tune_worker.c, on a GPU or the CPU:
 * cmd_tune_cuda.c, cmd_tune_cpu.c) and says on a pipe what it is about to do.  So when it
 * dies or hangs, the candidate at fault is known; it is left out, and another worker does
 * the rest. */
#ifndef CLI_CMD_TUNE_H
#define CLI_CMD_TUNE_H

#include "options.h"

enum { TUNE_CANDIDATES = 256, TUNE_ROUNDS = 1000, TUNE_PIPE = 3 };

typedef struct tune_args {
  place_args place;
  shape_args shape;
  int64_t rounds, gpu;   /* gpu: its ordinal; -1: not given                              */
  int64_t near;          /* so many rows, those predicted fastest, are measured; 0: all  */
  double settle_ms, sample_ms;
  double within;         /* after two rounds, rows slower than this times the best go    */
  double limit;          /* seconds that a step of one candidate may take                */
  int pdl, dry_run;
  const char *nvml;      /* NULL: the default; the driver is in place.options            */
  const char *worker;    /* not NULL: this is a worker, and whose                        */
} tune_args;

typedef enum tune_state {
  TUNE_OPEN,             /* not known yet                                                */
  TUNE_TIMED,
  TUNE_SLOW,             /* left out early; us is what was measured until then           */
  TUNE_UNSUPPORTED,      /* it cannot serve this problem                                 */
  TUNE_WRONG,            /* a wrong result                                               */
  TUNE_FAILED,           /* an error, a fault, or no end                                 */
  TUNE_FAR               /* not measured: others are predicted to be faster              */
} tune_state;

typedef struct candidate {
  char name[96];
  tune_state state;
  double us;             /* median of a call; NaN unless timed or slow                   */
  char why[256];         /* of what is wrong or failed                                   */
} candidate;

/* One problem: an operation at one number of tokens. */
typedef struct tune_point {
  size_t index;          /* in shape_args                                                */
  spec spec;
  int count;
  candidate list[TUNE_CANDIDATES];
  char untuned[96];      /* row by the cost model; "" unless known                       */
} tune_point;

/* ---- cmd_tune_cache.c ---- */
/* An exit code: refuses a cache that tglu_tune_record could not write, as far as that shows
 * without making or changing anything. */
int tune_check_cache(const char *path);

/* ---- cmd_tune_supervise.c ---- */
/* The worker in charge.  argv: the command's own. */
typedef struct tune_crew tune_crew;
tune_crew *tune_crew_new(const tune_args *args, int argc, char **argv);
void tune_crew_end(tune_crew *crew); /* accepts NULL */

/* Has the candidates measured.  CLI_OK, or CLI_RUNTIME where there is no worker that could
 * do anything (then the reason is said). */
int tune_supervise(tune_crew *crew, tune_point *p);

/* ---- cmd_tune_worker.c ---- */
/* What measures on one backend.  Each returns an exit code; other than CLI_OK means that
 * the process is of no more use. */
typedef struct tune_backend {
  /* *state is for the other calls. */
  int (*open)(const tune_args *args, void **state);
  /* Operands for a problem.  untuned gets the row that the library itself would take. */
  int (*begin)(void *state, const spec *s, char *untuned, size_t bytes);
  /* The time predicted of a candidate; INFINITY: none is.  NULL: it never is. */
  int (*predict)(void *state, const char *name, double *us);
  /* Makes candidate i ready; *supported := 0 where it cannot serve the problem. */
  int (*prepare)(void *state, int i, const char *name, int *supported);
  /* Runs it once on poisoned outputs; why is set to "" if the result is right. */
  int (*check)(void *state, int i, char *why, size_t bytes);
  /* Settles and samples, each for this share of the time that the options say: one call's
   * time. */
  int (*sample)(void *state, int i, double share, double *us);
  /* What begin and prepare made is freed. */
  void (*end)(void *state);
  void (*close)(void *state);
} tune_backend;

extern const tune_backend tune_cuda, tune_cpu;

/* The worker: reads orders from standard input to its end.  An exit code. */
int tune_work(tune_args *args);

/* What a worker is told: its --worker option; a line for a problem.  mem_free them. */
char *tune_contract(const tune_args *args);
char *tune_order(const tune_point *p);

/* ---- cmd_tune_cpu.c ---- */
/* What the operands of a problem (op glu or down) take on the CPU. */
double tune_cpu_bytes(const spec *s);

/* The index-th problem; op is what of it is meant. */
spec tune_spec(const tune_args *args, size_t index, op_kind op);

#endif /* CLI_CMD_TUNE_H */
