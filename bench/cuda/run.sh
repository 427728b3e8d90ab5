#!/bin/sh
# run.sh FOLDER OUT.csv PARTS [options of tileglu bench --device cuda]
#
# All parts of a measurement, one after the other, on this machine's GPU: with PyTorch where
# python3 has it (columns eager_*), else without.  FOLDER holds what the target
# bench_cuda_folder made: tileglu and libtileglu_bench_cuda.so.  OUT.csv is appended to;
# shapes that it has already are left out, so that a run that was cut goes on.
set -eu

if [ $# -lt 3 ]; then
  sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
folder=$1 out=$2 parts=$3
shift 3
here=$(cd "$(dirname "$0")" && pwd)

# The newest libcublas of the nvidia packages that python3 sees; nothing if there is none.
find_cublas() {
  python3 - <<'PYTHON'
import glob, sys
found = [f for p in sys.path for f in glob.glob((p or ".") + "/nvidia/*/lib/libcublas.so.1?")]
print(sorted(found)[-1] if found else "")
PYTHON
}

if python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2> /dev/null; then
  bench() { python3 "$here/with_torch.py" --library "$folder/libtileglu_bench_cuda.so" "$@"; }
else
  echo "run.sh: python3 has no torch with CUDA: no eager figures" >&2
  cublas=$(find_cublas)
  bench() { "$folder/tileglu" bench --device cuda ${cublas:+--cublas "$cublas"} "$@"; }
fi

worst=0
part=1
while [ "$part" -le "$parts" ]; do
  echo "run.sh: part $part of $parts" >&2
  code=0
  bench --out "$out" --resume --part "$part/$parts" "$@" || code=$?
  [ "$code" -le "$worst" ] || worst=$code
  [ "$code" -lt 2 ] || break
  part=$((part + 1))
done
exit "$worst"
