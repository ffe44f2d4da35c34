#!/bin/sh
# Trainings that end before their time, by signals, limits, kills and a full disk, go on from their files as if they had not, on
# another grid, too. Prints `failed: NAME` for each failed test and ends with `N passed, M failed, K skipped`. tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher
tools=$build/examples
. "$root/tests/suite.sh"

needs 'the tools are' "$tools/pack"

cosmoflow=$tools/cosmoflow classify=$tools/classify
universes=$work/universes
run "$tools/universe" generate --out "$universes" --universes 10 --size 32 --cell 4 --seed 1 --spread
judge 'universes' succeeds
python3 "$root/tests/examples/trainers/scans.py" "$work/scans"
run "$tools/pack" --data "$work/scans" --validation-fraction 0.3 --out "$work/scans.h5"
judge 'scans' succeeds

# ---- trainings that are ended go on as if they had not been
long="train --data $universes --filters 2 --epochs 12 --precision float64 --set data.test_fraction=0.3 --set checkpoint.steps=1"
batch="--batch 2"
losses() { cut -d, -f 1-3 "$1/metrics.csv"; }
says_error() { succeeds && grep -q -e "$1" "$work/err"; }
# shellcheck disable=SC2086  # several options
{
  run "$cosmoflow" $long $batch --resume --out "$work/whole"
  judge '--resume where there is no checkpoint: training begins' says_error 'no checkpoint in .*whole: training begins'
  ranks 2 "$cosmoflow" $long $batch --grid depth=2 --set data.ghosts=3 --set data.store=1 --out "$work/ghosts"
  judge 'planes around blocks, and samples that ranks keep: the same losses' near_losses "$work/whole/metrics.csv" "$work/ghosts/metrics.csv"
  # ended SIGNAL OUT: once there is a checkpoint.
  ended() {
    "$cosmoflow" $long $batch --quiet --out "$work/$2" >"$work/out" 2>"$work/err" &
    child=$!
    waited=0
    while [ ! -e "$work/$2/checkpoint.h5" ] && [ "$waited" -lt 6000 ]; do sleep 0.01; waited=$((waited + 1)); done
    kill -"$1" "$child"
    status=0
    wait "$child" || status=$?
  }
  for signal in TERM INT KILL; do
    ended "$signal" "by-$signal"
    expected=75
    [ "$signal" != KILL ] || expected=137
    judge "SIG$signal: exit code $expected" test "$status" = "$expected"
    [ "$signal" = KILL ] || judge "SIG$signal: it is said how to go on" grep -q 'resume goes on from .*checkpoint.h5' "$work/err"
    run "$cosmoflow" $long $batch --resume --out "$work/by-$signal"
    judge "SIG$signal: it goes on from its newest checkpoint" says_error 'going on from .*checkpoint.h5'
    judge "SIG$signal: the losses of a training that was not ended" test "$(losses "$work/whole")" = "$(losses "$work/by-$signal")"
  done
  run "$cosmoflow" $long $batch --time-limit 0.0001 --set checkpoint.keep=2 --out "$work/limited"
  judge '--time-limit: exit code 75' test "$status" = 75
  run "$cosmoflow" train --data "$universes" --filters 2 --batch 4 --epochs 1 --precision float64 --set data.test_fraction=0.3 \
    --out "$work/limited"
  judge 'another training there, which a signal would let write one, too, is refused' refuses_once 'limited/recipe.toml exists'
  ranks 2 "$cosmoflow" $long $batch --grid depth=2 --time-limit 0.0001 --set checkpoint.keep=2 --resume --out "$work/limited"
  judge '--time-limit on two ranks, which go on from one: exit code 75' test "$status" = 75
  run "$cosmoflow" $long --batch 3 --resume "$work/limited/checkpoint-2.h5" --out "$work/other"
  judge 'an epoch of other steps than the one in whose middle it ended is refused' refuses_once '2 steps into an epoch of 3; now an epoch has 2'
  printf nothing | dd of="$work/limited/checkpoint.h5" bs=1 conv=notrunc 2>"$work/dd"
  run "$cosmoflow" $long $batch --resume --out "$work/limited"
  judge 'a damaged checkpoint is skipped, and it is said' says_error 'skipped: .*limited/checkpoint.h5'
  judge 'the checkpoint before is resumed' says_error 'going on from .*limited/checkpoint-[0-9]*.h5'
  run "$cosmoflow" $long $batch --seed 5 --resume --out "$work/limited"
  judge 'another training is refused, and no older checkpoint looked for' refuses_once 'limited/checkpoint.h5 was trained with seed 1, now it is 5'
  run "$cosmoflow" train --data "$universes" --filters 2 --batch 4 --epochs 1 --precision float64 --set data.test_fraction=0.3 \
    --out "$work/results"
  run "$cosmoflow" train --data "$universes" --filters 2 --batch 4 --epochs 1 --precision float64 --set data.test_fraction=0.3 --resume \
    --out "$work/results"
  judge 'results without a checkpoint are not replaced by --resume' refuses_once 'results/weights.h5 exists'
  # A job that dies before the first checkpoint that it was asked for has one of its start, and comes again.
  alone="train --data $universes --filters 2 --precision float64 --set data.test_fraction=0.3 --batch 2 --checkpoint-minutes 1000 --set report.mllog --resume"
  "$cosmoflow" $alone --epochs 4000 --quiet --out "$work/early" >"$work/out" 2>"$work/err" &
  child=$!
  waited=0
  while [ ! -e "$work/early/metrics.csv" ] && [ "$waited" -lt 6000 ]; do sleep 0.01; waited=$((waited + 1)); done
  kill -KILL "$child"
  wait "$child" || status=$?
  run "$cosmoflow" $alone --epochs 12 --set checkpoint.allow_changes --out "$work/early"
  judge 'a job that died before its first checkpoint begins again' says_error 'going on from .*checkpoint.h5: 0 epochs and 0 steps'
  judge 'and has the losses of one that did not' test "$(losses "$work/whole")" = "$(losses "$work/early")"
  run "$cosmoflow" $alone --epochs 12 --out "$work/early"
  judge 'one that is over is not trained again' says_error 'going on from .*checkpoint.h5: 12 epochs and 0 steps'
  # Weights cut along filters and channels at once, and on from there on another grid.
  threads 4 "$cosmoflow" $long $batch --grid filter=2,channel=2 --time-limit 0.0001 --out "$work/twice"
  judge 'filters and channels at once: a limit ends it' test "$status" = 75
  threads 2 "$cosmoflow" $long $batch --grid stage=2 --resume --out "$work/twice"
  judge 'in two stages it goes on' says_error 'going on from .*checkpoint.h5'
  judge 'and has the losses of one rank' near_losses "$work/whole/metrics.csv" "$work/twice/metrics.csv"
  # From a file of another folder: this one has checkpoints of its own then.
  run "$cosmoflow" ${alone% --resume} --epochs 13 --set checkpoint.allow_changes --resume "$work/whole/checkpoint.h5" --out "$work/elsewhere"
  judge 'from a file of another folder' says_error 'epoch 13/13'
  run "$cosmoflow" $alone --epochs 13 --out "$work/elsewhere"
  judge 'the folder that it goes on in has a checkpoint, too' says_error 'going on from .*elsewhere/checkpoint.h5: 13 epochs'
  mkdir "$work/empty"
  run "$cosmoflow" $long $batch --resume "$work/empty" --out "$work/other"
  judge 'a folder without checkpoints is refused' refuses_once 'no checkpoint in .*empty can be resumed'
}

