#!/bin/sh
# make python-folder: the Python package with the GPU kernels, and pytest, in
# build/python-gpu, for a machine that has a GPU and torch but no compiler and no network:
# copy the tree's python/ and build/python-gpu there, then in the tree's root
#   PYTHONPATH=build/python-gpu python3 -m pytest python/tests/test_cuda.py python/tests/test_patch_cuda.py
#   PYTHONPATH=build/python-gpu python3 python/bench/overhead.py --out results/h200/torch_overhead.csv
# One build serves every Python from 3.10 and every torch from 2.4 on.
#   TILEGLU_CUDA=OFF            leave the kernels out
#   TILEGLU_TRANSFORMERS=3.12   add what python/bench/models.py and the tests on a GPU need
#                               of transformers, for that Python (which must have numpy)
set -eu
cd "$(dirname "$0")/.."
. tools/common.sh

sh tools/setup.sh build
build_preset gcc-release -DTILEGLU_PYTHON=ON -DTILEGLU_CUDA="${TILEGLU_CUDA:-ON}"
sh tools/venv.sh tools/requirements-python.txt "what the tests of the Python package need"
folder=build/python-gpu
rm -rf "$folder"
mkdir -p "$folder"
cp -r build/gcc-release/python/tileglu "$folder/"
install_into() {
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --target "$folder" "$@" ||
    die "pip could not install $* into $folder"
}
install_into "$(sed -n '/^pytest/p' tools/requirements-python.txt)"
if [ -n "${TILEGLU_TRANSFORMERS:-}" ]; then
  say "Adding transformers for Python $TILEGLU_TRANSFORMERS"
  install_into --upgrade --only-binary=:all: --python-version "$TILEGLU_TRANSFORMERS" "transformers>=5,<6"
  (
    cd "$folder"
    # There already, with torch, or never imported.
    rm -rf numpy* fsspec* typing_extensions* hf_xet* pydantic* rich* typer* bin
    find transformers/models -mindepth 1 -maxdepth 1 -type d \
      ! -name auto ! -name llama ! -name qwen2 ! -name phi3 ! -name gemma3 -exec rm -rf {} +
  )
fi
find "$folder" -name __pycache__ -prune -exec rm -rf {} +
du -sh "$folder"
