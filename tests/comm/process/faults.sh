#!/bin/sh
# Planted faults on rank 1 of three, on every transport: each ends the job with a non-zero exit code, and living ranks name it.
# For a dead link between two hosts see tests/comm/process/hosts.sh. Prints `failed: NAME` for each failed test and ends with
# `N passed, M failed, K skipped`.
#
#   sh tests/comm/process/faults.sh
#   sh tests/comm/process/faults.sh times [ROUNDS]   longest time from the watchdog's limit to its report of each hang; 3 rounds
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher
. "$root/tests/suite.sh"
program=$build/tests/misuse_mpi
saved=$work/saved
mkdir "$saved"

# on TRANSPORT FAULT: runs a fault; the available output is in $work/all.
on() {
  transport=$1 fault=$2
  set -- "$program" "$fault" "$saved"
  MPIGRAD_CHECKS=signatures,watchdog=2
  export MPIGRAD_CHECKS
  case $transport in
    mpi) ranks 3 "$@" ;;
    threads) run "$@" --transport threads --ranks 3 ;;
    nccl) run env MPIGRAD_EMULATION=concurrent sh "$root/tests/emulated.sh" "$@" --transport threads --ranks 3 --device cuda ;;
  esac
  unset MPIGRAD_CHECKS
  cat "$work/out" "$work/err" >"$work/all"
}
ended() { [ "$status" -ne 0 ] && [ "$status" -ne 124 ] && [ "$status" -ne 137 ]; }
# each_says WHAT RANK...: each living rank prints the watchdog's line with its own call and line of the program; WHAT appears on
# all of them. Waiting ranks report how long after the limit; less than half a minute, even on a busy machine.
each_says() {
  ended || return 1
  what=$1
  shift
  for rank; do
    grep "^\[watchdog\] rank $rank of 3: .* of 4 float64.* at misuse_mpi_test.cpp:[0-9]*; .*$what" "$work/all" >"$work/line" || return 1
    if grep -q ": in .* s after the limit" "$work/line"; then
      [ "$(seconds_after <"$work/line" | cut -d. -f 1)" -lt 30 ] || return 1
    else
      grep -q ": not in a call; the last was allreduce of 4 float64" "$work/line" || return 1
    fi
  done
}
seconds_after() { sed -n 's/.*for [0-9.]* s, \([0-9.]*\) s after the limit.*/\1/p'; }
# Each process prints it, unless another one has ended the job; threads print it once.
error() {
  ended || return 1
  case $transport in mpi) most=3 ;; *) most=1 ;; esac
  lines=$(grep -c "^\[rank [012] of 3\] .*$1" "$work/all")
  [ "$lines" -ge 1 ] && [ "$lines" -le "$most" ]
}

transports='mpi threads'
skip=
if [ -d "$build/tests/emulation/vendor" ] && [ -e "$build/tests/emulation/vendor/libnccl.so.2" ]; then transports="$transports nccl"; else skip=1; fi

if [ "${1:-}" = times ]; then
  for where in $transports; do
    case $where in mpi) kinds='missing receive stopped stopped-first' ;; *) kinds='missing receive' ;; esac
    for kind in $kinds; do
      : >"$work/times"
      for _ in $(seq "${2:-3}"); do
        on "$where" "$kind"
        seconds_after <"$work/all" >>"$work/times"
      done
      printf '%-8s %-14s %2d reports, at most %s s after the limit\n' "$where" "$kind" "$(wc -l <"$work/times")" \
        "$(sort -n "$work/times" | tail -n 1)"
    done
  done
  exit
fi

for where in $transports; do
  on "$where" missing
  judge "$where: a rank sleeps" each_says 'missing: rank 1: not in a call; the last was allreduce of 4 float64, sum' 0 1 2
  on "$where" receive
  judge "$where: a message without a receive" each_says 'all wait: .*rank 1: in wait for receive of 4 float64, from rank 0' 0 1 2
  on "$where" exits
  case $where in
    mpi) judge "$where: a rank ends" ended ;;  # which names no rank; see below
    *) judge "$where: a rank ends" error 'rank 1 has ended without taking part' ;;
  esac
  on "$where" left_out
  judge "$where: a collective is left out" error '\[checks\] .*rank 1: reduce of 4 float64'
  on "$where" count
  judge "$where: another shape" error '\[checks\] .*rank 1: allreduce of 5 float64'
  on "$where" order
  judge "$where: another order" error '\[checks\] .*rank 1: reduce of 4 float64'
  on "$where" disk
  judge "$where: a disk that is full" error 'full.h5: .*File too large'
done
# The launcher ends all others at once, and names the first process of the job; the parent of each rank reports the right one. Open
# MPI's launcher then ends with 137 itself.
elastic=$build/examples/elastic
only_rank_1() { [ "$status" -ne 0 ] && [ "$status" -ne 124 ] && grep -q "^elastic: rank 1 of 3 on .* (PID [0-9]*) has ended: $1" "$work/err" && [ "$(grep -c '^elastic: rank' "$work/err")" -eq 1 ]; }
if [ -x "$elastic" ]; then
  ranks 3 "$elastic" rank -- "$program" exits "$saved"
  judge 'mpi: a rank ends, under `elastic rank`' only_rank_1 'exit code 3$'
  # shellcheck disable=SC2016  # of the inner shell
  ranks 3 "$elastic" rank -- sh -c '[ "${PMI_RANK:-${PMIX_RANK:-}}" != 1 ] || kill -KILL $$; exec sleep 60'
  judge 'mpi: a rank is killed, under `elastic rank`' only_rank_1 'signal 9, '
  ranks 1 "$elastic" rank -- sh -c 'kill -USR1 $PPID; exec sleep 60'
  judge 'a signal is handed on, and is no fault' eval 'ended && ! grep -q "has ended" "$work/err"'
  ranks 1 "$elastic" rank -- /no/such/program
  judge 'a program that is not there' eval '[ "$status" -eq 2 ] && grep -q "^elastic: /no/such/program cannot be started" "$work/err"'
else
  skip 'elastic is not built'
fi
[ -z "$skip" ] || { skipped=$((skipped + 7)) && printf 'skipped: 7 there is no emulated NCCL\n'; }
on mpi stopped
judge 'mpi: a rank is stopped' each_says 'missing: rank 1: no answer' 0 2
on mpi stopped-first
judge 'mpi: the rank is stopped that asks the others' each_says 'missing: rank 0: no answer' 1 2
summary
