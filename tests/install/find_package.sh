# A C and a C++ project, out of tree, by find_package, shared and static.
. "$(dirname "$0")/common.sh"
need "$CXX"
rm -rf "$WORK"
"$CMAKE" -S "$here/consumer" -B "$WORK" -DCMAKE_PREFIX_PATH="$PREFIX" \
  -DCMAKE_C_COMPILER="$CC" -DCMAKE_CXX_COMPILER="$CXX" \
  -DCMAKE_C_FLAGS="$flags" -DCMAKE_CXX_FLAGS="$flags"
"$CMAKE" --build "$WORK"
for program in c_tileglu c_tileglu_static cpp_tileglu cpp_tileglu_static; do
  echo "$program"
  "$WORK/$program"
done
if readelf -d "$WORK/c_tileglu_static" | grep -q 'NEEDED.*tileglu'; then
  die "the static program needs the shared library"
fi
