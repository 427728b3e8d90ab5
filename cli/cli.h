/* What every part of the command shares: exit codes, messages, the subcommands.
 * The command uses the public headers alone. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <tileglu/tileglu.h>

/* Exit codes, documented in every --help (CLI_EXIT_HELP). */
enum {
  CLI_OK       = 0,
  CLI_MISMATCH = 1, /* a result differs from the oracle, or nothing was compared  */
  CLI_USAGE    = 2, /* the command line breaks a rule                             */
  CLI_INPUT    = 3, /* a file or what it holds                                    */
  CLI_RUNTIME  = 4  /* memory, device, backend                                    */
};

#define CLI_EXIT_HELP                                                             \
  "Exit status: 0 all is well; 1 a result differs from the float64 oracle, or "   \
  "nothing was compared; 2 wrong use; 3 a file cannot be read or holds what "     \
  "cannot be used; 4 memory, device or backend failed.  Messages go to standard " \
  "error; with --json standard output holds one JSON document or nothing."

/* Prints "tileglu SUBCOMMAND: message" on stderr and returns code, so that a check
 * reads  if (bad) return cli_error(CLI_INPUT, "...");  */
__attribute__((format(printf, 2, 3)))
int cli_error(int code, const char *format, ...);
__attribute__((format(printf, 1, 2)))
void cli_warn(const char *format, ...);

/* Reports the library's last error with what was being done: "what: message". */
__attribute__((format(printf, 2, 3)))
int cli_library_error(int code, const char *format, ...);

/* The same for a file: "what" + "path: message", the path once where the message begins
 * with it.  what is "" or ends in ": ". */
int cli_file_error(int code, const char *what, const char *path);

/* Name used in messages: "tileglu run". */
void cli_set_name(const char *name);
const char *cli_name(void);

/* One subcommand: argv[0] is its full name.  Returns an exit code. */
int cmd_info(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_verify(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_explain(int argc, char **argv);
int cmd_tune(int argc, char **argv);

#endif /* CLI_CLI_H */
