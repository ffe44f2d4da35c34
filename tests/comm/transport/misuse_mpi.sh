#!/bin/sh
# Mistakes between ranks under MPI: messages of the checks, and watchdogs, which must end hanging jobs and no others.
# Prints `failed: NAME` for each failed test and ends with `N passed, M failed, K skipped`.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher
. "$root/tests/suite.sh"
program=$build/tests/misuse_mpi

# checked CHECKS P COMMAND...: runs it on P ranks with these checks.
checked() {
  checks=$1 p=$2
  shift 2
  # shellcheck disable=SC2086  # MPIEXEC may hold options
  run env MPIGRAD_CHECKS="$checks" $MPIEXEC -n "$p" "$@"
  cat "$work/out" "$work/err" >"$work/all"
}
ended() { [ "$status" -ne 0 ] && [ "$status" -ne 124 ]; }

checked signatures,same 2 "$build/tests/mpi_messages"
judge 'mpi_messages on 2 ranks, checked' succeeds

# The same error on all three ranks, and in what launch() prints on at least one: the first one may end the others.
same_error() {
  ended && [ "$(grep -c '^rank [012] has caught \[checks\] ' "$work/all")" -eq 3 ] &&
    grep -q '^\[rank [012] of 3\] \[checks\] ' "$work/all" &&
    [ "$(sed -En 's/^(rank [012] has caught|\[rank [012] of 3\]) (\[checks\] .*)/\2/p' "$work/all" | sort -u | wc -l)" -eq 1 ]
}
for kind in $("$program" list); do
  checked signatures,same,watchdog=30 3 "$program" "$kind"
  judge "misuse_mpi $kind" same_error
done

# The watchdog must end a hang with these lines.
ended_saying() {
  ended || return 1
  for line; do grep -q "$line" "$work/all" || return 1; done
}
waiting='^  ranks 0,2: in allreduce of 4 float64, sum, call [0-9]* on a communicator of 3, for [0-9.]*'
checked watchdog=2 3 "$program" missing
judge 'misuse_mpi missing with a watchdog' ended_saying "$waiting" '^  rank 1: not in a call; the last was allreduce'
checked watchdog=2 3 "$program" receive
judge 'misuse_mpi receive with a watchdog' ended_saying "$waiting" '^  rank 1: in wait for receive of 4 float64, from rank 0'
checked watchdog=2 3 "$program" stopped
judge 'misuse_mpi stopped with a watchdog' ended_saying "$waiting" '^  rank 1: no answer'

# The watchdog of training ends the job only if no rank can continue.
stalled() { [ "$status" -eq 1 ] && grep -q '^  ranks* [-0-2,]*: in wait for receive' "$work/all"; }
checked stall=2 3 "$program" stalled
judge 'misuse_mpi stalled with a watchdog of training' stalled
for kind in busy apart; do
  checked stall=4 3 "$program" "$kind"
  judge "misuse_mpi $kind with a watchdog of training" succeeds
done

# A job that SIGTERM has asked to end does so although a rank is dead, but not because a rank is slow.
checked '' 3 "$program" asked
judge 'misuse_mpi asked' ended_saying '^\[watchdog\] SIGTERM has asked this job to end, but' "$waiting" '^  rank 1: no answer'
checked '' 3 "$program" asked-first
judge 'misuse_mpi asked-first' ended_saying '^\[watchdog\] SIGTERM has asked this job to end, but .*, and rank 0 does not answer'
for checks in '' watchdog=60 stall=60; do
  checked "$checks" 3 "$program" asked-busy
  judge "misuse_mpi asked-busy, '$checks'" eval 'succeeds && ! grep -q watchdog "$work/all"'
done

# A rank that has ended is named also without checks, and a rank that computes while all others have ended is not disturbed.
checked '' 3 "$program" early
judge 'misuse_mpi early' ended_saying '^  rank 1: at the end of the program; the last call was allreduce' \
  '^  ranks 0,2: in allreduce of 4 float64' '^\[watchdog\] rank 0 of 3: .* at misuse_mpi_test.cpp:[0-9]*; missing: rank 1: at the end'
checked '' 3 "$program" alone
judge 'misuse_mpi alone' eval 'succeeds && ! grep -q watchdog "$work/all"'

# One rank, which ends by itself and not by the launcher: MPI and HDF5 must end although a file cannot be closed.
checked '' 1 "$program" disk "$work"
judge 'misuse_mpi disk' eval '[ "$status" -eq 1 ] && grep -v " at misuse_mpi_test.cpp:" "$work/all" | grep -c . >"$work/count" &&
  [ "$(cat "$work/count")" -eq 1 ] && grep -q "full.h5: .*File too large" "$work/all"'
judge 'an error names the line of the program' grep -q '^  in mpigrad::[a-z_:]*, called by main at misuse_mpi_test.cpp:[0-9]*$' "$work/all"

warned_once() { succeeds && [ "$(grep -c 'looks like a replicated loss; gradients will be 3 times' "$work/all")" -eq 1 ]; }
checked '' 3 "$program" replicated
judge 'misuse_mpi replicated: one warning' warned_once
checked watchdog=20,trace 2 "$program" slow
judge 'misuse_mpi slow with a watchdog' succeeds

summary
