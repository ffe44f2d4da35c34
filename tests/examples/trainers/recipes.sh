#!/bin/sh
# Each recipe of examples/trainers/recipes is accepted by its program: keys and values, alone and together. With data that are
# missing the message is about the data, and the network can be described. Prints `failed: NAME` for each failed test and ends with
# `N passed, M failed, K skipped`. tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher
. "$root/tests/suite.sh"

tools=$build/examples recipes=$root/examples/trainers/recipes
needs 'the tools are' "$tools/cosmoflow" "$tools/unet3d" "$tools/classify" "$tools/contact_maps" "$tools/contrastive"

missing=$work/missing
# One line, which says that the data are missing; so keys without effect, of which a warning tells, fail too.
lacks_data() {
  { [ "$status" -eq 1 ] || [ "$status" -eq 2 ]; } && [ "$(wc -l <"$work/err")" -eq 1 ] && grep -q -F -e "$missing: no such file or folder" "$work/err"
}
in_table() { grep -q -F -e "]($1)" "$recipes/README.md"; }
status=0
: >"$work/err"
set -- "$recipes"/*.toml
judge "the README's table has no other recipes" test "$(grep -c '^| \[' "$recipes/README.md")" -eq $#
for recipe in "$recipes"/*.toml; do
  name=$(basename "$recipe")
  program=$tools/$(sed -n 's/^program = "\(.*\)"$/\1/p' "$recipe")
  judge "$name is in the README's table" in_table "$name"
  ranks=$(sed -n 's/^extents = "[a-z]*=\([0-9]*\)".*/\1/p' "$recipe")
  threads "${ranks:-2}" "$program" train "$recipe" --data "$missing" --out "$work/run"
  judge "$name: its keys are accepted" lacks_data
  case $program in
    *contrastive) if grep -q '^size = ' "$recipe"; then set --; else set -- --set data.size=32,32; fi ;;
    *unet3d) set -- ;;
    *) set -- --size 64 ;;
  esac
  run "$program" train "$recipe" --describe --json "$@"
  judge "$name: its network is described" is_json
done

# The test can fail: a key of another program, and a value out of range.
sed 's/^flips = .*/window = [40]/' "$recipes/quickstart.toml" >"$work/key.toml"
sed 's/^test_fraction = .*/test_fraction = 2/' "$recipes/quickstart.toml" >"$work/value.toml"
for wrong in key value; do
  threads 2 "$tools/cosmoflow" train "$work/$wrong.toml" --data "$missing" --out "$work/run"
  judge "a recipe with a wrong $wrong is refused" refuses_arguments "$wrong.toml:[0-9]*: .*data\."
done

summary
