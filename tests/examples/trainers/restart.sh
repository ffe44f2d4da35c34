#!/bin/sh
# Trainings that stop in the middle of an epoch go on bit for bit on as many ranks, and to 1e-12 in float64 on others; with the
# state of contrastive losses and averaged weights. Prints `failed: NAME` for each failed test and ends with `N passed, M failed, K skipped`. tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher
tools=$build/examples
. "$root/tests/suite.sh"

needs 'the tools are' "$tools/contrastive"

# ---- conditions
# All that metrics.csv says but times; numbers have as many digits as tell them from others.
rows() { cut -d, -f "1-$2" "$work/$1/metrics.csv"; }
same_rows() { succeeds && [ -n "$(rows "$1" "$3")" ] && [ "$(rows "$1" "$3")" = "$(rows "$2" "$3")" ]; }
# same_training OUT OUT COLUMNS: the same bits in the weights' files and in the table.
same_training() {
  same_rows "$@" && cmp "$work/$1/weights.h5" "$work/$2/weights.h5"
}
exits() { [ "$status" -eq "$1" ]; }
says_error() { succeeds && grep -q -e "$1" "$work/err"; }

mkdir "$work/scans"
python3 "$root/tests/examples/trainers/scans.py" "$work/scans"
run "$tools/pack" --data "$work/scans" --out "$work/scans.h5"
judge 'pack' succeeds

# ---- contrastive: four steps an epoch, of a loss that keeps a queue and a second encoder; all checkpoints of a training stay
contrast() { # contrast RANKS OUT OPTIONS...
  p=$1 out=$2
  shift 2
  ranks "$p" "$tools/contrastive" train --data "$work/scans.h5" --encoder encoder3d --set network.blocks=1 --set network.width=4 \
    --set network.head_hidden=8 --set network.head_out=6 --loss moco --set loss.queue=6 --batch 3 --epochs 2 --set schedule.monitor=8 \
    --out "$work/$out" "$@"
}
all="--set checkpoint.steps=1 --set checkpoint.keep=9 --set checkpoint.wait"
for p in 1 2; do
  # shellcheck disable=SC2086  # several options
  contrast $p "whole-$p" $all --set report.mllog
  judge "contrastive: a checkpoint after every step, $p ranks" test -s "$work/whole-$p/checkpoint-7.h5"
  contrast $p "on-$p" --resume "$work/whole-$p/checkpoint-3.h5"
  judge "contrastive: on from the middle of an epoch, $p ranks" same_training "whole-$p" "on-$p" 8
done
judge 'contrastive: report.mllog' grep -q '"run_stop".*"success"' "$work/whole-1/mllog.txt"
# At its first steps, as the limit has passed; the copies of a node are all that is left of it.
mkdir "$work/node"
copies="--set checkpoint.local_folder=$work/node --set checkpoint.local_steps=1"
# shellcheck disable=SC2086  # several options
contrast 2 limited --time-limit 0.01 $copies --set report.mllog --set checkpoint.best
judge 'contrastive: a limit within an epoch ends it' exits 75
judge 'contrastive: and report.mllog says so' grep -q '"run_stop".*"aborted"' "$work/limited/mllog.txt"
rm -f "$work/limited/checkpoint.h5"
kept=$work/node/mpigrad-$(cat "$work/limited/training-name")
judge 'the copies are closed to other users' test "$(stat -c '%a' "$kept" "$kept/checkpoint.h5" | tr '\n' ' ')" = '700 600 '
chmod o+w "$kept"
# shellcheck disable=SC2086  # several options
contrast 2 limited --resume $copies
judge 'a folder that others may change is refused' exits 2
judge 'by its name' grep -q "^contrastive: .local copies. $kept may be changed by other users" "$work/err"
judge 'and left as it is' test -s "$kept/checkpoint.h5"
chmod o-w "$kept"
cp -rp "$kept" "$work/node/mpigrad-over"
printf '%s\n' over "$(hostname)" "$work/node/training-name" "$(stat -c '%d %i %d' "$work")" >"$work/node/mpigrad-over/.training"
# shellcheck disable=SC2086  # several options
contrast 2 limited --resume $copies --set checkpoint.steps=1
judge 'contrastive: on from a copy of the node' says_error 'going on from .*node/.*: 0 epochs and [123] steps'
judge 'contrastive: what an ended training has left is removed' says_error 'mpigrad-over: local copies of the training in .*node, which is no longer there: removed'
judge 'contrastive: with the bits of one that was spared' same_training whole-2 limited 8
judge 'contrastive: no copies stay' test -z "$(ls -A "$work/node")"

