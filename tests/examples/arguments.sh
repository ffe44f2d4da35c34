#!/bin/sh
# Runs the command-line tools with arguments and variables that make no sense or mean nothing, and with nowhere to print to: each
# is refused, or said. Prints `failed: NAME` for each failed test and ends with `N passed, M failed, K skipped`. tests/run.sh
# calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher

tools=$build/examples
. "$root/tests/suite.sh"

needs 'the tools are' "$tools/cosmoflow"

run "$tools/cosmoflow" train --version
judge 'cosmoflow train has no version of its own' refuses_arguments '^cosmoflow: --version is given before the command'
run "$tools/cosmoflow" --seed 3 train
judge 'nor cosmoflow a seed without its command' refuses_arguments '^cosmoflow: --seed is given after the command'
for tool in cosmoflow plan universe; do
  run "$tools/$tool" --version
  judge "$tool says its version" says '^mpigrad [0-9][0-9]*[.][0-9.]*, commit [0-9a-z][0-9a-z.-]*$'
done

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
  run "$tools/cosmoflow" train --data x --set network.batch_norm "$@"
  judge "cosmoflow refuses $*" refuses_arguments "^cosmoflow: $pattern"
}
without_effect 'schedule.milestones is of schedule.shape step, not of cosine' --set schedule.milestones=1,2
without_effect 'schedule.decay_factor is of schedule.shape step' --set schedule.decay_factor=0.5 --set schedule.shape=linear
without_effect 'optimizer.momentum is of optimizer.name sgd and lars, not of adam' --set optimizer.momentum=0.5
run "$tools/cosmoflow" train --data x --set network.statistics=local
judge 'cosmoflow refuses network.statistics without batch norm' refuses_arguments 'network.statistics is of network.batch_norm'
run "$tools/universe" power --k 0.1 --kmin 0.01
judge 'universe refuses a range beside wavenumbers' refuses_arguments '--kmin describes a range'
run "$tools/cosmoflow" trian
judge 'a misspelt command is named' refuses_arguments "^cosmoflow: there is no command 'trian': train, evaluate"
run "$tools/cosmoflow"
judge 'a missing command is asked for' refuses_arguments '^cosmoflow: a command is missing: train, evaluate'
run "$tools/cosmoflow" train --describe --size 64 --set data.flips
judge 'describe says what means nothing to it' warns 'data.flips has no effect with --describe'
run "$tools/cosmoflow" train --describe --size 64 --batch 4 --optimizer sgd --set optimizer.momentum=0.5
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

# ---- nor does it end what has work to do: readers that go, full devices, closed descriptors
run "$tools/universe" generate --out "$work/universes" --universes 6 --size 16 --cell 8 --spread
training="train --data $work/universes --filters 2 --batch 2 --epochs 3"
trained() { [ "$(cat "$work/status")" -eq "$1" ] && [ -s "$work/$2/weights.h5" ]; }
trained_unprinted() {
  trained 1 printed && [ "$(tail -n 1 "$work/err")" = '[output] standard output could not be written completely: No space left on device' ]
}
# train OUT HOW: by a shell that closes or leads elsewhere what the command says
train() {
  out=$1 how=$2
  # shellcheck disable=SC2086  # several options
  { sh -c "{ \"\$@\" --out $work/$out; echo \$? >$work/status; } $how" sh "$tools/cosmoflow" $training; } >"$work/out" 2>"$work/err" </dev/null
  status=$(cat "$work/status")
}
train read '2>&1 | head -n 1'
judge 'a reader of all that is printed goes: the training ends well' trained 0 read
train progress '2>&1 >/dev/null | head -n 1'
judge 'a reader of its progress goes' trained 0 progress
train full '2>/dev/full'
judge 'no room for its progress' trained 0 full
train printed '>/dev/full'
judge 'no room for what it prints: it is trained, and said' trained_unprinted
train closed '<&- >&- 2>&-'
judge 'descriptors 0 to 2 are closed' trained 0 closed
train output '>&-'
judge 'descriptor 1 is closed' trained 0 output
# The files that are read first would have been descriptor 1, and printed into.
run "$tools/universe" generate --out "$work/again" --universes 6 --size 16 --cell 8 --spread
same_data() {
  for file in "$work"/again/*; do cmp -s "$file" "$work/universes/${file##*/}" || return 1; done
}
judge 'and data are what they were' same_data
# shellcheck disable=SC2016
run sh -c '"$@" | head -n 1' sh "$tools/universe" power
one_line() { silent && [ "$(wc -l <"$work/out")" -eq 1 ]; }
judge 'a table whose reader goes' one_line

# ---- more threads than make sense
for threads in 100000 65 3000000000; do
  [ "$(getconf _NPROCESSORS_ONLN)" -le 16 ] || [ "$threads" -ne 65 ] || continue
  run env OMP_NUM_THREADS="$threads" "$tools/universe" power --k 0.1
  judge "OMP_NUM_THREADS=$threads is refused" refuses_arguments '^\[launch\] OMP_NUM_THREADS is '"$threads, but at most"
done
ranks 2 env MPIGRAD_THREADS=100000 "$tools/universe" power --k 0.1
judge 'MPIGRAD_THREADS=100000 is refused on two ranks' refuses_arguments '^\[launch\] MPIGRAD_THREADS is 100000, but at most'

# ---- short waits of OpenMP's threads: what OpenMP itself says that it has read
spins() {
  times=$1
  shift
  run env -u GOMP_SPINCOUNT -u OMP_WAIT_POLICY OMP_NUM_THREADS=2 OMP_DISPLAY_ENV=verbose "$@" "$tools/cosmoflow" --help
  [ "$status" -eq 0 ] && [ "$(grep -c "GOMP_SPINCOUNT = '3000'" "$work/err")" -eq "$times" ]
}
[ "$(nproc)" -eq 1 ] || judge 'a trainer shortens the waits of its threads' spins 1 MPIGRAD_THREADS=2
judge 'unless the user has chosen them' spins 0 OMP_WAIT_POLICY=active
judge 'or there is one thread' spins 0 OMP_NUM_THREADS=1

# ---- less memory than is needed; 4 GiB hold libraries, MPI and what oneDNN takes
limited() { # limited OPTION KIB COMMAND...
  option=$1 kib=$2
  shift 2
  # shellcheck disable=SC2016
  run sh -c 'ulimit "$0" "$1" && shift && exec "$@"' "$option" "$kib" "$@"
}
limited -v 600000 "$tools/universe" power --k 0.1
judge 'a limit on addresses that MPI would not survive' refuses_arguments '^\[launch\] the limit on address space (ulimit -v) is 0.57 GiB'
limited -v 4000000 "$tools/universe" generate --out "$work/refused" --size 1024 --cell 2 --universes 1
judge 'universes that memory does not hold' refuses_once '^\[generate\] --size 1024^3 cells on 1 ranks: 206158430208 bytes .* are available$'
limited -d 2000000 "$tools/universe" generate --out "$work/refused" --size 1024 --cell 2 --universes 1
judge 'nor a limit on data, which leaves less' refuses_once ' are needed, [0-9]* ([01]\.[0-9] GiB) are available$'
rm -rf "$work/refused"

judge 'refused runs leave nothing behind' no_file "$work/refused"

summary
