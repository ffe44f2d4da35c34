#!/bin/sh
# MPI libraries without MPI_THREAD_MULTIPLE: a library in front of MPI (thread_levels.cpp) has it started with a lower level, and
# ends a process that makes a call which this level forbids. Everything works, and a training has the same losses; only a watchdog
# that the user asked for is refused, and the self-test says that it has none.
# Prints `failed: NAME` for each failed test and ends with `N passed, M failed, K skipped`.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher
. "$root/tests/suite.sh"
library=$build/tests/libthread_levels.so
needs 'the tests of MPI are' "$library" "$build/tests/exit_mpi"

# at LEVEL COMMAND...: on two ranks
at() {
  level=$1
  shift
  ranks 2 env LD_PRELOAD="$library" MPIGRAD_TEST_THREAD_LEVEL="$level" "$@"
}
ends_with() { [ "$status" -eq "$1" ]; }
unwatched() { [ "$status" -eq 0 ] && [ "$(grep -c '^\[watchdog\] .*: nothing ends this job if it hangs' "$work/err")" -eq 1 ]; }
# One line of each rank, unless the other one has ended the job.
in_one_line_each() { [ "$status" -eq 1 ] && lines=$(grep -c "$1" "$work/err") && [ "$lines" -le 2 ]; }

at funneled "$build/tests/exit_mpi" thread
judge 'thread levels: a call on another thread is noticed' ends_with 97
at funneled "$build/tests/exit_mpi" return
judge 'thread levels: a rank that fails ends the job' ends_with 7
for level in serialized funneled; do
  at "$level" "$build/tests/mpi_transport"
  judge "thread levels, $level: mpi_transport" ends_with 0
done
MPIGRAD_CHECKS=watchdog=60 at serialized "$build/tests/exit_mpi" late
judge 'thread levels: a watchdog that was asked for is refused on each rank' in_one_line_each '\[watchdog\] it needs MPI_THREAD_MULTIPLE'

if [ -x "$build/examples/mpigrad-selftest" ]; then
  # Among its items is a file that all ranks write together.
  for level in serialized funneled single; do
    at "$level" "$build/examples/mpigrad-selftest"
    judge "thread levels, $level: self-test" unwatched
  done
fi
if [ -x "$build/examples/classify" ] && python3 "$root/tests/examples/trainers/scans.py" "$work/scans"; then
  losses() { cut -d, -f1-3 "$work/$1/metrics.csv"; }
  trains() { [ "$status" -eq 0 ] && [ -s "$work/$1/checkpoint.h5" ] && [ "$(losses "$1")" = "$(losses multiple)" ]; }
  for level in multiple serialized funneled; do
    at "$level" "$build/examples/classify" train --data "$work/scans" --set data.validation_fraction=0.3 --filters 4 --batch 4 \
      --epochs 2 --quiet --grid depth=2 --set checkpoint.steps=1 --out "$work/$level"
    judge "thread levels, $level: a training with checkpoints" trains "$level"
  done
fi
summary
