#!/bin/sh
# make bench: times the library against torch on the CPU (bench/cpu_vs_torch.py, about
# fifteen minutes) and writes results/cpu/<cpu>/.  Run it on a quiet machine.
#   TILEGLU_BENCH_ARGS   passed on, e.g. "--models SmolLM2-135M --tokens 1 16"
set -eu
cd "$(dirname "$0")/.."
. tools/common.sh

sh tools/setup.sh build
# shellcheck disable=SC2046  # none or some options
build_preset gcc-release $(run_options gcc-release)
sh tools/venv.sh tools/requirements-torch.txt \
  "torch 2.13.0 (about 200 MB where pip finds a CPU build, else the CUDA build of about 3 GB)"
# shellcheck disable=SC2086  # one word per argument
exec .venv/bin/python bench/cpu_vs_torch.py build/gcc-release ${TILEGLU_BENCH_ARGS:-}
