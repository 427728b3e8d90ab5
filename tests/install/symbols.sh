# What the shared library offers and needs: exactly the symbols of symbols.txt, no CUDA
# symbol or library, at most 8 MB.
. "$(dirname "$0")/common.sh"
need nm
need readelf
[ -z "${SANITIZE:-}" ] || skip "a sanitizer adds symbols and libraries of its own"
library=$libdir/libtileglu.so
mkdir -p "$WORK"
nm -D --defined-only "$library" | awk '{ print $3 }' | LC_ALL=C sort > "$WORK/exported"
if [ -n "$model" ]; then
  LC_ALL=C sort "$here/symbols.txt" > "$WORK/expected"
else
  grep -v -e '^tglu_model_' -e '^tglu_tensor_' "$here/symbols.txt" | LC_ALL=C sort \
    > "$WORK/expected"
fi
diff "$WORK/expected" "$WORK/exported" ||
  die "exported symbols differ from symbols.txt (< missing, > new)"
if grep -v '^tglu_[a-z]' "$WORK/exported" || grep '^tglu__' "$WORK/exported"; then
  die "a private name is exported"
fi
if nm -D --undefined-only "$library" | grep -E ' (cu[A-Z]|cuda|nvrtc|cublas)'; then
  die "an undefined CUDA symbol"
fi
if readelf -d "$library" | grep -E 'NEEDED.*(libcuda|libcudart|libcublas|libstdc)'; then
  die "a library that it must not need"
fi
readelf -d "$library" | grep -q "SONAME.*\[libtileglu.so.${VERSION%.*}\]" ||
  die "the soname is not libtileglu.so.${VERSION%.*}"
bytes=$(wc -c < "$(readlink -f "$library")")
[ "$bytes" -le 8388608 ] || die "$bytes bytes are more than 8 MB"
echo "$(wc -l < "$WORK/exported") symbols, $bytes bytes"
