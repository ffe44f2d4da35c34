#!/bin/sh
# Runs examples/first/own_training.cpp without a grid, on 2 processes and on 3 threads: the same losses and predictions, progress
# once, and its files. Prints `failed: NAME` for each failed test and ends with `N passed, M failed, K skipped`. tests/run.sh
# calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher

program=$build/examples/own_training
. "$root/tests/suite.sh"

needs 'the examples are' "$program"
cd "$work" || die "no folder $work"

# Eight epochs, of which the last has the smaller losses, and three predictions.
learns() {
  succeeds && awk '
    $1 == "epoch" { n++; if (n == 1) { loss = $4; kept = $6 } last = $4; last_kept = $6 }
    $1 == "sample" { samples++ }
    END { exit !(n == 8 && samples == 3 && last + 0 < loss / 2 && last_kept + 0 < kept / 2) }' "$work/out"
}
# The numbers of the first run, to the last digit but one.
as_alone() {
  succeeds && [ "$(wc -l <"$work/out")" -eq 11 ] && paste "$work/alone" "$work/out" | awk '
    { for (i = 1; i <= NF / 2; i++) { d = $i - $(i + NF / 2); if (d > 3e-9 || d < -3e-9) exit 1 } }'
}
progress_once() { [ "$(grep -c '^epoch 8/8 6/6  loss .*  validation [0-9.e-]*$' "$work/err")" -eq 1 ]; }
run "$program"
judge 'own_training without a grid learns' learns
cp "$work/out" "$work/alone"
judge 'it shows the validation error' progress_once
judge 'its table' test "$(wc -l <own_training-out/metrics.csv)" -eq 9
judge 'its network' test -s own_training-out/network.h5
ranks 2 "$program"
judge 'own_training on 2 processes: the same numbers' as_alone
judge 'of whom one shows progress' progress_once
threads 3 "$program"
judge 'own_training on 3 threads: the same numbers' as_alone
judge 'of which one shows progress' progress_once

summary
