#!/bin/sh
# make gpu-check: builds with the GPU kernels and runs the tests that need a GPU
# (CTest label gpu).  Fails, saying why, where there is no driver or no GPU.
set -eu
cd "$(dirname "$0")/.."
. tools/common.sh

sh tools/setup.sh test
have nvidia-smi && nvidia-smi -L > /dev/null 2>&1 || die "no usable NVIDIA GPU: nvidia-smi does not list one"
have nvcc || [ -x /usr/local/cuda/bin/nvcc ] || die "nvcc is not there: the kernels cannot be compiled"
build_preset gcc-release -DTILEGLU_TESTS=ON -DTILEGLU_CUDA=ON
nvidia-smi -L
exec ctest --test-dir build/gcc-release -L gpu --output-on-failure --no-tests=error --timeout 600
