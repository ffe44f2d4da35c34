#!/bin/sh
# Runs examples/first/own_trainer.cpp: data of its own, the same losses on 1 and 2 ranks, --resume on another grid, evaluate and
# predict. Prints `failed: NAME` for each failed test and ends with `N passed, M failed, K skipped`. tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher

program=$build/examples/own_trainer
. "$root/tests/suite.sh"

needs 'the trainer is' "$program"
cd "$work" || die "no folder $work"

# With a schedule that does not depend on the number of epochs, so that --resume may add some.
options='train --data noise.h5 --precision float64 --set schedule.shape=constant'
files() { succeeds && for file in weights.h5 metrics.csv predictions.csv summary.json state; do [ -s "$1/$file" ] || return 1; done; }
# Losses, validation losses and metric of two tables: EPOCHS FIRST SECOND.
same() {
  succeeds && [ "$(wc -l <"$2/metrics.csv")" -eq "$(($1 + 1))" ] && paste -d, "$2/metrics.csv" "$3/metrics.csv" | awk -F, '
    NR == 1 { if ($2 != "train_loss" || $3 != "validation_loss" || $4 != "relative_error") exit 1; half = NF / 2; next }
    { n++; for (i = 1; i <= 4; i++) { d = $i - $(i + half); if (d > 3e-9 || d < -3e-9) exit 1 } }
    END { exit !n }'
}
learns() { awk -F, 'NR == 2 { first = $2 } { last = $2 } END { exit !(last + 0 < 0.8 * first) }' "$1/metrics.csv"; }
# The validation loss that the last command printed.
loss() { sed -n 's/^validation_loss \([^,]*\),.*/\1/p' "$work/out"; }
as_trained() { succeeds && about "$(loss)" "$trained" 1e-6; }

run "$program" make noise.h5
judge 'own_trainer makes its data' test -s noise.h5
# shellcheck disable=SC2086  # several options
run "$program" $options --epochs 2 --out alone
judge 'own_trainer on 1 rank' files alone
# shellcheck disable=SC2086
ranks 2 "$program" $options --epochs 2 --grid depth=2 --out both
judge 'on 2 ranks: the same losses' same 2 alone both
# shellcheck disable=SC2086
run "$program" $options --epochs 6 --out alone
judge 'a second run does not replace the files of the first' refuses 'exists'
# shellcheck disable=SC2086
run "$program" $options --epochs 2 --out parts --resume
judge 'a training that writes checkpoints' files parts
# shellcheck disable=SC2086
ranks 2 "$program" $options --epochs 6 --grid height=2 --out parts --resume
judge '--resume continues it on another grid' says 'written to parts'
# shellcheck disable=SC2086
run "$program" $options --epochs 6 --out whole
trained=$(loss)
judge 'as one training' same 6 whole parts
judge 'the loss falls' learns whole
# shellcheck disable=SC2086
run "$program" $options --epochs 8 --out parts --resume --width 6
judge 'another network is not continued' refuses 'was trained with problem'

ranks 2 "$program" evaluate --weights whole/weights.h5 --data noise.h5 --group val --grid width=2 --out scores
judge 'evaluate finds the loss of the training' as_trained
run "$program" predict --weights whole/weights.h5 --data noise.h5 --group val --out predictions
lines() { succeeds && [ "$(wc -l <predictions/predictions.csv)" -eq 17 ] && head -n 1 predictions/predictions.csv | grep -q '^sample,power_predicted$'; }
judge 'predict needs no targets' lines
# shellcheck disable=SC2086
run "$program" $options --epochs 1 --width 6 --set optimizer.average_weights=0.9 --set checkpoint.best --out wide
judge 'a setting of its own' files wide
run "$program" evaluate --weights wide/weights.h5 --data noise.h5 --group val --out wide-scores
judge 'which weights remember' says '^validation_loss'
run "$program" train --describe --size 16 --width 5
judge 'the layers of its network, one with a parameter of its own' says 'block'
run "$program" train --describe --size 16 --width 5 --grid depth=2
judge 'the same on 2 ranks' says '2 ranks\|depth=2'

summary
