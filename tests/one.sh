#!/bin/sh
# Runs one entry of the list in tests/meson.build, ends it when it hangs, and prints as its last line
# `N passed, M failed, K skipped`. Further arguments (meson test --test-args) go to the program.
#
#   sh tests/one.sh program COMMAND...            a program of many tests, which prints that line itself
#   sh tests/one.sh ranks P COMMAND...            one test on P ranks, which passes if all of them exit with 0
#   sh tests/one.sh emulated MODE program|ranks ...   the same on the GPU emulator: MPIGRAD_EMULATION=MODE
#
# With MPIGRAD_TEST_ALL the long tests run as well, and limits are longer. Exits with 77 if every test was skipped.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher

# Seconds without the end of a test after which the program counts as hung. Far above the time of any test on a loaded machine;
# the suites end their own tests earlier.
limit=360
if [ -n "${MPIGRAD_TEST_ALL:-}" ]; then limit=1860; fi
. "$root/tests/watch.sh"

emulated=
if [ "$1" = emulated ]; then
  MPIGRAD_EMULATION=$2
  export MPIGRAD_EMULATION
  emulated="sh $root/tests/emulated.sh"
  shift 2
fi
kind=$1
shift
name=$*
# shellcheck disable=SC2086  # commands of several words
case $kind in
  program)
    run_limited "$limit" $emulated "$@"
    cat "$output"
    line=$(tail -n 1 "$output" | grep -aE '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$')
    if [ -z "$line" ]; then
      printf 'failed: %s: ended with status %s before its summary\n0 passed, 1 failed, 0 skipped\n' "$name" "$status"
      exit 1
    fi
    set -- $line
    if [ "$3" -eq 0 ] && [ "$status" -ne 0 ]; then
      printf 'failed: %s: ended with status %s\n%d passed, 1 failed, %d skipped\n' "$name" "$status" "$1" "$5"
      exit 1
    fi
    [ "$3" -eq 0 ] || exit 1
    [ "$1" -gt 0 ] || exit 77
    ;;
  ranks)
    ranks=$1
    shift
    if run_limited "$limit" $emulated $MPIEXEC -n "$ranks" "$@"; then
      printf '1 passed, 0 failed, 0 skipped\n'
    else
      cat "$output"
      printf 'failed: %s on %s ranks: status %s\n0 passed, 1 failed, 0 skipped\n' "$(basename "$1")" "$ranks" "$status"
      exit 1
    fi
    ;;
  *) die "one.sh knows program, ranks and emulated, got $kind" ;;
esac
