#!/bin/sh
# Trains encoders without labels on two ranks, on drawings of characters, digits and volumes, and evaluates their features in
# comparison with pixels and with the untrained encoder: mean, smallest and largest value over several seeds. Writes
# tests/bench/results/contrastive-training-DATE.md and pictures of the first seed. Some 18 minutes for each seed.
#
#   sh tests/bench/contrastive/contrastive_training.sh [FOLDER]      FOLDER: with 2d/omniglot_small1-*, 2d/mnist8k-* (IDX) and
#                                                        3d/adrenalmnist3d/adrenal28.h5; ../shared/data by default
#
# MPIGRAD_SEEDS: the seeds, "1 2 3" by default.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
case "${1:-}" in
  -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
esac
data=${1:-$root/../shared/data}
[ -d "$data" ] || die "there is no folder $data"

# shellcheck disable=SC2086,SC2154  # several names, from packages.sh
install_packages $test_packages
configure_tests
build_targets
choose_launcher
tool=$build/examples/contrastive
[ -x "$tool" ] || die "$tool is not built: it needs the libraries of the examples"

seeds=${MPIGRAD_SEEDS:-1 2 3}
first_seed=${seeds%% *}
results=$root/tests/bench/results/contrastive-training-$(date +%F)
mkdir -p "$root/tests/bench/results"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
page=$work/page.md

# read_number FILE NAME: a number of a JSON document, at any place.
read_number() { sed -n "s/^ *\"$2\": \([-0-9.e]*\),*\$/\1/p" "$1" | head -n 1; }

# evaluated FILE OPTIONS...: evaluates encoders with $evaluation.
evaluated() {
  file=$1
  shift
  # shellcheck disable=SC2086  # options are split into words
  "$tool" evaluate --data "$source" $evaluation "$@" --json >"$file"
}

# row WHAT FILE...: one line of the table, from the mean of the files; $numbers are the names of the columns.
row() {
  line="| $1 |"
  shift
  for number in $numbers; do
    line="$line $(for file; do read_number "$file" "$number"; done | awk '
      { sum += $1; if (NR == 1 || $1 < low) low = $1; if (NR == 1 || $1 > high) high = $1 }
      END { if (NR == 1) printf "%.3f", sum; else printf "%.3f (%.3f to %.3f)", sum / NR, low, high }') |"
  done
  say "$line"
  printf '%s\n' "$line" >>"$page"
}

# training NAME TITLE: trains on two ranks by the recipe contrastive_NAME.toml on $source, then evaluates.
training() {
  name=$1 title=$2 recipe=examples/trainers/recipes/contrastive_$1.toml
  for seed in $seeds; do
    say "$name, seed $seed ..."
    out=$work/$name-$seed
    run_ranks 2 "$tool" train "$root/$recipe" --data "$source" --seed "$seed" --out "$out" --quiet >&2
    "$tool" train "$root/$recipe" --data "$source" --epochs 0 --grid sample=1 --seed "$seed" --out "$out-0" --quiet >/dev/null
    evaluated "$out.untrained.json" --weights "$out-0/weights.h5"
    evaluated "$out.features.json" --weights "$out/weights.h5"
    evaluated "$out.head.json" --weights "$out/weights.h5" --projected
  done
  # Pixels have the extents that the network sees. shellcheck disable=SC2086
  evaluated "$work/$name.pixels.json" --pixels $size
  summary=$work/$name-$first_seed/summary.json
  {
    printf '\n## %s\n\n```\nmpiexec -n 2 build/examples/contrastive train %s --data %s --seed SEED\n' "$title" \
      "$recipe" "$(basename "$source")"
    printf 'build/examples/contrastive evaluate --data %s %s\n```\n\n' "$(basename "$source")" "$evaluation"
    printf '%s parameters, %s samples; %s epochs in %.0f s, %.0f samples (pairs of views) a second, %s MiB per rank\n\n' \
      "$(read_number "$summary" parameters)" "$(read_number "$summary" training_samples)" "$(read_number "$summary" epochs)" \
      "$(read_number "$summary" seconds)" "$(read_number "$summary" samples_per_second)" \
      "$(($(read_number "$summary" peak_process_bytes_per_rank) / 1048576))"
    printf '| |'
    for number in $numbers; do printf ' %s |' "$(printf %s "$number" | tr _ ' ')"; done
    printf '\n|---|'
    for number in $numbers; do printf -- '--:|'; done
    printf '\n'
  } >>"$page"
  row pixels "$work/$name.pixels.json"
  row 'untrained encoder' "$work/$name"-*.untrained.json
  row 'features' "$work/$name"-*.features.json
  row 'behind the head' "$work/$name"-*.head.json
  cp "$work/$name-$first_seed/training.png" "$results-$name.png"
  chmod 644 "$results-$name.png"
  printf '\n![loss, neighbours and rank](%s)\n' "$(basename "$results-$name.png")" >>"$page"
}

commit=$(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo unknown)
{
  printf '# Training without labels, %s, commit %s\n\n' "$(date +%F)" "$commit"
  printf '%s; two MPI ranks. Seeds %s: the mean, smallest and largest. The pictures show each epoch of seed %s.\n' "$(processor)" \
    "$seeds" "$first_seed"
} >"$page"

source=$data/2d/omniglot_small1-images-idx3-ubyte.gz size=
evaluation='--stored 32,32 --test-where alphabets=3,4 --label charlabels --group alphabets --few-shot 1,1 --ways 20 --episodes 400 --metrics none'
numbers='few_shot_accuracy few_shot_standard_error'
training omniglot 'Omniglot: characters of unseen alphabets, 20-way one-shot'

source=$data/2d/mnist8k-images-idx3-ubyte.gz
evaluation='--test-fraction 0.125'
numbers='probe_accuracy neighbour_accuracy retrieval_at_1'
training mnist 'MNIST: 7,000 digits without labels, 1,000 kept aside'

source=$data/3d/adrenalmnist3d/adrenal28.h5 size='--size 16,16,16'
evaluation='--part train --test-part val'
numbers='probe_auc probe_accuracy neighbour_accuracy'
training adrenal 'Adrenal glands, volumes'

mv "$page" "$results.md"
chmod 644 "$results.md"
say "written to $results.md"
