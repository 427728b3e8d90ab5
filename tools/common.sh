# Shell functions that the scripts of this folder share.  Source it after `cd` to
# the root of the tree.  POSIX sh.

say() { printf '==> %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }
have() { command -v "$1" > /dev/null 2>&1; }

# Jobs to run at once: one per CPU that this process may use.
jobs() { nproc 2> /dev/null || echo 1; }

# Runs a command as root: directly, or through sudo; fails where neither is possible.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif have sudo; then
    sudo "$@"
  else
    return 127
  fi
}

# Configures (quietly, unless it fails) and builds one preset.
#   build_preset PRESET [cmake options ...]
build_preset() {
  preset=$1
  shift
  say "Building preset $preset in build/$preset"
  mkdir -p build
  # A tree that was moved or copied takes a build folder along that names the old place.
  if [ -f "build/$preset/CMakeCache.txt" ] &&
    ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$(pwd -P)" "build/$preset/CMakeCache.txt"; then
    say "build/$preset was made for another folder: making it again"
    rm -rf "build/$preset"
  fi
  if ! cmake --preset "$preset" "$@" > "build/$preset.configure.log" 2>&1; then
    cat "build/$preset.configure.log" >&2
    die "configuring preset $preset failed"
  fi
  if ! cmake --build "build/$preset" --parallel "$(jobs)" > "build/$preset.build.log" 2>&1; then
    tail -n 60 "build/$preset.build.log" >&2
    die "building preset $preset failed (whole log: build/$preset.build.log)"
  fi
}

# Configure options for a user who wants to run, not to test: a first build leaves the
# tests out (they need cmocka), and without a GPU the GPU kernels, which take minutes to
# compile.  A build folder that is there keeps what it has.
run_options() {
  [ -f "build/$1/build.ninja" ] && return
  echo -DTILEGLU_TESTS=OFF
  nvidia-smi -L > /dev/null 2>&1 || echo -DTILEGLU_CUDA=OFF
}
