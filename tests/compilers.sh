#!/bin/sh
# Compiles everything (the library for CPUs, examples, tests) with other compilers, without warnings and without precompiled headers,
# which shows that every file includes what it uses; and runs a few tests of each build. Takes some minutes per compiler.
# `sh tests/run.sh --long compilers` runs it.
#
#   sh tests/compilers.sh [COMPILER...]   default: the installed ones of g++ 12 to 14 and clang++ 14 to 19
#
# Builds in build/compilers/. Prints `failed: NAME` for each failure and ends with `N passed, M failed, K skipped`.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
. "$root/examples/packaging/packages.sh"
case "${1:-}" in -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
[ "$#" -gt 0 ] || set -- g++-12 g++-13 g++-14 clang++-14 clang++-15 clang++-16 clang++-17 clang++-18 clang++-19
choose_launcher
. "$root/tests/suite.sh"

compilers=$build/compilers
for compiler; do
  if ! have "$compiler"; then
    skip "$compiler is not installed"
    continue
  fi
  folder=$compilers/$compiler
  say "$compiler"
  if [ ! -f "$folder/build.ninja" ]; then
    run env CXX="$compiler" meson setup "$folder" "$root" --buildtype=plain -Doptimization=1 -Dwerror=true -Db_pch=false -Dtests=true -Dcuda=disabled
    judge "$compiler: configured" succeeds
  fi
  compile ninja -C "$folder" -k 0
  if [ "$status" -ne 0 ]; then grep -E ' (error|warning): ' "$work/out" | sort | uniq -c | sort -rn | head -n 20 >&2; fi
  judge "$compiler: compiles without warnings" succeeds
  run "$folder/tests/unit" '-tc=tape*,ops*,collectives*,layers*,distributed*'
  judge "$compiler: tests of tape, ops, collectives and layers" succeeds
done

summary
