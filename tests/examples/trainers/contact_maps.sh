#!/bin/sh
# Runs `folding` and `contact_maps`, `lattice` and the styles of `classify` for pictures: the same losses on 1 and 2 ranks, files,
# and what is refused. Prints `failed: NAME` for each failed test and ends with `N passed, M failed, K skipped`. tests/run.sh
# calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher

tools=$build/examples
. "$root/tests/suite.sh"

needs 'the tools are' "$tools/folding" "$tools/contact_maps" "$tools/lattice" "$tools/classify"

run "$tools/folding" --chains 4 --frames 20 --steps 50 --out "$work/chains.h5"
judge 'folding writes HDF5' says '^80 frames of 4 chains of 21 residues with 27 native contacts'
run "$tools/folding" --chains 4 --frames 20 --steps 50 --out "$work/chains.npy"
judge 'and .npy' test -s "$work/chains-native.npy"
run "$tools/folding" --chains 4 --frames 20 --steps 50 --out "$work/chains.h5"
judge 'it replaces no file' refuses_once 'chains.h5'

train() { # train RANKS OUT OPTIONS...
  p=$1 out=$2
  shift 2
  ranks "$p" "$tools/contact_maps" train --set network.filters=4 --set network.hidden=8 --batch 16 --epochs 2 --precision float64 \
    --set checkpoint.epochs=1 --set data.validation_fraction=0.25 --quiet --out "$work/$out" "$@"
}
train 1 one --data "$work/chains.h5"
judge 'contact_maps: scores of chains not trained on' says 'R2 of a linear fit of the fraction of native contacts'
judge 'a row for each map kept' test "$(wc -l <"$work/one/latent.csv")" -eq 21
judge 'a picture' test -s "$work/one/contact_maps.png"
train 2 samples --data "$work/chains.h5" --grid sample=2
judge 'two ranks with maps of their own: the same losses' near_losses "$work/one/metrics.csv" "$work/samples/metrics.csv"
train 2 rows --data "$work/chains.h5" --grid height=2
judge 'two ranks that share maps: the same losses' near_losses "$work/one/metrics.csv" "$work/rows/metrics.csv"
train 1 npy --data "$work/chains.npy" --set data.native="$work/chains-native.npy" --set data.chain="$work/chains-chain.npy"
judge '.npy: the same losses' near_losses "$work/one/metrics.csv" "$work/npy/metrics.csv"
train 1 one --data "$work/chains.h5" --resume
judge 'a finished training is resumed' succeeds
train 1 bare --data "$work/chains.npy"
judge 'maps without a fraction' succeeds
train 1 wrong --data "$work/chains.h5" --set data.maps=native
judge 'other arrays are refused' refuses_once 'maps are \[n, R, R\] or \[n, R R\]'

run "$tools/lattice" --images 20 --out "$work/lattices.h5"
judge 'lattice writes images of classes' succeeds
run "$tools/lattice" --images 20 --parameters --out "$work/parameters.h5"
judge 'and of parameters' succeeds
classify() { # classify STYLE RANKS OUT OPTIONS...
  style=$1 p=$2 out=$3
  shift 3
  ranks "$p" "$tools/classify" train --set network.style="$style" --filters 2 --batch 8 --epochs 2 --precision float64 --quiet \
    --out "$work/$out" "$@"
}
for style in vgg resnet; do
  classify $style 1 $style --data "$work/lattices.h5"
  judge "$style: accuracy" succeeds
  classify $style 2 "$style-2" --data "$work/lattices.h5" --grid height=2
  judge "$style: two ranks that share images: the same losses" near_losses "$work/$style/metrics.csv" "$work/$style-2/metrics.csv"
done
classify regressor 1 regressor --data "$work/parameters.h5"
judge 'regressor: spacing, ratio and angle' says '^ratio '
classify regressor 2 regressor-2 --data "$work/parameters.h5" --grid sample=2
judge 'regressor: two ranks: the same losses' near_losses "$work/regressor/metrics.csv" "$work/regressor-2/metrics.csv"

summary
