#!/bin/sh
# The folder of a run: one run at a time has it. Prints `failed: NAME` for each failed test and ends with
# `N passed, M failed, K skipped`. tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
. "$root/tests/packages.sh"
choose_launcher
tools=$build/examples
. "$root/tests/suite.sh"

if [ ! -x "$tools/cosmoflow" ]; then
  printf 'skipped: 1 the tools are not built\n0 passed, 0 failed, 1 skipped\n'
  exit 0
fi
cd "$work" || exit 1
cosmoflow=$tools/cosmoflow
run "$tools/universe" generate --out universes --universes 6 --size 16 --cell 8 --seed 1
judge 'universes' succeeds
short="train --data universes --filters 2 --batch 2 --test-fraction 0.3 --quiet"

# begin OUT COMMAND...: in the background, until it has a table of epochs; its process is $begun.
begin() {
  table=$1/metrics.csv
  shift
  "$@" >"$work/begun.out" 2>"$work/begun.err" </dev/null &
  begun=$!
  waited=0
  while [ ! -e "$table" ] && kill -0 "$begun" 2>/dev/null && [ "$waited" -lt 6000 ]; do sleep 0.01; waited=$((waited + 1)); done
}
end() { kill -"$1" "$begun"; wait "$begun" 2>/dev/null; }

# ---- one run at a time
# shellcheck disable=SC2086  # several options
{
  taken='another process is at work in held: process [0-9]* on '
  begin held "$cosmoflow" $short --epochs 100000 --out held
  ranks 2 "$cosmoflow" $short --epochs 1 --overwrite --out held
  judge 'a second training in a folder is refused on all ranks, once' refuses_arguments "$taken"
  run "$tools/universe" generate --out held --universes 1 --size 16 --cell 8
  judge 'another program, too' refuses_arguments "$taken"
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
# ---- more
summary