# ---- sums in the order of ranks, three steps an epoch
classify() { # classify TRANSPORT RANKS OUT OPTIONS...
  how=$1 p=$2 out=$3
  shift 3
  "$how" "$p" "$tools/classify" train --data "$work/scans.h5" --set data.validation_fraction=0.25 --filters 4 --batch "${batch:-3}" \
    --epochs 2 \
    --set network.norm_momentum=0.5 --set data.flips --out "$work/$out" "$@"
}
# shellcheck disable=SC2086  # several options
classify ranks 2 fixed $all --set precision.deterministic --grid depth=2
judge 'precision.deterministic: a checkpoint after every step' test -s "$work/fixed/checkpoint-5.h5"
classify ranks 2 fixed-on --set precision.deterministic --grid depth=2 --resume "$work/fixed/checkpoint-2.h5"
judge 'precision.deterministic: two ranks go on with the same bits' same_training fixed fixed-on 6
# Sums of four numbers depend on their order: libraries of MPI add them in pairs, threads one after the other.
MPIGRAD_THREADS=1 batch=4
export MPIGRAD_THREADS
classify ranks 4 fixed-ranks --set precision.deterministic
classify threads 4 fixed-threads --set precision.deterministic
judge 'precision.deterministic: the same bits from every transport' same_training fixed-ranks fixed-threads 6
batch=3
unset MPIGRAD_THREADS
# close OUT OUT: losses of training and test, to 1e-12 relative.
close() {
  succeeds && python3 - "$work/$1/metrics.csv" "$work/$2/metrics.csv" <<'EOF'
import csv, sys
a, b = (list(csv.DictReader(open(name))) for name in sys.argv[1:])
assert len(a) == len(b) == 2
for one, two in zip(a, b):
    for c in ("train_loss", "validation_loss"): assert abs(float(one[c]) - float(two[c])) <= 1e-12 * abs(float(one[c])), (c, one[c], two[c])
EOF
}
# By Adam a gradient that is next to nothing moves a weight as far as any other does, and rounding with it.
double="--precision float64 --optimizer sgd --learning-rate 0.01"
# shellcheck disable=SC2086  # several options
classify threads 1 double $all $double
# shellcheck disable=SC2086  # several options
classify ranks 2 double-on $double --grid sample=2 --resume "$work/double/checkpoint-2.h5"
judge 'on from the middle of an epoch on another grid, to 1e-12' close double double-on

# ---- averaged weights
# shellcheck disable=SC2086  # several options
classify ranks 2 average $all --set optimizer.average_weights=0.5 --set checkpoint.best
classify ranks 2 average-on --set optimizer.average_weights=0.5 --set checkpoint.best --resume "$work/average/checkpoint-2.h5"
judge 'optimizer.average_weights: on from the middle of an epoch' same_training average average-on 6
judge 'optimizer.average_weights: the best ones, too' cmp -s "$work/average/best.h5" "$work/average-on/best.h5"
classify ranks 2 plain
judge 'optimizer.average_weights: training itself is the same' same_rows plain average 2
judge 'optimizer.average_weights: others are evaluated' test "$(rows plain 3)" != "$(rows average 3)"
classify ranks 2 refused --resume "$work/average/checkpoint-2.h5"
refused() { [ "$status" -eq 2 ] && grep -q -e "$1" "$work/err" && [ ! -e "$work/refused" ]; }
judge 'optimizer.average_weights: a training does not lose them unnoticed' refused 'was trained with averaged weights (optimizer.average_weights), now it is without'
predictions() { # predictions OUT WEIGHTS OPTIONS...
  out=$1 weights=$2
  shift 2
  run "$tools/classify" evaluate --data "$work/scans.h5" --weights "$work/$weights" --out "$work/$out" "$@"
}
predictions of-weights average/weights.h5
judge 'evaluate says that weights are averaged' says 'parameters, averaged weights (decay 0.5)'
predictions of-checkpoint average/checkpoint.h5
judge 'evaluate takes the averaged ones of a checkpoint' says 'parameters, averaged weights (decay 0.5)'
judge 'which are those of weights.h5' cmp -s "$work/of-weights/predictions.csv" "$work/of-checkpoint/predictions.csv"
predictions of-last average/checkpoint.h5 --last-weights
predictions of-plain plain/weights.h5
judge '--last-weights: those of the last step' cmp -s "$work/of-last/predictions.csv" "$work/of-plain/predictions.csv"
judge '--last-weights: others than the averaged ones' test "$(cat "$work/of-last/predictions.csv")" != "$(cat "$work/of-weights/predictions.csv")"
predictions refused average/weights.h5 --last-weights
judge '--last-weights of a file without' refused 'has averaged weights only'

summary
