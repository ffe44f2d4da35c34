#!/bin/sh
# Builds the libraries of a commit twice, in folders, time zones, languages and orders that differ, and compares the bytes.
# `sh tests/run.sh --long reproducible` runs it.
#
#   sh tests/package/reproducible.sh [TARGET...]     default: libmpigrad.so, and libmpigrad_trainer.so where it can be built
#
# Without CUDA: nvcc names kernels after their folder. Builds in build/reproducible/. Prints `failed: NAME` for each failure and ends
# with `N passed, M failed, K skipped`.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
. "$root/examples/packaging/packages.sh"
. "$root/tests/suite.sh"
case "${1:-}" in -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
if ! git -C "$root" rev-parse --verify -q HEAD >"$work/head" 2>&1; then
  printf 'skipped: 1 the sources are not a git repository\n0 passed, 0 failed, 1 skipped\n'
  exit 0
fi
folder=$build/reproducible
rm -rf "$folder"
# The build folder is inside the sources, and next to them in a deeper folder.
one=$folder/one/sources/build two=$folder/another/place/objects
for sources in "$folder/one/sources" "$folder/another/place/mpigrad"; do
  mkdir -p "$sources"
  git -C "$root" archive HEAD | tar -C "$sources" -xmf -
done
options='--buildtype=release --wrap-mode=nodownload -Dcuda=disabled -Dexamples=disabled'
# shellcheck disable=SC2086  # several words
compile env TZ=Asia/Tokyo LC_ALL=C meson setup "$one" "$folder/one/sources" $options
judge 'one build is configured' succeeds
# shellcheck disable=SC2086
(umask 077 && compile env TZ=America/New_York LC_ALL=C.UTF-8 meson setup "$two" "$folder/another/place/mpigrad" $options && exit "$status")
status=$?
judge 'the other build is configured' succeeds
if [ "$#" -eq 0 ]; then
  # shellcheck disable=SC2046  # several names
  set -- $(ninja -C "$one" -t targets all | sed -n 's/^\([^ ]*libmpigrad[a-z_]*\.so\.[0-9]*\.[0-9]*\.[0-9]*\): .*LINKER.*/\1/p')
fi
compile env TZ=Asia/Tokyo LC_ALL=C ninja -C "$one" "$@"
judge 'one build' succeeds
(umask 077 && compile env TZ=America/New_York LC_ALL=C.UTF-8 ninja -j1 -C "$two" "$@" && exit "$status")
status=$?
judge 'the other build, one file at a time' succeeds
for target; do
  run cmp "$one/$target" "$two/$target"
  judge "$target has the same bytes" succeeds
  run grep -c -a -F "$folder" "$one/$target"
  judge "$target names no folder of the build" test "$status" -eq 1
done
# What differs, by object.
if [ "$failed" -gt 0 ]; then
  (cd "$one" && find . -name '*.o') | sort | while IFS= read -r object; do
    [ ! -f "$two/$object" ] || cmp -s "$one/$object" "$two/$object" || printf '  differs: %s\n' "$object"
  done | head -n 40
fi
summary
