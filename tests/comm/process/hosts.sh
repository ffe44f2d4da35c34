#!/bin/sh
# Jobs on two hosts, which are network namespaces (tests/comm/process/two_hosts.sh): their ends, and the effects of a cut link.
# Prints `failed: NAME` for each failed test and ends with `N passed, M failed, K skipped`. tests/run.sh calls it.
#
#   sh tests/comm/process/hosts.sh           the quick tests
#   sh tests/comm/process/hosts.sh exits N   how many of N jobs end while all cores are busy
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"

ranks_left() {
  for process in $(ip netns pids "$TWO_HOSTS-a") $(ip netns pids "$TWO_HOSTS-b"); do
    if [ "$(cat "/proc/$process/comm" 2>/dev/null)" = misuse_mpi ]; then return 0; fi
  done
  return 1
}

# await COMMAND...: retries until it succeeds, for two minutes at most and only while the job lives.
await() {
  tries=1200
  until "$@" >"$work_on_hosts/log" 2>&1; do
    tries=$((tries - 1))
    if [ "$tries" -eq 0 ] || ! kill -0 "$job" 2>/dev/null; then exit 98; fi
    sleep 0.1
  done
}
# shellcheck disable=SC2086,SC2317  # a pattern; called by await
copied() { ls "$DISK-b"/*/$1; }

# The following runs on the two hosts, one script for each test.
if [ "${1:-}" = on-hosts ]; then
  shift
  work_on_hosts=${2:-}
  case $1 in
    start) exec "$MPIEXEC" -n 2 "$build/tests/exit_mpi" pair ;;
    job) shift && exec "$MPIEXEC" "$@" ;;
    cut)
      # Cuts the link after the first step of training. After the end of the launcher the test checks if a rank is left. Output of
      # ranks cannot pass the cut link, so each rank writes to a file. Two ranks are on the first host, together with the
      # launcher.
      rm -f "$2"/said-*
      # shellcheck disable=SC2016  # of the inner shell
      "$MPIEXEC" -n 3 sh -c 'exec "$@" 2>"$0/said-${PMI_RANK:-${PMIX_RANK:-none}}"' "$2" "$build/tests/misuse_mpi" train >"$2/out" 2>&1 &
      job=$!
      await grep -q 'the first step' "$2/out"
      "$LINK" cut
      # Open MPI's launcher goes on waiting for its daemon on the other host, longer than a test may take.
      [ -n "${OMPI_MCA_plm_rsh_agent:-}" ] || wait "$job"
      status=$?
      tries=1200
      while ranks_left; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || exit 99
        sleep 0.1
      done
      if [ -n "${OMPI_MCA_plm_rsh_agent:-}" ]; then
        kill -KILL "$job"
        exit 1
      fi
      exit "$status"
      ;;
    mended)
      "$MPIEXEC" -n 2 "$build/tests/misuse_mpi" train >"$2/out" 2>&1 &
      job=$!
      sleep 5
      "$LINK" cut && sleep 10 && "$LINK" mend
      wait "$job"
      exit
      ;;
    lost)
      # From some moment on the second host cannot be reached: elastic continues with the first.
      cat >"$2/probe.py" <<'END'
import socket, sys
s = socket.socket()
s.settimeout(2)
try: s.connect((sys.argv[1], 9))
except ConnectionRefusedError: pass
END
      "$build/examples/elastic" --hosts "$HOSTS" --ranks-per-host 1 --launcher "$HYDRA -n {ranks} -hosts {hosts}" \
        --probe "python3 $2/probe.py {host}" --probe-every 1 --probe-limit 5 -- "$build/examples/classify" train --data "$2/scans" \
        --set data.validation_fraction=0.3 --filters 4 --batch 4 --epochs 120 --quiet --grid depth=2 --set checkpoint.steps=1 \
        --out "$2/lost" >"$2/out" 2>&1 &
      job=$!
      await test -s "$2/lost/checkpoint.h5"
      "$LINK" cut
      wait "$job"
      exit
      ;;
    disks | parts)
      # Copies on the hosts' disks alone, whole or of each rank's part; all dies, and the first host's disk with it. What goes on makes
      # no more of them: MPI's files wait in their own way, for whole slices where others compute.
      training="train --data $2/scans --set data.validation_fraction=0.3 --filters 4 --batch 4 --epochs 400 --grid depth=2 \
        --set checkpoint.local_folder=$DISK --out $2/$1"
      file=checkpoint.h5
      if [ "$1" = parts ]; then training="$training --set grid.sharded_weights" file='part-*-0-of-2.h5'; fi
      # shellcheck disable=SC2086  # several options
      "$MPIEXEC" -n 2 "$build/examples/classify" $training --set checkpoint.local_steps=10 --quiet >"$2/out" 2>&1 &
      job=$!
      await copied "$file"
      kill -KILL "$job"
      for process in $(ip netns pids "$TWO_HOSTS-a") $(ip netns pids "$TWO_HOSTS-b"); do
        if [ "$(cat "/proc/$process/comm" 2>/dev/null)" = classify ]; then kill -KILL "$process"; fi
      done
      sleep 1
      rm -rf "$DISK-a"/*
      # shellcheck disable=SC2086
      exec "$MPIEXEC" -n 2 "$build/examples/classify" $training --set checkpoint.local_steps=1000 --resume
      ;;
    exits)
      spinning=
      for _ in $(seq "$(nproc)"); do
        sh -c 'while :; do :; done' &
        spinning="$spinning $!"
      done
      # shellcheck disable=SC2086  # one word for each
      trap 'kill $spinning' EXIT
      left=0
      for _ in $(seq "$2"); do
        if timeout -k 3 60 "$MPIEXEC" -n 2 "$build/tests/exit_mpi" late >"$3/out" 2>&1; then left=$((left + 1)); fi
      done
      echo "$left of $2 jobs have ended"
      [ "$left" -eq "$2" ]
      exit
      ;;
  esac
fi

. "$root/tests/suite.sh"

hosts() { run sh "$root/tests/comm/process/two_hosts.sh" --limit 280 sh "$root/tests/comm/process/hosts.sh" on-hosts "$@"; }
gives() { [ "$status" -eq "$1" ]; }
tells_once() { [ "$status" -eq 0 ] && [ "$(grep -c "$1" "$work/err")" -eq 1 ]; }
# The job has ended by itself, no rank is left, and each rank has named the missing one: ranks 0 and 2 name rank 1; rank 1, on the
# other host, reports that rank 0 does not answer.
ends_by_watchdog() {
  [ "$status" -ne 0 ] && [ "$status" -lt 98 ] && grep -q '^\[watchdog\] a call has taken longer than 3 s; what' "$work/said-0" &&
    grep -q '^\[watchdog\] rank 0 of 3: .*missing: rank 1: no answer' "$work/said-0" &&
    grep -q '^\[watchdog\] rank 2 of 3: .*missing: rank 1: no answer' "$work/said-2" &&
    grep -q '^\[watchdog\] rank 1 of 3: .*missing: rank 0: no answer' "$work/said-1"
}

needs 'the tests of MPI are' "$build/tests/exit_mpi"
hosts start
if [ "$status" -eq 77 ]; then
  why=$(tail -n 1 "$work/err")
  printf 'skipped: 1 %s\n0 passed, 0 failed, 1 skipped\n' "${why:-"no two hosts: the launcher's ranks do not find each other"}"
  exit 0
fi

if [ "${1:-}" = exits ]; then
  timeout -k 5 3600 sh "$root/tests/comm/process/two_hosts.sh" --limit 3500 sh "$root/tests/comm/process/hosts.sh" on-hosts exits "${2:-50}" "$work"
  exit
fi

hosts job -n 2 "$build/tests/exit_mpi" late
judge 'hosts: a finished job ends' gives 0
hosts job -n 2 "$build/tests/exit_mpi" throw
judge 'hosts: a job with a failed rank ends' gives 1
hosts job -n 2 "$build/tests/exit_mpi" return
judge 'hosts: a job ends in which one rank fails by its exit code while another waits for it' gives 7
hosts job -n 2 "$build/tests/exit_mpi" single
judge 'hosts: who has no threads of MPI is told that nothing watches' tells_once '^\[watchdog\] this MPI library does not provide'
hosts job -n 2 "$build/tests/exit_mpi" hosts
judge 'hosts: ranks on several hosts are watched' gives 0
MPIGRAD_CHECKS=watchdog=off hosts job -n 2 "$build/tests/exit_mpi" hosts
judge 'hosts: but for those that ask for no watchdog' gives 3
MPIGRAD_CHECKS=stall=3 hosts cut "$work"
cat "$work"/said-* >"$work/err"
judge 'hosts: a cut link ends the job on both sides, and every rank says who is missing' ends_by_watchdog
# Runs the tools on two hosts as a user would.
prints() { gives 0 && grep -q -e "$1" "$work/out"; }
if [ -x "$build/examples/elastic" ] && python3 "$root/tests/examples/trainers/scans.py" "$work/scans"; then
  hosts lost "$work"
  judge 'hosts: elastic goes on without a host that cannot be reached' prints 'start [2-9]: 1 ranks on [0-9.]*, --grid sample=1'
  hosts disks "$work"
  from_the_other() { gives 0 && grep -q 'the node of rank 1 has a newer checkpoint' "$work/err" && grep -q 'going on from .*/disk/mpigrad-' "$work/err"; }
  judge "hosts: a copy on the other host's disk is gone on from" from_the_other
  hosts parts "$work"
  judge "hosts: parts of the checkpoint on the other host's disk are gone on from" from_the_other
fi
if [ -n "${MPIGRAD_TEST_ALL:-}" ]; then
  hosts mended "$work"
  judge 'hosts: a link that comes back leaves a sound job alone' gives 0
  run sh "$root/tests/comm/process/hosts.sh" exits 50
  judge 'hosts: 50 of 50 finished jobs end on busy machines' says '^50 of 50 jobs have ended'
fi
summary
