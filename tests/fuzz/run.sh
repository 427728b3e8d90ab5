#!/bin/sh
# Fuzzes each target for a while with clang's libFuzzer, ASan and UBSan.
#   run.sh SECONDS [TARGET...]
# Environment: SEED (default: random, printed), WORK (default: a temporary folder; it
# keeps the grown corpus), CLANG (default: clang).  Exit 77: no clang with libFuzzer.
set -eu
seconds=${1:?seconds per target}
shift
here=$(cd "$(dirname "$0")" && pwd)
src=$here/../../src
clang=${CLANG:-clang}
seed=${SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
if [ -n "${WORK:-}" ]; then
  work=$WORK
  mkdir -p "$work"
else
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
fi

flags="-std=c11 -D_GNU_SOURCE -g -O1 -fno-omit-frame-pointer"
flags="$flags -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all"
if ! printf '%s\n' 'int LLVMFuzzerTestOneInput(const char *d, long n) { return d == 0 && n; }' |
    "$clang" -fsanitize=fuzzer,address,undefined -x c - -o "$work/probe" 2>/dev/null; then
  echo "skipped: $clang cannot build libFuzzer targets"
  exit 77
fi
jansson=$(pkg-config --cflags --libs jansson 2>/dev/null || echo -ljansson)

for target in ${*:-safetensors index config names cache}; do
  # shellcheck disable=SC2086
  "$clang" $flags -I"$src" -I"$src/../include" "$here/fuzz_$target.c" "$here/fuzz.c" \
    "$src"/model/*.c "$src/status.c" "$src/names.c" "$src/problem.c" \
    "$src/plan/cache.c" $jansson -lm \
    -o "$work/fuzz_$target"
  mkdir -p "$work/corpus_$target"
  dict=
  if [ -f "$here/dict/$target.dict" ]; then dict=-dict=$here/dict/$target.dict; fi
  log=$work/$target.log
  echo "fuzz $target: seed $seed, $seconds s"
  # shellcheck disable=SC2086
  if ! "$work/fuzz_$target" -seed="$seed" -max_total_time="$seconds" -max_len=4096 \
      -rss_limit_mb=1024 -timeout=10 -print_final_stats=1 -artifact_prefix="$work/" $dict \
      "$work/corpus_$target" "$here/corpus/$target" >"$log" 2>&1; then
    tail -40 "$log"
    echo "fuzz $target: FAILED (seed $seed)"
    trap - EXIT
    exit 1
  fi
  grep -E 'number_of_executed_units|peak_rss_mb|new_units_added' "$log" |
    sed "s/^stat::/fuzz $target: /"
done
