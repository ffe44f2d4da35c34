#!/bin/sh
# `sample_size`: a small study from universes to the table, gone on with, and what it refuses. Prints `failed: NAME` for each failed
# test and ends with `N passed, M failed, K skipped`. tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher

tools=$build/examples
. "$root/tests/suite.sh"

needs 'sample_size is' "$tools/sample_size"
out=$work/study
small="--box 32 --training 6 --test 5 --epochs 1 --out $out"
study() {
  # shellcheck disable=SC2086  # several words
  ranks 2 "$tools/sample_size" $small "$@"
}
holds() { succeeds && python3 -c "import json, sys; d = json.load(open(sys.argv[1])); sys.exit(not ($1))" "$work/out"; }

study --sizes 32,16 --seeds 2
judge 'a study' says '^sigma_8'
judge 'tells what it found beside what was published' says 'Oyama'
for file in sample_size.csv sample_size.json sample_size.png size016-seed2/predictions.csv size032-seed1/weights.h5; do
  judge "writes $file" test -s "$out/$file"
done
judge 'every cube of the test universes is predicted' test "$(wc -l <"$out/size016-seed1/predictions.csv")" -eq 41
cp "$out/sample_size.json" "$work/first.json"
rm "$out/size032-seed2/predictions.csv"
study --sizes 16,32 --seeds 2
judge 'what is missing is made again, from its checkpoint' grep -q 'going on from .*size032-seed2' "$work/err"
judge 'and nothing else' test "$(grep -c 'steps, grid' "$work/err")" -eq 1
judge 'with the same numbers' cmp "$work/first.json" "$out/sample_size.json"
run "$tools/sample_size" --out "$out" --report --json
judge 'a report of what is there, on one rank' holds "[s['size'] for s in d['sizes']] == [16, 32]"
judge 'is that of the study' cmp "$work/first.json" "$out/sample_size.json"
judge 'errors of three kinds, with floors' holds "all(k in json.dumps(d) for k in ('floor', 'average', 'scaled'))"
judge 'and those of the universes that were learned from' \
  holds "all(e['training']['cube']['rmse'] > 0 for s in d['sizes'] for p in s['parameters'].values() for e in (p, p['regression']))"
rm "$out/size016-seed2/training.csv"
run "$tools/sample_size" --out "$out" --report --json
judge 'which are left out where they were not kept' \
  holds "['training' in s['parameters']['sigma_8'] for s in d['sizes']] == [False, True]"
run "$tools/sample_size" --out "$out" --sizes 16 --report --json
judge 'a report of a part' holds "[s['size'] for s in d['sizes']] == [16] and 'findings' not in d"
mv "$out/size016-seed2/predictions.csv" "$work/predictions.csv"
run "$tools/sample_size" --out "$out" --report --json
judge 'seeds that all sizes have count' holds "[len(s['parameters']['sigma_8']['cube']['of_training']) for s in d['sizes']] == [1, 1]"
mv "$work/predictions.csv" "$out/size016-seed2/predictions.csv"
run "$tools/sample_size" --out "$out" --report --epochs 5
judge 'a report with other trainings' refuses_arguments 'excludes'

study --sizes 16 --learning-rate 0.01
judge 'another study in the folder' refuses_arguments 'is of another study'
study --sizes 24
judge 'sides that the network cannot have' refuses_arguments 'sides are powers of two\|cannot be cut'
study --sizes 64
judge 'cubes larger than the box' refuses_arguments 'cannot be cut'
study --sizes 16,16
judge 'a size twice' refuses_arguments 'twice'
run "$tools/sample_size" --box 256 --sizes 256 --out "$work/none"
judge 'cubes that the regression does not take' refuses_arguments 'at most 128^3'
run "$tools/sample_size" --box 32 --sizes 16 --test 100000 --out "$work/none"
judge 'more cells than it predicts' refuses_arguments '65536 boxes of 32^3'
study --sizes 16 --seeds 0
judge 'no seed' refuses_arguments 'seeds'
study --sizes 16 --test 3
judge 'too few universes' refuses_arguments 'test'
run "$tools/sample_size" --report --out "$work/nothing"
judge 'nothing to report' refuses_arguments 'no folder of a study'
mkdir "$work/theirs" && : >"$work/theirs/file"
run "$tools/sample_size" --out "$work/theirs"
judge 'a folder of something else' refuses_arguments 'of no study'
judge 'and it stays as it was' test "$(ls -A "$work/theirs")" = file

# ---- universes that are there

made() {
  run "$tools/universe" generate --transport threads --ranks 2 --size 16 --cell 4 --universes 36 --spread --out "$work/made/universes" "$@"
}
one="--box 16 --sizes 16 --training 32 --test 4 --seeds 1 --epochs 1 --quiet --out $work/made"
made --seed 3
# shellcheck disable=SC2086
run "$tools/sample_size" $one --seed 2
judge 'universes of another seed, made before' refuses_arguments 'is of another simulation: its seed is not 2'
# shellcheck disable=SC2086
run "$tools/sample_size" ${one%16 --sizes*}32 --sizes ${one#*--sizes } --seed 3
judge 'or of another box' refuses_arguments 'is of another simulation: its box is not 128'
judge 'and the folder is no study of theirs' no_file "$work/made/study.txt"
touch -d '2020-01-01' "$work"/made/universes/*
# shellcheck disable=SC2086
run "$tools/sample_size" $one --seed 3
judge 'universes of the study, made before' succeeds
judge 'a learning rate falls in one epoch, too' awk -F, 'NR == 2 { falls = $4 < 2e-4 } END { exit !falls }' "$work/made/size016-seed1/metrics.csv"
judge 'are taken as they are' test -z "$(find "$work/made/universes" -newermt 2021-01-01 -type f)"

# ---- killed in the middle of a training

one="--box 16 --sizes 16 --training 6 --test 4 --seeds 1 --epochs 120 --quiet"
# shellcheck disable=SC2086
run "$tools/sample_size" $one --seed 2 --out "$work/whole"
judge 'a study of another seed' succeeds
for attempt in 1 2 3; do
  rm -rf "$work/killed"
  # shellcheck disable=SC2086
  timeout -k 5 120 "$tools/sample_size" $one --seed 2 --out "$work/killed" >"$work/killed.out" 2>&1 &
  tries=0
  until [ -e "$work/killed/size016-seed1/checkpoint.h5" ] || [ "$tries" -gt 1200 ]; do
    sleep 0.05
    tries=$((tries + 1))
  done
  # Of timeout the child: what is killed itself hands no signal on.
  kill -KILL "$(pgrep -P $!)"
  wait $! 2>/dev/null
  [ -e "$work/killed/size016-seed1/predictions.csv" ] || break
done
judge 'killed in the middle' no_file "$work/killed/size016-seed1/predictions.csv"
# shellcheck disable=SC2086
run "$tools/sample_size" ${one% --quiet} --seed 2 --out "$work/killed"
judge 'it goes on in the middle' grep -q 'going on from .*epoch' "$work/err"
judge 'with the same numbers at the end' cmp "$work/whole/size016-seed1/predictions.csv" "$work/killed/size016-seed1/predictions.csv"
# shellcheck disable=SC2086
cp "$work/whole/universes/universe_00001.hdf5" "$work/killed/universes/universe_00003.hdf5"
rm "$work/killed/size016-seed1/predictions.csv"
# shellcheck disable=SC2086
run "$tools/sample_size" $one --seed 2 --out "$work/killed"
judge 'a universe of another simulation' refuses_arguments 'is of another simulation: its universe is not 3'
summary
