#!/bin/sh
# Compares the ABI of the installed libraries with that of the release before, by abidiff: what programs use by the installed headers.
# Where the soname is another one, incompatible changes are allowed, and listed; where it is the same, they fail.
# `sh tests/run.sh --long abi` runs it.
#
#   sh tests/package/abi.sh [COMMIT]     default: the newest tag vX.Y.Z before HEAD, or else $before_tags
#
# Without CUDA. Builds in build/abi/, and keeps there what it has read of a release. Prints `failed: NAME` for each failure and
# ends with `N passed, M failed, K skipped`.
set -u

# The last commit of version 0.1.0, which was not released and has no tag.
before_tags=50da297f0e6b

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
. "$root/examples/packaging/packages.sh"
. "$root/tests/suite.sh"
case "${1:-}" in -h | --help) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
if ! git -C "$root" rev-parse --verify -q HEAD >"$work/head" 2>&1; then
  printf 'skipped: 1 the sources are not a git repository\n0 passed, 0 failed, 1 skipped\n'
  exit 0
fi
install_packages abigail-tools
before=${1:-$(git -C "$root" describe --tags --abbrev=0 --match 'v[0-9]*' HEAD^ 2>/dev/null || echo "$before_tags")}
before=$(git -C "$root" rev-parse --short=12 "$before^{commit}") || die "there is no commit $before"

# read_abi COMMIT: builds the commit without optimisation and writes build/abi/COMMIT/NAME.abi for each library NAME.
read_abi() {
  folder=$build/abi/$1
  [ ! -f "$folder/complete" ] || return 0
  rm -rf "$folder"
  mkdir -p "$folder/sources"
  git -C "$root" archive "$1" | tar -C "$folder/sources" -xmf -
  compile meson setup "$folder/objects" "$folder/sources" --buildtype=plain -Ddebug=true -Doptimization=0 --prefix=/usr --libdir=lib --wrap-mode=nodownload \
    -Dcuda=disabled -Dexamples=disabled
  judge "$1 is configured" succeeds
  compile ninja -C "$folder/objects"
  judge "$1 is compiled" succeeds
  compile env DESTDIR="$folder/installed" meson install -C "$folder/objects" --no-rebuild
  judge "$1 is installed" succeeds
  for library in "$folder"/installed/usr/lib/libmpigrad*.so; do
    name=$(basename "$library" .so)
    readelf -d "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p' >"$folder/$name.soname"
    # abidw cannot tell which functions are declared in an installed header. Here these are the functions whose names are words of one.
    # Of functions that are compiled in headers (weak symbols) a program has copies of its own.
    nm --dynamic --defined-only "$library" | awk '$2 ~ /^[BDRT]$/ { print $3 }' | python3 -c '
import re, subprocess, sys
from pathlib import Path
symbols = sys.stdin.read().split()
words = set()
for path in Path(sys.argv[1]).rglob("*"):
    if path.suffix in (".h", ".cuh"):
        words |= set(re.findall(r"\w+", path.read_text()))
names = subprocess.run(["c++filt", "-p"], input="\n".join(symbols), capture_output=True, text=True, check=True).stdout.split("\n")
print("[abi_whitelist]")
for symbol, name in zip(symbols, names):
    while name != (shorter := re.sub(r"<[^<>]*>|\[abi:\w+\]", "", name)):
        name = shorter
    if name.startswith("mpigrad::") and set(re.findall(r"\w+", name)) <= words | {"anonymous", "namespace"}:
        print(symbol)
' "$folder/installed/usr/include" >"$folder/$name.symbols"
    compile abidw --headers-dir "$folder/installed/usr/include" --drop-private-types --kmi-whitelist "$folder/$name.symbols" --no-corpus-path \
      --out-file "$folder/$name.abi" "$library"
    judge "$1: the ABI of $name is read" succeeds
  done
  [ "$failed" -gt 0 ] || { rm -rf "$folder/objects" "$folder/sources" && : >"$folder/complete"; }
}

after=$(git -C "$root" rev-parse --short=12 HEAD)
read_abi "$before"
read_abi "$after"
for abi in "$build/abi/$before"/*.abi; do
  name=$(basename "$abi" .abi)
  old=$(cat "$build/abi/$before/$name.soname") new=$(cat "$build/abi/$after/$name.soname")
  # New functions are compatible and not listed. Bits of the status: 1 and 2 are errors; 4 is a change that may break programs, 8 one that
  # does.
  compile abidiff --no-unreferenced-symbols --no-added-syms "$abi" "$build/abi/$after/$name.abi"
  judge "$name: abidiff" test $((status & 3)) -eq 0
  printf '%s: %s of %s, %s of %s\n' "$name" "$old" "$before" "$new" "$after"
  sed 's/^/  /' "$work/out"
  [ "$old" != "$new" ] || judge "$name: programs run without compiling them again, as the same soname says" test "$status" -eq 0
done
summary
