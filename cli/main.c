/* The command `tileglu`: finds the subcommand and hands it the rest. */
#include <argp.h>
#include <stdio.h>
#include <string.h>

#include "build_commit.h"
#include "cli.h"

static const struct {
  const char *name;
  int (*run)(int argc, char **argv);
} commands[] = {
  {"info", cmd_info},   {"run", cmd_run},         {"verify", cmd_verify},
  {"bench", cmd_bench}, {"explain", cmd_explain}, {"tune", cmd_tune},
};

static const char doc[] =
  "The gated MLP of large language models, with the activation fused into the "
  "matrix product: H = act(X Wg') * (X Wu'), O = H Wd'.\n"
  "\n"
  "Commands:\n"
  "  info      version, backends, CPU or GPU, and the kernel rows of this build\n"
  "  run       run the MLPs of a model file; time, speed-up and error per layer\n"
  "  verify    compare results with a float64 oracle, by shape, sweep or file\n"
  "  bench     time kernel rows against the unfused way, interleaved\n"
  "  explain   which kernel row a shape gets, and why\n"
  "  tune      measure the rows for a shape, keep the winners for later runs\n"
  "\n"
  "\"tileglu COMMAND --help\" describes each."
  "\v"
  "Examples:\n"
  "  tileglu info\n"
  "  tileglu run model.safetensors --tokens 16\n"
  "  tileglu verify --quick\n"
  "  tileglu bench --model Qwen2.5-0.5B --tokens 1,16,128\n"
  "\n" CLI_EXIT_HELP;

static void print_version(FILE *stream, struct argp_state *state) {
  (void)state;
  fprintf(stream, "tileglu %s (commit %s)\n", tglu_version_string(), CLI_BUILD_COMMIT);
}

static char *command_name;
static int command_index;

static error_t parse(int key, char *argument, struct argp_state *state) {
  switch (key) {
  case ARGP_KEY_ARG:
    command_name = argument;
    command_index = state->next - 1;
    state->next = state->argc; /* the rest is the subcommand's */
    return 0;
  case ARGP_KEY_NO_ARGS:
    argp_state_help(state, stderr, ARGP_HELP_STD_USAGE | ARGP_HELP_EXIT_ERR);
    return EINVAL;
  default:
    return ARGP_ERR_UNKNOWN;
  }
}

static int run_command(int argc, char **argv) {
  for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
    if (strcmp(commands[i].name, command_name) != 0) continue;
    char full[32];
    snprintf(full, sizeof full, "tileglu %s", command_name);
    cli_set_name(full);
    argv[command_index] = full;
    return commands[i].run(argc - command_index, argv + command_index);
  }
  return cli_error(CLI_USAGE, "no command \"%s\"; there are info, run, verify, bench, "
                   "explain and tune (\"tileglu --help\")", command_name);
}

int main(int argc, char **argv) {
  argp_program_version_hook = print_version;
  argp_err_exit_status = CLI_USAGE;
  const struct argp argp = {NULL, parse, "COMMAND [OPTION...]", doc, NULL, NULL, NULL};
  if (argc < 1) return CLI_USAGE;
  argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, NULL);
  int code = run_command(argc, argv);
  if (fflush(stdout) != 0 || ferror(stdout)) {
    if (code == CLI_OK) code = cli_error(CLI_RUNTIME, "standard output: write failed");
  }
  return code;
}
