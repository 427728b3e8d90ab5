#!/bin/sh
# Installs what this tree needs and the machine lacks, saying so first.
#   tools/setup.sh build    what the library and the command need
#   tools/setup.sh test     and what the tests need
# Each need is probed by use (a command that runs, a header that compiles), so that
# a copy installed by other means counts.  With nothing missing it asks nobody for
# anything and needs no network.
set -eu
cd "$(dirname "$0")/.."
. tools/common.sh

purpose=${1:-build}
missing=

need() { # need PACKAGE probe...: notes the package if the probe fails
  package=$1
  shift
  "$@" > /dev/null 2>&1 || missing="$missing $package"
}
compiles() { # compiles HEADER LIBRARY
  dir=$(mktemp -d)
  printf '#include <stddef.h>\n#include <stdint.h>\n#include <stdarg.h>\n#include <setjmp.h>\n#include <%s>\nint main(void) { return 0; }\n' "$1" > "$dir/probe.c"
  result=0
  cc "$dir/probe.c" -o "$dir/probe" "-l$2" || result=1
  rm -r "$dir"
  return $result
}
cmake_is_new_enough() {
  cmake --version | python3 -c 'import re, sys
found = re.search(r"(\d+)\.(\d+)", sys.stdin.readline())
sys.exit(tuple(map(int, found.groups())) < (3, 22))'
}
has_python_headers() {
  python3 -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))'
}
python_makes_environments() { python3 -c 'import ensurepip, venv'; }

have python3 || die "python3 is needed to run this script; install it first"
python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
  die "Python 3.10 or newer is needed; $(python3 --version) was found"

if ! have cc; then
  missing="$missing gcc libc6-dev"
fi
need gcc gcc --version # which the presets name
need cmake cmake_is_new_enough
need ninja-build ninja --version
need pkg-config pkg-config --version
if have cc; then
  need libjansson-dev compiles jansson.h jansson
  need libpthreadpool-dev compiles pthreadpool.h pthreadpool
else
  missing="$missing libjansson-dev libpthreadpool-dev"
fi
need python3-venv python_makes_environments
if [ "$purpose" = test ]; then
  need g++ g++ --version
  need python3-dev has_python_headers
  if have cc; then
    need libcmocka-dev compiles cmocka.h cmocka
  else
    missing="$missing libcmocka-dev"
  fi
  # Runs the choice of kernels as older CPUs would see it.
  [ "$(uname -m)" != x86_64 ] || need qemu-user qemu-x86_64 --version
fi

[ -n "$missing" ] || exit 0

say "Missing system packages:$missing"
have apt-get || die "no apt-get here: install the packages above (or their like) by hand and run this again"
if [ "$(id -u)" -ne 0 ] && ! have sudo; then
  die "installing them needs root, and there is no sudo. As root: apt-get update && apt-get install$missing"
fi
say "Installing them with apt-get (a minute, tens of MB)"
export DEBIAN_FRONTEND=noninteractive
as_root apt-get update -q > /dev/null ||
  die "apt-get update failed. As root: apt-get update && apt-get install$missing"
# shellcheck disable=SC2086  # one word per package
as_root env DEBIAN_FRONTEND=noninteractive \
  apt-get install -y -q --no-install-recommends $missing > /dev/null ||
  die "apt-get install failed. As root: apt-get update && apt-get install$missing"
cmake_is_new_enough || die "CMake 3.22 or newer is needed; $(cmake --version | head -n 1) was found"
say "Installed:$missing"
