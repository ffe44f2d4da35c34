#!/bin/sh
# Trainings that stop in the middle of an epoch go on bit for bit on as many ranks, and to 1e-12 in float64 on others. Prints
# `failed: NAME` for each failed test and ends with `N passed, M failed, K skipped`. tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
. "$root/tests/packages.sh"
choose_launcher
tools=$build/examples
. "$root/tests/suite.sh"

if [ ! -x "$tools/contrastive" ]; then
  printf 'skipped: 1 the tools are not built\n0 passed, 0 failed, 1 skipped\n'
  exit 0
fi

# ---- conditions
# All that metrics.csv says but times; numbers have as many digits as tell them from others.
rows() { cut -d, -f "1-$2" "$work/$1/metrics.csv"; }
# same_training OUT OUT COLUMNS: the same bits in the weights' files and in the table.
same_training() {
  succeeds && cmp "$work/$1/weights.h5" "$work/$2/weights.h5" && [ -n "$(rows "$1" "$3")" ] && [ "$(rows "$1" "$3")" = "$(rows "$2" "$3")" ]
}
exits() { [ "$status" -eq "$1" ]; }
says_error() { succeeds && grep -q -e "$1" "$work/err"; }

mkdir "$work/scans"
python3 "$root/tests/examples/scans.py" "$work/scans"
run "$tools/pack" --data "$work/scans" --out "$work/scans.h5"
judge 'pack' succeeds

# ---- contrastive: four steps an epoch, of a loss that keeps a queue and a second encoder; all checkpoints of a training stay
contrast() { # contrast RANKS OUT OPTIONS...
  p=$1 out=$2
  shift 2
  ranks "$p" "$tools/contrastive" train --data "$work/scans.h5" --encoder encoder3d --blocks 1 --width 4 --head-hidden 8 --head-out 6 \
    --loss moco --queue 6 --batch 3 --epochs 2 --monitor 8 --out "$work/$out" "$@"
}
all="--checkpoint-steps 1 --keep-checkpoints 9 --wait-for-checkpoints"
for p in 1 2; do
  # shellcheck disable=SC2086  # several options
  contrast $p "whole-$p" $all --mllog
  judge "contrastive: a checkpoint after every step, $p ranks" test -s "$work/whole-$p/checkpoint-7.h5"
  contrast $p "on-$p" --resume "$work/whole-$p/checkpoint-3.h5"
  judge "contrastive: on from the middle of an epoch, $p ranks" same_training "whole-$p" "on-$p" 8
done
judge 'contrastive: --mllog' grep -q '"run_stop".*"success"' "$work/whole-1/mllog.txt"
# At its first steps, as the limit has passed; the copies of a node are all that is left of it.
mkdir "$work/node"
copies="--local-copies $work/node --local-steps 1"
# shellcheck disable=SC2086  # several options
contrast 2 limited --time-limit 0.01 $copies --mllog --keep-best
judge 'contrastive: a limit within an epoch ends it' exits 75
judge 'contrastive: and --mllog says so' grep -q '"run_stop".*"aborted"' "$work/limited/mllog.txt"
rm -f "$work/limited/checkpoint.h5"
# shellcheck disable=SC2086  # several options
contrast 2 limited --resume $copies --checkpoint-steps 1
judge 'contrastive: on from a copy of the node' says_error 'going on from .*node/.*: 0 epochs and [123] steps'
judge 'contrastive: with the bits of one that was spared' same_training whole-2 limited 8
judge 'contrastive: no copies stay' test -z "$(ls -A "$work/node")"

summary
