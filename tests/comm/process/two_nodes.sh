#!/bin/sh
# 8 ranks on one node and on two, which are network namespaces (two_hosts.sh): the operations between ranks and a training give
# the same bits, also over a link that delays and loses packets. Sums are in the order of ranks (MPIGRAD_REDUCTIONS=fixed), because
# MPI itself adds up in another order on two nodes. A long test (sh tests/run.sh --long two_nodes); writes its results to
# tests/bench/results/platforms.md. Prints `failed: NAME` for each failed test and ends with `N passed, M failed, K skipped`.
# shellcheck disable=SC2016,SC2154  # texts with `words`; variables of suite.sh
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"

# The following runs on the two nodes: how the link is, a file for what the link did, and a command.
if [ "${1:-}" = on-nodes ]; then
  shift
  case $1 in
    plain) ;;
    netem) "$LINK" delay 2 1 || exit 98 ;;  # 2 ms and 1 % of packets, in both directions
    queue) "$LINK" rate 400 128 || exit 98 ;;
  esac
  seen=$2
  shift 2
  "$MPIEXEC" -n 8 "$@"
  status=$?
  "$LINK" count >"$seen"
  exit "$status"
fi

commit=$(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo unknown)
git -C "$root" diff --quiet HEAD -- . ':!tests/bench/results' ':!tests/long.md' 2>/dev/null || commit="$commit and changes"
. "$root/tests/suite.sh"
choose_launcher
rows=$work/rows
MPIGRAD_REDUCTIONS=fixed OMP_NUM_THREADS=1 limit=900
export MPIGRAD_REDUCTIONS OMP_NUM_THREADS
needs 'the tests of MPI and the tools are' "$build/tests/bits_mpi" "$build/examples/cosmoflow" "$build/examples/universe"

nodes() { # nodes LINK COMMAND...
  link=$1
  shift
  rm -f "$work/link"
  run sh "$root/tests/comm/process/two_hosts.sh" --limit 880 sh "$root/tests/comm/process/two_nodes.sh" on-nodes "$link" "$work/link" "$@"
}
shows() { # shows NAME CONDITION...
  failures=$failed name=$1
  judge "$@"
  outcome=passed
  [ "$failed" -eq "$failures" ] || outcome=failed
  printf '| %s | %s | %s | %s |\n' "$name" "$outcome" "$(($(date +%s) - began))" "${seen:-}" >>"$rows"
  began=$(date +%s) seen=''
}
# What the link did: packets sent and dropped by both ends.
link_did() { [ ! -s "$work/link" ] || awk '{ sent += $1; lost += $2 } END { if (sent > 0) printf "%d packets sent, %d lost", sent, lost }' "$work/link"; }
hashes() { grep -E ' [0-9a-f]{16}$' "$work/out"; }
bits() { [ "$status" -eq 0 ] && [ "$(hashes | wc -l)" -gt 50 ] && hashes | cmp -s - "$work/bits"; }

run sh "$root/tests/comm/process/two_hosts.sh" --limit 60 sh -c '"$MPIEXEC" -n 2 true'
if [ "$status" -eq 77 ]; then
  printf 'skipped: 1 %s\n0 passed, 0 failed, 1 skipped\n' "$(tail -n 1 "$work/err")"
  exit 0
fi
# A kernel without netem: a queue before a slow link, which drops what does not fit. Shorter queues hold no packet of the kernel.
run sh "$root/tests/comm/process/two_hosts.sh" --delay 2 --loss 1 --limit 60 true
bad=netem how='2 ms of delay and 1 % of packets lost (tc netem)'
[ "$status" -eq 0 ] || bad=queue how='a queue of 128 kB before 400 Mbit/s, which delays and drops packets (tc tbf; this kernel has no netem)'

training() { # training FOLDER
  set -- "$build/examples/cosmoflow" train --data "$work/universes" --grid sample=2,depth=4 --filters 4 --batch 4 --epochs 3 --quiet --out "$1"
  printf '%s\n' "$@"
}
losses() { cut -d, -f1-3 "$work/$1/metrics.csv"; }
trained() { [ "$status" -eq 0 ] && [ "$(losses "$1")" = "$(losses one)" ] && cmp -s "$work/one/weights.h5" "$work/$1/weights.h5"; }

began=$(date +%s)
ranks 8 "$build/tests/bits_mpi"
hashes >"$work/bits"
seen="$(hashes | wc -l) results with their gradients"
shows 'operations between ranks, 8 ranks on one node' bits
for link in plain "$bad"; do
  title='two nodes'
  [ "$link" = plain ] || title="two nodes, $how"
  nodes "$link" "$build/tests/bits_mpi"
  seen=$(link_did)
  shows "the same bits on $title" bits
done

run "$build/examples/universe" generate --out "$work/universes" --universes 6 --size 16 --cell 8 --seed 1 --spread
# shellcheck disable=SC2046  # one word a line
{
  ranks 8 $(training "$work/one")
  seen=$(tail -n 1 "$work/one/metrics.csv" 2>/dev/null | cut -d, -f1,2 | sed 's/,/ epochs, loss /')
  shows 'training of CosmoFlow on 2 x 4 ranks, one node' trained one
  for link in plain "$bad"; do
    title='two nodes'
    [ "$link" = plain ] || title="two nodes, $how"
    nodes "$link" $(training "$work/$link")
    seen=$(link_did)
    shows "the same losses and weights, bit by bit, on $title" trained "$link"
  done
}

. "$root/tests/bench/platforms.sh"
{
  printf '`sh tests/run.sh --long two_nodes`, %s, commit %s: %s, MPICH %s. ' "$(date +%Y-%m-%d)" "$commit" "$(system_name)" \
    "$("$MPIEXEC" -info 2>/dev/null | sed -n 's/^ *Version: *//p' | head -n 1)"
  printf 'The nodes are network namespaces of one machine of %s cores, with 4 ranks each, ' "$(nproc --all)"
  printf 'joined by a link of the kernel and by TCP only. `MPIGRAD_REDUCTIONS=fixed`. Not shown: hosts with clocks and kernels of their own.\n\n'
  printf '| case | outcome | seconds | seen |\n|---|---|--:|---|\n'
  cat "$rows"
} | write_section 'Eight ranks on two nodes'
summary
