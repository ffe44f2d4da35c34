#!/bin/sh
# Runs the command-line tools with arguments and variables that make no sense or mean nothing, and with nowhere to print to: each
# is refused, or said. Prints `failed: NAME` for each failed test and ends with `N passed, M failed, K skipped`. tests/run.sh
# calls it.
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

# ---- what would be accepted without effect
for bad in 99999999999999999999 9223372036854775808 010 0x10 1.5 -1 ''; do
  run "$tools/cosmoflow" train --data x --seed "$bad"
  judge "cosmoflow refuses --seed '$bad'" refuses_arguments '^cosmoflow: --seed: a whole number'
  run "$tools/universe" generate --out "$work/refused" --seed "$bad"
  judge "universe refuses --seed '$bad'" refuses_arguments '^universe: --seed: a whole number'
done
run "$tools/cosmoflow" train --data x --epochs 010
judge 'cosmoflow refuses a number that could be octal' refuses_arguments "--epochs: .*'010'"
for bad in MPIGRAD_THREADS=abc MPIGRAD_THREADS=-3 MPIGRAD_THREADS=0 MPIGRAD_THREADS=99999999999999999999 MPIGRAD_THREADS=2.5 \
  MPIGRAD_TRANSPORT=tcp MPIGRAD_RANKS=two MPIGRAD_RANKS=0 MPIGRAD_DEVICE=gpu MPIGRAD_CHECKS=sometimes \
  MPIGRAD_CHECKS=watchdog=-1 MPIGRAD_CHECKS=signatures=0 MPIGRAD_REDUCTIONS=any MPIGRAD_CUDA_AWARE_MPI=yes \
  MPIGRAD_GPU_POISON=yes; do
  variable=${bad%%=*}
  run env "$bad" "$tools/universe" power --k 0.1
  judge "$bad is refused" refuses_arguments "$variable"
  ranks 2 env "$bad" "$tools/universe" power --k 0.1
  judge "$bad is refused under the launcher" refuses_arguments "$variable"
done
run env MPIGRAD_CHECK=same MPIGRAD_THREAD=2 MPIGRAD_REDUCTION=fixed "$tools/universe" power --k 0.1
for word in CHECK THREAD REDUCTION; do
  judge "a mistyped MPIGRAD_$word is said" warns "MPIGRAD_$word; MPIGRAD_${word}S is read"
done
run env MPIGRAD_CHECKS=same MPIGRAD_THREADS=2 MPIGRAD_OTHER_PROGRAM=1 "$tools/universe" power --k 0.1
judge 'what is typed right is not' silent
without_effect() { # without_effect PATTERN OPTIONS...
  pattern=$1
  shift
  run "$tools/cosmoflow" train --data x --batch-norm "$@"
  judge "cosmoflow refuses $*" refuses_arguments "^cosmoflow: $pattern"
}
without_effect '--milestones is of --schedule step, not of cosine' --milestones 1,2
without_effect '--decay-factor is of --schedule step' --decay-factor 0.5 --schedule linear
without_effect '--momentum is of --optimizer sgd and lars, not of adam' --momentum 0.5
run "$tools/cosmoflow" train --data x --statistics local
judge 'cosmoflow refuses --statistics without batch norm' refuses_arguments '--statistics is of --batch-norm'
run "$tools/universe" power --k 0.1 --kmin 0.01
judge 'universe refuses a range beside wavenumbers' refuses_arguments '--kmin is of a range'
run "$tools/cosmoflow" trian
judge 'a misspelt command is named' refuses_arguments "^cosmoflow: there is no command 'trian': train, evaluate"
run "$tools/cosmoflow"
judge 'a missing command is asked for' refuses_arguments '^cosmoflow: a command is missing: train, evaluate'
run "$tools/cosmoflow" train --describe --size 64 --flips --out x
judge 'describe says what means nothing to it' warns '--flips, --out have no effect with --describe'
run "$tools/cosmoflow" train --describe --size 64 --batch 4 --optimizer sgd --momentum 0.5
judge 'describe warns of nothing else' silent

# ---- what did not arrive was not printed
full "$tools/cosmoflow" train --describe --size 64 --json
judge 'cosmoflow --describe to a full device fails' refuses_full
full "$tools/universe" power
judge 'universe power to a full device fails' refuses_full
# shellcheck disable=SC2016
ranks 2 sh -c 'exec "$@" >/dev/full' sh "$tools/universe" power
judge 'universe power to a full device fails under the launcher' refuses_full
full "$tools/universe" generate --out "$work/full" --universes 1 --size 16 --cell 8
judge 'universe generate to a full device fails' refuses_full
full "$tools/two_ranks" --transport threads --ranks 2
judge 'two_ranks to a full device fails' refuses_full
# shellcheck disable=SC2016
ranks 2 sh -c 'exec "$@" >/dev/full' sh "$tools/two_ranks"
judge 'two_ranks to a full device fails under the launcher' refuses 'No space left on device'

judge 'refused runs leave nothing behind' no_file "$work/refused"

summary
