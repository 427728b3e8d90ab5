#!/bin/sh
# make python-folder: the Python package with the GPU kernels, and pytest, in
# build/python-gpu, for a machine that has a GPU and torch but no compiler and no network:
# copy the tree's python/ and build/python-gpu there, then in the tree's root
#   PYTHONPATH=build/python-gpu python3 -m pytest python/tests/test_cuda.py
#   PYTHONPATH=build/python-gpu python3 python/bench/overhead.py --out results/h200/torch_overhead.csv
# One build serves every Python from 3.10 and every torch from 2.4 on.
#   TILEGLU_CUDA=OFF   leave the kernels out
set -eu
cd "$(dirname "$0")/.."
. tools/common.sh

sh tools/setup.sh build
build_preset gcc-release -DTILEGLU_PYTHON=ON -DTILEGLU_CUDA="${TILEGLU_CUDA:-ON}"
sh tools/venv.sh tools/requirements-python.txt "what the tests of the Python package need"
rm -rf build/python-gpu
mkdir -p build/python-gpu
cp -r build/gcc-release/python/tileglu build/python-gpu/
rm -rf build/python-gpu/tileglu/__pycache__
.venv/bin/python -m pip install --quiet --disable-pip-version-check --target build/python-gpu \
  "$(sed -n '/^pytest/p' tools/requirements-python.txt)"
du -sh build/python-gpu
