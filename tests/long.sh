#!/bin/sh
# Runs one long test by itself, for at most 60 minutes (those for Arm: 120), and writes its result to tests/long.md:
#
#   sh tests/run.sh --long          lists them, with date, commit, processor, minutes and result of each last run
#   sh tests/run.sh --long NAME     runs one
#
# Ends with `N passed, M failed, K skipped`. A test that reaches the limit counts as failed.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
. "$root/examples/packaging/packages.sh"
page=$root/tests/long.md

# NAME | selection in meson's list, in `unit` by names, or a script | what it shows
tests='
comparison|unit comparison:*|30,000 new random windows, pools and norms against plain loops
bfloat16|unit exact convolutions*|4,000 random convolutions in float32 and bfloat16, exact in all passes
adjoint|unit adjoint fuzz*|200,000 random programs of communication: values, gradients, second derivatives
adjoint_mpi|meson mpi_adjoint -n 4|30 random programs of each kind on four processes
networks|unit CosmoFlow*,U-Net on*|12 steps of CosmoFlow on every grid, and the U-Net on whole volumes
windows|unit windows:*,a flipped bit*|all splits of windows, and each flipped bit of a checkpoint
ended|meson ended|a training whose ranks are killed 100 times
elastic|meson elastic|a job that loses ranks, nodes and its supervisor 100 times
hosts|meson hosts|restored links, and the ends of 50 jobs on busy machines
two_nodes|comm/process/two_nodes.sh|8 ranks on two nodes, over a link that loses packets: the bits of one node
exit_mpi|meson exit_mpi|an MPI_Finalize that never returns
gpu_bundle|meson gpu_bundle_test|a real bundle for a GPU machine
gpu_rehearsal|meson gpu_rehearsal|every step on a GPU machine, each interrupted once
site|meson site|the whole site, checked in a browser
compilers|compilers.sh|the installed ones of GCC 12 to 14 and Clang 14 to 19
fuzz|fuzz.sh|each reader of files for 20 s, with sanitizers
address_framework|sanitizers.sh address tests/framework|addresses, leaks, undefined behaviour: tests of framework
address_ops|sanitizers.sh address tests/ops|the same: tests of ops
address_comm|sanitizers.sh address tests/comm|the same: tests of comm
address_models|sanitizers.sh address tests/models|the same: tests of models
address_examples|sanitizers.sh address tests/examples|the same: tests of examples
address_c|sanitizers.sh c|the same: the programs in C
thread|sanitizers.sh thread|races and deadlocks between threads
arm|arm.sh|library, lessons and `unit` for 64-bit Arm under qemu-user
arm_packages|arm.sh packages|the same with MPI, HDF5, oneDNN, trainers from packages for arm64
offline|package/packages.sh|build, installation and self-test without network by a user without rights
debian|package/images.sh debian|packages for Debian, made and installed in clean systems
apptainer|package/images.sh apptainer|an image that Apptainer builds, also with another MPI
recipes|package/recipes.sh|EasyBuild and rattler-build check the recipes
abi|package/abi.sh|the ABI next to that of the release before
reproducible|package/reproducible.sh|two builds in different folders have the same bytes
'

row_of() { printf '%s' "$tests" | grep "^$1|"; }
# last_run NAME: the last cells of the test's row in the page.
last_run() { sed -n "s/^| $1 | .* | \(.* | .* | .* | .* | .*\) |\$/\1/p" "$page" 2>/dev/null; }

write_page() {
  {
    printf '# Long tests\n\n`sh tests/run.sh --long NAME` runs one and writes its row.\n\n'
    printf '| name | what it shows | date | commit | processor | minutes | result |\n|---|---|---|---|---|--:|---|\n'
    printf '%s' "$tests" | while IFS='|' read -r name what shows; do
      [ -n "$name" ] || continue
      cells=$(last_run "$name")
      if [ "$name" = "${1:-}" ]; then cells=$2; fi
      printf '| %s | %s | %s |\n' "$name" "$shows" "${cells:- |  |  |  | not run}"
    done
  } >"$page.new" && mv "$page.new" "$page"
}

if [ "$#" -eq 0 ]; then
  write_page
  cat "$page"
  exit 0
fi
[ "$#" -eq 1 ] && [ -n "$(row_of "$1")" ] || die "--long takes one name of tests/long.md, got $*"
name=$1
what=$(row_of "$name" | cut -d '|' -f 2)
commit=$(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo unknown)
git -C "$root" diff --quiet HEAD -- . ':!tests/long.md' ':!tests/bench/results' 2>/dev/null || commit="$commit and changes"
choose_launcher
. "$root/tests/watch.sh"
most_seconds=3600
case $name in arm*) most_seconds=7200 ;; esac
MPIGRAD_TEST_ALL=1 MPIGRAD_BUILD=$build PYTHONUNBUFFERED=1
export MPIGRAD_TEST_ALL MPIGRAD_BUILD PYTHONUNBUFFERED
began=$(date +%s)
case $what in
  unit\ *) run_limited 1860 "$build/tests/unit" -tc="${what#unit }" ;;
  meson\ *)
    rm -f "$build/meson-logs/testlog.json"
    # shellcheck disable=SC2016
    run_limited 3600 sh -c 'meson test -C "$1" --no-rebuild "$2"; exec python3 "$3" "$1"' sh "$build" "${what#meson }" "$root/tests/summary.py"
    ;;
  *)
    # shellcheck disable=SC2086  # a script and its arguments
    set -- $what
    script=$1
    shift
    if [ "$#" -eq 2 ]; then MPIGRAD_SANITIZED_FILES="*$2/*" && export MPIGRAD_SANITIZED_FILES; fi
    run_limited 3600 sh "$root/tests/$script" ${1:+"$1"}
    ;;
esac
minutes=$((($(date +%s) - began + 30) / 60))
cat "$output"
line=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$output" | tail -n 1)
if [ -z "$line" ] || { [ "$status" -ne 0 ] && [ "$(printf '%s' "$line" | cut -d ' ' -f 3)" = 0 ]; }; then
  printf 'failed: %s: ended with status %s\n' "$name" "$status"
  line='0 passed, 1 failed, 0 skipped'
fi
write_page "$name" "$(date +%F) | $commit | $(processor | tr '|\n' '/ ') | $minutes | $line"
printf '%s\n' "$line"
# shellcheck disable=SC2086  # split into words
set -- $line
[ "$1" -gt 0 ] && [ "$3" -eq 0 ]