# ---- a disk that is full while a checkpoint is saved: the one before is whole and is resumed
cat >"$work/filled.sh" <<'END'
set -u
mount -t tmpfs -o size=64m tmpfs "$1" || exit 99
disk=$1 result=$2
shift 2
"$@" --time-limit 0.0001 --out "$disk/run" >"$result/first" 2>&1
echo $? >"$result/codes"
cp "$disk/run/checkpoint.h5" "$result/before.h5"
dd if=/dev/zero of="$disk/filler" bs=64k 2>"$result/dd"
truncate -s -64K "$disk/filler" # lines of tables still fit
"$@" --resume --out "$disk/run" >"$result/full" 2>&1
echo $? >>"$result/codes"
cp "$disk/run/checkpoint.h5" "$result/after.h5"
ls -A "$disk/run" >"$result/files"
rm "$disk/filler"
"$@" --resume --out "$disk/run" >"$result/last" 2>&1
echo $? >>"$result/codes"
cp "$disk/run/metrics.csv" "$result"
END
mkdir "$work/disk" "$work/filled"
filling="train --data $work/scans.h5 --filters 4 --batch 3 --epochs 2 --precision float64 --quiet --set checkpoint.steps=1"
# shellcheck disable=SC2086  # several options
if unshare -rm mount -t tmpfs tmpfs "$work/disk" 2>/dev/null; then
  run "$classify" $filling --out "$work/not-filled"
  run unshare -rm sh "$work/filled.sh" "$work/disk" "$work/filled" "$classify" $filling --transport threads
  judge 'a full disk ends one training of three: 75, 1 and 0' test "$(tr '\n' ' ' <"$work/filled/codes")" = '75 1 0 '
  judge 'it names the file' grep -q '^\[.*run/checkpoint.h5.*: No space left on device' "$work/filled/full"
  judge 'the checkpoint before it is what it was' cmp -s "$work/filled/before.h5" "$work/filled/after.h5"
  judge 'and nothing of another lies beside it' test "$(grep -c '\.part$' "$work/filled/files")" = 0
  judge 'it is resumed, with the losses of a training that was not ended' \
    test "$(cut -d, -f 1-3 "$work/not-filled/metrics.csv")" = "$(cut -d, -f 1-3 "$work/filled/metrics.csv")"
