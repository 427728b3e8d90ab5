#!/bin/sh
# Makes the private Python environment .venv, once, and installs the packages of a
# requirements file into it, once per content of that file.
#   tools/venv.sh tools/requirements-demo.txt "what it downloads and how much"
set -eu
cd "$(dirname "$0")/.."
. tools/common.sh

requirements=$1
what=$2
stamp=.venv/installed-$(basename "$requirements" .txt)-$(cksum < "$requirements" | tr ' ' '-')
[ -e "$stamp" ] && .venv/bin/python -c '' 2> /dev/null && exit 0

if ! .venv/bin/python -c '' 2> /dev/null; then
  say "Making a private Python environment in .venv"
  rm -rf .venv
  python3 -m venv .venv
fi
say "Installing $what into .venv"
# Packages are named one by one with --no-deps where their own requirements are not
# needed here (see the comments in the requirements file).
plain=$(mktemp)
alone=$(mktemp)
trap 'rm -f "$plain" "$alone"' EXIT
sed -n '/# --no-deps/!p' "$requirements" > "$plain"
sed -n '/# --no-deps/p' "$requirements" > "$alone"
run_pip() {
  .venv/bin/python -m pip install --quiet --disable-pip-version-check "$@"
}
run_pip -r "$plain" || die "pip could not install the packages of $requirements"
if [ -s "$alone" ]; then
  run_pip --no-deps -r "$alone" || die "pip could not install the packages of $requirements"
fi
: > "$stamp"
