/* Runs cases through the public API and judges them. */
#ifndef TGLU_TEST_RUNNER_H
#define TGLU_TEST_RUNNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tileglu/tileglu.h>

#include "problem.h"
#include "report.h"

enum { TT_WHY_BYTES = 1024, TT_EXIT_SKIPPED = 77 };

/* True in a build with the sanitizer named. */
bool tt_under_asan(void);
bool tt_under_tsan(void);

/* The CPU ISA levels by name, in ascending order, NULL-terminated. */
extern const char *const tt_isa_levels[];

/* A CPU context at most at this ISA level (NULL: the best).  NULL if CPU or build
 * lack the level, never for one that tglu_cpu_isa() says is there. */
tglu_context *tt_cpu_context(const char *isa, int32_t threads, bool batch_invariant);

/* For main: the ISA level named by argv[1]; prints the reason and ends with
 * TT_EXIT_SKIPPED if it is not to be had, with 2 if the name is wrong. */
const char *tt_isa_from_arguments(int argc, char **argv);

/* One object of any kind; the others are NULL. */
typedef struct tt_object {
  tglu_glu *glu;
  tglu_mlp *mlp;
  tglu_linear *linear;
} tt_object;

tglu_status tt_object_create(tglu_context *context, const tt_case *c,
                             const tt_pointers *p, tt_object *object);
void tt_object_destroy(tt_object *object);
tglu_status tt_object_run_bare(const tt_object *object, const tglu_run_args *args);
tglu_status tt_object_workspace(const tt_object *object, int64_t tokens, size_t *bytes);
/* args as tt_fill_args sets them; a workspace, guarded and off by an odd number of
 * bytes, is added and checked.  On failure `why` holds the reason. */
bool tt_object_run(const tt_object *object, const tglu_run_args *args, char *why,
                   size_t why_bytes);

/* Object, run, destroy: on operands that exist already. */
bool tt_run(tglu_context *context, const tt_case *c, const tt_operands *o, char *why,
            size_t why_bytes);

/* The whole of it: operands, run, sentinels, comparison with the oracle.  `report`
 * may be NULL. */
bool tt_check_case(tglu_context *context, const tt_case *c, tt_report *report, char *why,
                   size_t why_bytes);

/* What a crash handler prints, so that a fault names its case.  The text is
 * copied, for this thread; NULL ends it. */
void tt_announce(const char *text);

/* Runs body in a child process with a limit in seconds.  True if it returned 0;
 * else why says how it ended. */
bool tt_in_child(int (*body)(void *user), void *user, unsigned seconds, char *why,
                 size_t why_bytes);

#endif /* TGLU_TEST_RUNNER_H */