else
  skipped=$((skipped + 5)) && printf 'skipped: 5 this machine mounts no small disk\n'
fi

# ---- ranks that are killed at any time, while checkpoints are written, too
kills=6
[ -z "${MPIGRAD_TEST_ALL:-}" ] || kills=100
victim="train --data $work/scans.h5 --filters 4 --batch 6 --epochs $((kills * 120)) --set network.norm_momentum=0.5 --precision float64 --quiet --set data.flips"
# shellcheck disable=SC2086  # several options
{
  began=$(date +%s%N)
  ranks 2 "$classify" $victim --out "$work/spared"
  judge 'a training of two ranks' succeeds
  took=$(($(date +%s%N) - began))
  hung=0 unreadable=0 killed=0
  # processes PATTERN: those whose command line begins so, by what Linux tells.
  processes() {
    for entry in /proc/[0-9]*; do
      if tr '\0' ' ' <"$entry/cmdline" 2>/dev/null | grep -q "^$1"; then echo "${entry#/proc/}"; fi
    done
  }
  # Together less than the training takes, on this machine as it is now.
  for wait in $(awk -v n="$kills" -v took="$took" 'BEGIN { srand(20261123); for (i = 0; i < n; ++i) printf "%.2f ", 0.15 + 1.5e-9 * took / n * rand() }'); do
    $MPIEXEC -n 2 "$classify" $victim --set checkpoint.steps=1 --set checkpoint.keep=2 --resume \
      --out "$work/killed" >"$work/out" 2>"$work/err" \
      </dev/null &
    launcher=$!
    sleep "$wait"
    tenths=0
    while victims=$(processes "$classify train .*--out $work/killed"); [ -z "$victims" ] && kill -0 "$launcher" 2>/dev/null && [ "$tenths" -lt 300 ]; do
      sleep 0.1
      tenths=$((tenths + 1))
    done
    # One rank, or all of them.
    if [ $((killed % 2)) -eq 0 ]; then victims=${victims%%"
"*}; fi
    if [ -n "$victims" ]; then
      kill -KILL $victims 2>/dev/null || true
      killed=$((killed + 1))
    fi
    tenths=0
    while kill -0 "$launcher" 2>/dev/null && [ "$tenths" -lt 100 ]; do sleep 0.1; tenths=$((tenths + 1)); done
    if kill -KILL "$launcher" 2>/dev/null; then hung=$((hung + 1)); fi
    wait "$launcher" 2>/dev/null || true
    ! grep -q 'skipped\|no checkpoint in .* is whole' "$work/err" || unreadable=$((unreadable + 1))
  done
  # Not each time: the training may end first where the machine becomes faster.
  judge "ranks were killed at least once, of $kills times" test "$killed" -ge 1
  judge 'no other rank lived longer than 10 s' test "$hung" = 0
  judge 'no checkpoint was unreadable' test "$unreadable" = 0
  ranks 2 "$classify" $victim --resume --out "$work/killed"
  judge 'the training ends' succeeds
  judge 'with the losses of one that was spared' test "$(cut -d, -f 1-3 "$work/spared/metrics.csv")" = "$(cut -d, -f 1-3 "$work/killed/metrics.csv")"
}
summary
