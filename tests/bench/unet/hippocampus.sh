#!/bin/sh
# Trains the 3D U-Net on 160 of 200 hippocampi and scores it on the other 40, with windows mirrored from left to right; their choice
# does not depend on the training's seed. Writes the table in tests/bench/results/hippocampus.md. About an hour of CPU time for each seed.
#
#   sh tests/bench/unet/hippocampus.sh [FOLDER]      FOLDER: with images/ and labels/; ../shared/data/3d/hippocampus by default
#
# MPIGRAD_SEEDS: the seeds, "1 2 3" by default. MPIGRAD_KEEP: a folder for weights and tables of each seed.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
case "${1:-}" in
  -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
esac
data=${1:-$root/../shared/data/3d/hippocampus}
[ -d "$data/images" ] || die "there is no folder $data/images"

# shellcheck disable=SC2086,SC2154  # several names, from packages.sh
install_packages $test_packages
configure_tests
build_targets
tool=$build/examples/unet3d
[ -x "$tool" ] || die "$tool is not built: it needs the libraries of the examples"

seeds=${MPIGRAD_SEEDS:-1 2 3}
recipe=examples/trainers/recipes/hippocampus.toml
page=$root/tests/bench/results/hippocampus.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for seed in $seeds; do
  "$tool" train "$root/$recipe" --data "$data" --seed "$seed" --out "$work/$seed"
  "$tool" evaluate --weights "$work/$seed/weights.h5" --data "$data" --set predict.mirror=width --out "$work/$seed/mirrored"
  [ -z "${MPIGRAD_KEEP:-}" ] || cp -r "$work/$seed" "$MPIGRAD_KEEP/seed$seed"
done
# shellcheck disable=SC2086  # several seeds
python3 "$root/tests/bench/unet/hippocampus.py" "$work" "$recipe" "$(processor)" $seeds >"$work/page.md"
sed -n '/^## /,$p' "$page" >"$work/sections" # written by hand
{ cat "$work/page.md"; echo; cat "$work/sections"; } >"$page"
say "written to $page"
