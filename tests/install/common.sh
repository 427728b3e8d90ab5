# What the install tests share.  They are called with
#   PREFIX: the installed tree   WORK: a folder of their own   VERSION: the project's
#   CC CXX CMAKE: the tools      SANITIZE: the build's sanitizers or nothing
set -eu
here=$(cd "$(dirname "$0")" && pwd)
ulimit -c 0

die() { echo "FAIL: $*" >&2; exit 1; }
skip() { echo "SKIP: $*"; exit 77; }
need() { command -v "$1" > /dev/null 2>&1 || skip "no $1 here"; }

flags=${SANITIZE:+-fsanitize=$SANITIZE -fno-sanitize-recover=all}
libdir=$(dirname "$(find "$PREFIX" -name libtileglu.so | head -n 1)")
[ -f "$PREFIX/include/tileglu/model.h" ] && model=-DHAVE_MODEL || model=
# Leaks of the system's libraries are not this test's affair.
export ASAN_OPTIONS=detect_leaks=0
