#!/bin/sh
# Runs examples/first/heat_inverse.cpp without a grid and on 2 processes: it finds the conductivity, with the same numbers. Prints
# `failed: NAME` for each failed test and ends with `N passed, M failed, K skipped`. tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher

program=$build/examples/heat_inverse
. "$root/tests/suite.sh"

needs 'the examples are' "$program"

run "$program"
judge 'heat_inverse' says '^end: the gradient is within the tolerance after [0-9]* evaluations; error of k [0-9.]*e-0[5-9]$'
cp "$work/out" "$work/alone"
as_alone() { succeeds && cmp -s "$work/alone" "$work/out"; }
ranks 2 "$program"
judge 'heat_inverse on 2 processes' as_alone

summary
