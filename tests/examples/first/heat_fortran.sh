#!/bin/sh
# Tests the heat equation in Fortran, with exchanges of ours and of its own, and with a network as closure. Ends with
# `N passed, M failed, K skipped`.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher
. "$root/tests/suite.sh"
programs=$build/examples
needs 'the examples in Fortran are' "$programs/heat_before" "$programs/heat_fortran" "$programs/heat_messages" "$programs/heat_closure"

# The energy of the program without gradients, the same gradient by both versions, and a rate of 2 of the Taylor test.
run "$programs/heat_before"
energy=$(sed -n 's/^energy *//p' "$work/out")
has_energy() { succeeds && [ -n "$energy" ]; }
judge 'heat_before prints its energy' has_energy
right() {
  succeeds && [ "$(sed -n 's/^energy *//p' "$work/out")" = "$energy" ] && grep -q '^gradient *4\.7326' "$work/out" &&
    awk '/^Taylor test: rate/ { rate = $4 } END { exit !(rate > 1.9 && rate < 2.1) }' "$work/out"
}
for p in 1 2 3 4; do
  ranks $p "$programs/heat_fortran"
  judge "heat_fortran on $p ranks" right
done
for p in 1 2; do
  ranks $p "$programs/heat_messages"
  judge "heat_messages on $p ranks" right
done
ranks 2 "$programs/heat_closure"
learned() { succeeds && awk '/^the learned conductivity/ { off = $NF; n++ } END { exit !(n == 1 && off < 0.05) }' "$work/out"; }
judge 'the network learns the conductivity through the solver' learned

# Lines of the program that differ from those before, without comments, wrapper, adjoint and check.
code() { sed '/^ *!/d; /^ *$/d'; }
sed '1,/^! ---- the program/d; /---- for the check/,/---- end/d' "$root/examples/first/coupling/heat.f90" | code >"$work/after"
code <"$root/examples/first/coupling/heat_before.f90" >"$work/before"
few() { [ "$(wc -l <"$work/before")" -gt 20 ] && [ "$(diff "$work/before" "$work/after" | grep -c '^>')" -le 15 ]; }
judge 'at most 15 lines of the program change' few

summary
