#!/bin/sh
# Faults that are planted on rank 1 of three, on every transport: each ends the job with an exit code that is not 0, and all ranks that
# live name it. A dead link, which takes two hosts: tests/comm/process/hosts.sh. Prints `failed: NAME` for each failed test and ends with `N
# passed, M failed, K skipped`.
#
#   sh tests/comm/process/faults.sh
#   sh tests/comm/process/faults.sh times [ROUNDS]   how long after the watchdog's limit each hang is told of, at most; 3 rounds
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher
. "$root/tests/suite.sh"
program=$build/tests/misuse_mpi
saved=$work/saved
mkdir "$saved"

# on TRANSPORT FAULT: as far as its output goes into $work/all.
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
# each_says WHAT RANK...: the watchdog's line of each rank that lives, with its own call and its line of the program; WHAT is said
# on all of them. Ranks that wait say how long after the limit; it is less than half a minute also on a machine that is busy.
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
# Processes say it each, threads once.
error() {
  ended || return 1
  case $transport in mpi) times=3 ;; *) times=1 ;; esac
  [ "$(grep -c "^\[rank [012] of 3\] .*$1" "$work/all")" -eq "$times" ]
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
    mpi) judge "$where: a rank ends" ended ;;  # which names nobody; see below
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
# The launcher ends all others at once, and names the first process of the job; a parent of each rank tells.
elastic=$build/examples/elastic
only_rank_1() { ended && grep -q "^elastic: rank 1 of 3 on .* (PID [0-9]*) has ended: $1" "$work/err" && [ "$(grep -c '^elastic: rank' "$work/err")" -eq 1 ]; }
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
