/* The bench as a shared library for a driver in another language. */
#include <argp.h>

#include "../cli.h"
#include "bench_cuda.h"

/* argv as for "tileglu bench --device cuda"; hook may be NULL.  Returns the command's exit
 * code; wrong use and --help end the process. */
__attribute__((visibility("default")))
int tileglu_bench_cuda(int argc, char **argv, const bench_torch *hook);

int tileglu_bench_cuda(int argc, char **argv, const bench_torch *hook) {
  argp_err_exit_status = CLI_USAGE;
  cli_set_name("tileglu bench");
  return bench_cuda_main(argc, argv, hook);
}
