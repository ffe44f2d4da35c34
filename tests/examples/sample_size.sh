#!/bin/sh
# `sample_size`: a small study from universes to the table, gone on with, and what it refuses. Prints `failed: NAME` for each failed
# test and ends with `N passed, M failed, K skipped`. tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
. "$root/tests/packages.sh"
choose_launcher

tools=$build/examples
. "$root/tests/suite.sh"

if [ ! -x "$tools/sample_size" ]; then
  printf 'skipped: 1 sample_size is not built\n0 passed, 0 failed, 1 skipped\n'
  exit 0
fi
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
# shellcheck disable=SC2086
run "$tools/sample_size" $small --sizes 16 --report --json
judge 'a report of a part, on one rank' holds "[s['size'] for s in d['sizes']] == [16]"
judge 'errors of three kinds, with floors' holds "all(k in json.dumps(d) for k in ('floor', 'average', 'scaled'))"

study --sizes 16 --learning-rate 0.01
judge 'another study in the folder' refuses 'is of another study'
study --sizes 24
judge 'sides that the network cannot have' refuses_arguments 'sides are powers of two\|cannot be cut'
study --sizes 64
judge 'cubes larger than the box' refuses_arguments 'cannot be cut'
study --sizes 16,16
judge 'a size twice' refuses_arguments 'twice'
study --sizes 16 --seeds 0
judge 'no seed' refuses_arguments 'seeds'
run "$tools/sample_size" --report --out "$work/nothing"
judge 'nothing to report' refuses_arguments 'no training of 16'
summary
