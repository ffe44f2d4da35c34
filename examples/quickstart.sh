#!/bin/sh
# Simulates 384 small universes and trains CosmoFlow on them, on two MPI ranks that each hold half of every universe.
# Installs what is missing first, and builds. Everything is written to build/quickstart/; a second run reuses the universes.
#
#   sh examples/quickstart.sh
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
. "$root/examples/packaging/packages.sh"

case "${1:-}" in
  '') ;;
  -h | --help) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *) die "quickstart.sh takes no arguments, got $1" ;;
esac

install_packages
configure_programs
build_targets examples/universe examples/cosmoflow
choose_launcher

output=$build/quickstart
universes=$output/universes
mkdir -p "$output"

# The folder gets its name only when it is complete, so that an interrupted run is not mistaken for a finished one.
if [ ! -d "$universes" ]; then
  say "simulating 384 universes of 32^3 cells, 4 Mpc/h each"
  rm -rf "$universes.part"
  run_ranks 2 "$build/examples/universe" generate --out "$universes.part" --universes 384 --size 32 --cell 4 --seed 1 --spread
  mv "$universes.part" "$universes"
fi

say "training on 2 ranks, every universe split in depth"
run_ranks 2 "$build/examples/cosmoflow" train "$root/examples/trainers/recipes/quickstart.toml" --data "$universes" \
  --out "$output/cosmoflow" --overwrite

say
for picture in "$output"/*.png "$output"/*/*.png; do
  [ ! -f "$picture" ] || say "picture: $picture"
done
