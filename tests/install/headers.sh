# Each public header compiles alone, as C11 and as C++11, without a warning.
. "$(dirname "$0")/common.sh"
mkdir -p "$WORK"
warnings="-Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wundef -Werror"
count=0
for header in "$PREFIX"/include/tileglu/*.h; do
  name=tileglu/$(basename "$header")
  printf '#include <%s>\n#include <%s>\ntypedef int not_empty;\n' "$name" "$name" \
    > "$WORK/alone.c"
  # shellcheck disable=SC2086
  "$CC" -std=c11 -pedantic $warnings -I"$PREFIX/include" -fsyntax-only "$WORK/alone.c"
  count=$((count + 1))
done
[ "$count" -gt 0 ] || die "no header is installed"
need "$CXX"
for header in "$PREFIX"/include/tileglu/*.h; do
  printf '#include <tileglu/%s>\n' "$(basename "$header")" > "$WORK/alone.cpp"
  "$CXX" -std=c++11 -pedantic -Wall -Wextra -Werror -I"$PREFIX/include" -fsyntax-only \
    "$WORK/alone.cpp"
done
echo "$count headers"
