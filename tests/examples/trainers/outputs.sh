#!/bin/sh
# The folder of a run: one run at a time has it, files that cannot be written are told before the first step or go elsewhere at the
# end, `state` says how a training ended, and one that goes on does so with the same schedule. Prints `failed: NAME` for each failed test and ends with
# `N passed, M failed, K skipped`. tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher
tools=$build/examples
. "$root/tests/suite.sh"

needs 'the tools are' "$tools/cosmoflow"
cd "$work" || exit 1
cosmoflow=$tools/cosmoflow OMP_NUM_THREADS=1
export OMP_NUM_THREADS
run "$tools/universe" generate --out universes --universes 6 --size 16 --cell 8 --seed 1
judge 'universes' succeeds
short="train --data universes --filters 2 --batch 2 --set data.test_fraction=0.3 --quiet"

# begin OUT COMMAND...: in the background, until it has a table of epochs; its process is $begun.
begin() {
  table=$1/metrics.csv
  shift
  "$@" >"$work/begun.out" 2>"$work/begun.err" </dev/null &
  begun=$!
  waited=0
  while [ ! -e "$table" ] && kill -0 "$begun" 2>/dev/null && [ "$waited" -lt 6000 ]; do sleep 0.01; waited=$((waited + 1)); done
}
ranks_of_two() { exec $MPIEXEC -n 2 "$@"; }
end() { kill -"$1" "$begun"; wait "$begun" 2>/dev/null; }

# ---- one run at a time
# shellcheck disable=SC2086  # several options
{
  taken='another process is at work in held: process [0-9]* on '
  begin held "$cosmoflow" $short --epochs 100000 --out held
  ranks 2 "$cosmoflow" $short --epochs 1 --overwrite --out held
  judge 'a second training in a folder is refused on all ranks, once' refuses_arguments "$taken"
  end KILL
  judge 'the lock of a killed training is left' test -e held/.lock
  run "$cosmoflow" $short --epochs 1 --overwrite --out held
  judge 'and is no reason to refuse the next one' succeeds
  judge 'which leaves none' no_file held/.lock
  # One that is killed and comes again at once finds the folder free.
  begin again "$cosmoflow" $short --epochs 100000 --resume --out again
  end KILL
  run "$cosmoflow" $short --epochs 100000 --time-limit 0.0001 --resume --out again
  judge '--resume right after a kill' test "$status" = 75
}

# ---- files that cannot be written
before_training() { refuses_arguments "$1" && [ ! -f way/metrics.csv ] && [ ! -f way/checkpoint.h5 ]; }
# shellcheck disable=SC2086  # several options
{
  for file in weights.h5 checkpoint.h5 metrics.csv events.out.tfevents.0000000000.mpigrad trace.json mllog.txt \
    predictions.csv cosmoflow.png summary.json state; do
    mkdir -p "way/$file"
    run "$cosmoflow" $short --epochs 1 --overwrite --set report.profile --set report.mllog --out way
    judge "a folder $file is told before the first step" before_training "way/$file is "
    rmdir "way/$file"
  done
  mkdir -p way/weights.h5
  ranks 2 "$cosmoflow" $short --epochs 1 --overwrite --out way
  judge 'on all ranks, once' before_training 'way/weights.h5 is a folder'
  rmdir way/weights.h5
  echo foreign >way/weights.h5
  run "$cosmoflow" $short --epochs 1 --overwrite --out way
  judge 'a file that is no checkpoint is told before the first step, too' before_training 'way/weights.h5 is in the way'
  judge 'and stays' test "$(cat way/weights.h5)" = foreign
  run sh -c "ulimit -f 200; exec $cosmoflow --transport threads $short --epochs 1 --out small"
  judge 'a file that may not be so large' refuses_once 'small/weights.h5 cannot be written, for which .* are needed: File too large'
  judge 'is told before the first step' no_file small/metrics.csv
  # Something comes in the way, or the folder goes, while it trains. The last steps take as long as that.
  begin late "$cosmoflow" $short --epochs 100000 --set schedule.minutes=0.05 --out late
  mkdir late/weights.h5
  wait "$begun"
  status=$?
  elsewhere=$(sed -n 's/.*late.weights.h5 is a folder.*: all further files are in //p' begun.err)
  judge 'weights that cannot be written at the end: exit code 1' test "$status" = 1
  for file in weights.h5 summary.json predictions.csv cosmoflow.png; do judge "the second place has $file" test -s "$elsewhere/$file"; done
  run "$cosmoflow" evaluate --weights "$elsewhere/weights.h5" --data universes --out rescued
  judge 'and these weights are evaluated' succeeds
  begin gone ranks_of_two "$cosmoflow" $short --epochs 100000 --grid depth=2 --out gone
  mv gone gone-away
  # Ranks receive a signal at different times: the second may be about to end.
  for process in $(pgrep -f "^$cosmoflow train .*--out gone"); do kill -TERM "$process" && sleep 0.02; done
  wait "$begun"
  status=$?
  elsewhere=$(sed -n 's/.*gone was removed.*: all further files are in //p' begun.err)
  judge 'a folder that was removed, and a signal: an error' test "$status" = 1
  judge 'and the weights so far are at the second place' test -s "$elsewhere/weights.h5"
  begin lost "$cosmoflow" $short --epochs 100000 --set checkpoint.epochs=1 --out lost
  mv lost lost-away
  wait "$begun"
  status=$?
  elsewhere=$(sed -n 's/.*lost was removed.*: all further files are in //p' begun.err)
  judge 'a checkpoint that is written while training goes on, into a folder that was removed: an error' test "$status" = 1
  judge 'and the weights so far are at the second place, too' test -s "$elsewhere/weights.h5"
}

