#!/bin/sh
# make gpu-check: builds with the GPU kernels, runs the tests that need a GPU, every row
# under compute-sanitizer, verify, and the bench (TILEGLU_BENCH_ARGS, default --rows chosen)
# of GLUs and MLPs into results/h200/glu_bf16.csv and mlp_bf16.csv.  Fails, saying why, where there is no driver or no GPU.
set -eu
cd "$(dirname "$0")/.."
. tools/common.sh

sh tools/setup.sh test
have nvidia-smi && nvidia-smi -L > /dev/null 2>&1 || die "no usable NVIDIA GPU: nvidia-smi does not list one"
have nvcc || [ -x /usr/local/cuda/bin/nvcc ] || die "nvcc is not there: the kernels cannot be compiled"
build_preset gcc-release -DTILEGLU_TESTS=ON -DTILEGLU_CUDA=ON
nvidia-smi -L
cmake --build build/gcc-release --target gpu_folder
build/gcc-release/gpu/gpu_glu --seconds 300 || die "gpu_glu ended with $?"
sh tools/gpu_sanitize.sh build/gcc-release/gpu
cmake --build build/gcc-release --target bench_cuda_folder
build/gcc-release/gpu/tileglu verify --device cuda --quick || die "verify ended with $?"
mkdir -p results/h200
sh bench/cuda/run.sh build/gcc-release/gpu results/h200/glu_bf16.csv 4 ${TILEGLU_BENCH_ARGS:---rows chosen}
exec sh bench/cuda/run.sh build/gcc-release/gpu results/h200/mlp_bf16.csv 4 --op mlp --suite mlp
