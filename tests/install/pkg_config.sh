# The same programs by pkg-config, and the tree moved to another place first.
. "$(dirname "$0")/common.sh"
need pkg-config
rm -rf "$WORK"
mkdir -p "$WORK"
cp -a "$PREFIX" "$WORK/moved"
PKG_CONFIG_PATH="$WORK/moved${libdir#"$PREFIX"}/pkgconfig"
export PKG_CONFIG_PATH
version=$(pkg-config --modversion tileglu)
[ "$version" = "$VERSION" ] || die "pkg-config says version $version instead of $VERSION"
moved="$WORK/moved${libdir#"$PREFIX"}"

# shellcheck disable=SC2046,SC2086
"$CC" -std=c11 $flags $model "$here/program.c" -o "$WORK/c" \
  $(pkg-config --cflags --libs tileglu)
LD_LIBRARY_PATH="$moved" "$WORK/c"

# shellcheck disable=SC2046,SC2086
"$CC" -std=c11 $flags $model "$here/program.c" -o "$WORK/c_static" \
  $(pkg-config --cflags tileglu) "$moved/libtileglu.a" \
  $(pkg-config --static --libs-only-l tileglu | sed 's/-ltileglu//')
"$WORK/c_static"

need "$CXX"
# shellcheck disable=SC2046,SC2086
"$CXX" -std=c++11 $flags $model "$here/program.cpp" -o "$WORK/cpp" \
  $(pkg-config --cflags --libs tileglu)
LD_LIBRARY_PATH="$moved" "$WORK/cpp"
