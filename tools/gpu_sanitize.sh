#!/bin/sh
# gpu_sanitize.sh FOLDER [SECONDS a run]: every kernel row at small shapes under the four tools of
# compute-sanitizer, and a planted bug that each tool must still find.  FOLDER holds gpu_glu
# (target gpu_folder).  Nothing is suppressed; what an H200 said is in
# results/h200/README.md.
set -u
folder=${1:?usage: gpu_sanitize.sh FOLDER [SECONDS]} seconds=${2:-240}
sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
[ -x "$sanitizer" ] || { echo "compute-sanitizer is not there" >&2 && exit 2; }
passed=0 failed=0

verdict() { # name, wanted (0 or 1), got
  if [ "$2" = "$3" ]; then
    passed=$((passed + 1)) && echo "ok      $1"
  else
    failed=$((failed + 1)) && echo "FAILED  $1"
  fi
}

# Errors of a run: 0 none, 1 some, 2 the tool or the program broke.
run() { # tool, arguments of gpu_glu ...
  tool=$1 && shift
  out=$(timeout "$seconds" "$sanitizer" --tool "$tool" --error-exitcode 9 \
    "$folder/gpu_glu" --separate --seconds "$seconds" --hang 600 "$@" 2>&1)
  code=$?
  echo "$out" | grep -E "ERROR SUMMARY|RACECHECK SUMMARY|passed, |=========     at|Error:|Warning:" |
    sort | uniq -c | sort -rn | head -12 >&2
  case $code in
    0) # a row that was skipped is not clean
      if echo "$out" | tail -n 20 | grep -q ' passed, 0 failed, 0 skipped$'; then
        echo 0
      else
        echo 2
      fi ;;
    9) echo 1 ;;
    *) echo "$out" | tail -5 >&2 && echo 2 ;;
  esac
}

for tool in memcheck racecheck synccheck initcheck; do
  verdict "$tool: a planted bug is found" 1 "$(run $tool --row $tool planted)"
  verdict "$tool: every row at small shapes is clean" 0 "$(run $tool small down_small one_small)"
  verdict "$tool: every down row is clean with its ring used anew" 0 "$(run $tool down_around)"
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
