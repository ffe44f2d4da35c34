#!/bin/sh
# Runs examples/first/neural_operator.cpp at a tiny size on 1 and 2 ranks: it learns, errors agree to rounding, and the folder gets
# its files. Prints `failed: NAME` for each failed test and ends with `N passed, M failed, K skipped`. tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher

program=$build/examples/neural_operator
. "$root/tests/suite.sh"

needs 'the examples are' "$program"

# field N: the N-th of the two errors that the program printed, after and before training.
field() { sed -n "s/.*: error \([0-9.]*\), before \([0-9.]*\)\$/\\$1/p" "$work/out"; }
learns() { succeeds && awk -v after="$(field 1)" -v before="$(field 2)" 'BEGIN { exit !(after > 0 && after < 0.8 * before) }'; }
as_alone() { learns && about "$(field 1)" "$alone"; }
for problem in 'burgers 20 32 12' 'darcy 20 16 12'; do
  # shellcheck disable=SC2086  # an argument for each word
  run "$program" $problem 1 "$work/data" --transport threads --ranks 1
  judge "neural_operator $problem learns" learns
  alone=$(field 1)
  judge "neural_operator $problem: its files" test -s "$work/data/inputs.npy" -a -s "$work/data/solutions.npy" -a -s "$work/data/network.h5"
  # shellcheck disable=SC2086
  ranks 2 "$program" $problem 1
  judge "neural_operator $problem on 2 processes" as_alone
  rm -rf "$work/data"
done
run "$program" heat
judge 'neural_operator refuses other problems' refuses 'the problem is burgers or darcy: heat'
run "$program" darcy 3
judge 'neural_operator refuses so few samples that none are left for a test' refuses '4 training samples or more'

summary
