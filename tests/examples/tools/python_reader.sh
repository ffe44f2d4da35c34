#!/bin/sh
# Reads the files of a training with the package examples/tools/python, if python3 has numpy and h5py. Prints `failed: NAME` for each
# failed test and ends with `N passed, M failed, K skipped`. tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"

tools=$build/examples
. "$root/tests/suite.sh"

needs 'the tools are' "$tools/own_trainer" "$tools/weights"
if ! python_with 'numpy, h5py'; then
  skip 'no python3 has numpy and h5py: the package mpigrad_read'
  summary
  exit
fi
cd "$work" || die "no folder $work"
PYTHONPATH=$root/examples/tools/python PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH PYTHONDONTWRITEBYTECODE

run "$tools/own_trainer" make noise.h5
run "$tools/own_trainer" train --data noise.h5 --epochs 2 --set report.profile --set checkpoint.epochs=2 --grid depth=2 --precision float64 \
  --transport threads --ranks 2 --out run
judge 'a training writes its files' says 'trace.json'
mv out printed
run "$tools/weights" convert run/weights.h5 weights.npz
run "$tools/weights" convert weights.npz half.h5 --like run/weights.h5 --half
judge 'and the weights tool others' says 'written to half.h5'
run "$tools/weights" list --json run/weights.h5
mv out list.json
run "$python" "$root/tests/examples/tools/python_reader.py" run printed list.json weights.npz half.h5
grep -e '^failed: ' -e '^skipped: ' out
for result in passed failed skipped; do eval "$result=\$(($result + $(grep -c "^$result: " out)))"; done
judge 'all tests in Python have run' succeeds

run "$python" -m mpigrad_read run/checkpoint.h5
judge 'python3 -m mpigrad_read says what a file is' says '^run/checkpoint.h5: checkpoint$'
judge 'and lists what is in it' says '^optimizer/second_moment/conv.weight  *float64  *\[4, 3, 3, 3, 1\]$'
run "$python" -m mpigrad_read run/recipe.toml
judge 'another file' refuses_once '^error: run/recipe.toml: neither weights, a checkpoint, .* nor a trace of mpigrad$'

summary