# ---- links and pipes of others
# shellcheck disable=SC2086  # several options
{
  rm -r way
  echo precious >theirs
  mkdir linked
  replaced='metrics.csv predictions.csv summary.json trace.json weights.h5 cosmoflow.png state'
  for file in $replaced; do ln -s ../theirs "linked/$file"; done
  ln -s linked entrance
  run timeout 100 "$cosmoflow" $short --epochs 8 --overwrite --set report.profile --set report.mllog --out entrance
  judge 'a folder may be a link, links in it are replaced' succeeds
  for file in $replaced; do judge "linked/$file" test -s "linked/$file" -a ! -L "linked/$file"; done
  judge 'and not followed' test "$(cat theirs)" = precious
  for file in mllog.txt events.out.tfevents.0000000000.mpigrad .lock; do
    mkdir way && ln -s ../theirs "way/$file"
    run timeout 100 "$cosmoflow" $short --epochs 1 --overwrite --set report.mllog --out way
    judge "a link $file is refused" refuses_arguments "way/$file is in the way: a link"
    rm -r way
  done
  mkdir way && ln theirs way/mllog.txt
  run timeout 100 "$cosmoflow" $short --epochs 1 --overwrite --set report.mllog --out way
  judge 'a hard link is refused' before_training 'way/mllog.txt is in the way: a file with 2 names'
  judge 'and what they led to has not changed' test "$(cat theirs)" = precious
  rm -r way
  for file in metrics.csv mllog.txt predictions.csv trace.json weights.h5 .lock; do
    mkdir way && mkfifo "way/$file"
    ranks 2 timeout 100 "$cosmoflow" $short --epochs 1 --overwrite --set report.profile --set report.mllog --out way
    judge "a pipe $file is refused on all ranks, once" before_training "way/$file is in the way: a pipe"
    rm -r way
  done
}

# ---- how a training ended
state() { [ "$(head -n 1 "$1/state")" = "$2" ]; }
becomes() { # becomes OUT STATE: in time; a launcher may return before its ranks have ended
  waited=0
  while ! state "$1" "$2" && [ "$waited" -lt 6000 ]; do sleep 0.01; waited=$((waited + 1)); done
  state "$1" "$2"
}
# shellcheck disable=SC2086  # several options
{
  begin signal ranks_of_two "$cosmoflow" $short --epochs 100000 --grid depth=2 --out signal
  judge 'while it trains it is running' state signal running
  end TERM
  judge 'a signal to the launcher: interrupted, whatever that returns' becomes signal interrupted
  judge 'the second line says how to go on' grep -q '^SIGTERM came after .*resume goes on from signal/checkpoint.h5$' signal/state
  run "$cosmoflow" $short --epochs 2 --out finished
  judge 'one that ends is finished' state finished finished
  run "$cosmoflow" $short --epochs 2 --overwrite --optimizer sgd --learning-rate 1e200 --out finished
  judge 'one that diverges has failed' state finished failed
  judge 'and the second line says why' grep -q '^\[fit\] the loss is ' finished/state
  judge 'held, which was killed and then trained again, too' state held finished
  ranks 2 "$cosmoflow" train --data universes --filters 2 --set data.test_fraction=0.3 --batch 100 --out none
  judge 'a batch that no data fill' refuses_arguments '--batch 100 is more than the 4 samples for training'
}

# ---- going on with other options
says_line() { succeeds && [ "$(grep -c "^warning: .*on/checkpoint.h5 was trained with" "$work/err")" = "$1" ] && grep -q -e "$2" "$work/err"; }
# shellcheck disable=SC2086  # several options
{
  on="$short --set checkpoint.epochs=1 --out on"
  run "$cosmoflow" $on --epochs 2
  ranks 2 "$cosmoflow" $on --epochs 4 --resume
  judge 'a longer cosine schedule is refused' refuses_arguments \
    'with schedule cosine over 2 epochs, 2 steps an epoch, now it is cosine over 4 epochs, 2 steps an epoch; checkpoint.allow_changes continues it'
  run "$cosmoflow" $on --epochs 2 --resume --learning-rate 0.1 --set schedule.shape=constant
  judge 'another rate and schedule are refused, both told' refuses_arguments \
    'with learning rate 0.001, now it is 0.1; with schedule cosine over 2 epochs, 2 steps an epoch, now it is constant'
  run "$cosmoflow" $on --epochs 2 --resume --set optimizer.weight_decay=0.5 --set optimizer.clip_norm=3 --set data.flips
  judge 'three other options have a line each' says_line 3 'was trained with weight decay 0, now it is 0.5$'
  run "$cosmoflow" $on --epochs 4 --resume --set checkpoint.allow_changes
  judge 'checkpoint.allow_changes continues it, and tells' says_line 1 'now it is cosine over 4 epochs'
  run "$cosmoflow" $on --epochs 4 --resume
  judge 'the same options: not a word' silent
  run "$cosmoflow" $short --set checkpoint.epochs=1 --set schedule.shape=constant --epochs 1 --out more
  run "$cosmoflow" $short --set checkpoint.epochs=1 --set schedule.shape=constant --epochs 2 --out more --resume
  judge 'a constant rate goes on for more epochs' silent
  run "$cosmoflow" $short --set checkpoint.allow_changes --out on
  judge 'checkpoint.allow_changes alone' refuses_arguments 'checkpoint.allow_changes is of --resume'
}
summary
