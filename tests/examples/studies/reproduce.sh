#!/bin/sh
# examples/studies/reproduce.sh: the documents whose studies take seconds, a second run, a study that fails, wrong arguments. Prints
# `failed: NAME` for each failed test and ends with `N passed, M failed, K skipped`. tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher

tools=$build/examples
. "$root/tests/suite.sh"

needs 'plan and the lessons are' "$tools/plan" "$tools/lessons/08_contrastive"
folder=$root/examples/studies/reproduce
mkdir "$work/build"
ln -s "$tools" "$work/build/examples"
reproduce() { run python3 "$folder/reproduce.py" --build "$work/build" --launcher "$MPIEXEC" --quick "$@"; }
page=$work/build/reproduce-quick/report.html
# All claims have a value; published and own numbers stand in one row.
has_page() {
  succeeds && ! grep -q 'class="failed"' "$page" && ! grep -q 'src="[^d]' "$page" && grep -q 'are 4 x 2, .*class="own">4 x 2, 8 x 4' "$page" &&
    grep -q 'class="own">18.3672128, 32.8884724, ' "$page"
}
reproduce krajsek gholami kahira
judge 'three documents' has_page
touch "$work/before"
again() { has_page && [ "$(grep -c ': done before' "$work/out")" -eq 5 ]; }
reproduce krajsek gholami kahira
judge 'a second run repeats nothing' again

cp -r "$folder/claims" "$work/claims"
sed -i 's|^quick = "{build}/plan figures --documents gholami|quick = "{build}/plan figures --documents absent|' "$work/claims/3_gholami.toml"
reproduce --claims "$work/claims" gholami kahira
says_failure() { [ "$status" -eq 1 ] && grep -q 'class="failed">the run failed with status [12]: .*absent' "$page" && grep -q 'class="own">18.3672128' "$page"; }
judge 'a study that fails: the others are reported, exit code 1' says_failure
run sh "$root/examples/studies/reproduce.sh" --quick newton
judge 'a document that is not there' refuses_arguments 'there is no document newton; there are krajsek, oyama'
run sh "$root/examples/studies/reproduce.sh" --list
lists() { succeeds && [ "$(grep -c ' minutes with --quick, ' "$work/out")" -eq 6 ] && python3 - "$folder/claims" <<'END'
import pathlib, sys, tomllib
runs = [run for file in pathlib.Path(sys.argv[1]).glob('*.toml') for run in tomllib.loads(file.read_text())['run']]
assert sum(r['minutes'][0] for r in runs) <= 20
documents = {r['document'] for r in runs}
assert all(sum(r['minutes'][1] for r in runs if r['document'] == d) <= 150 for d in documents)
END
}
judge 'quick runs take at most 20 minutes, a document 150' lists

summary
