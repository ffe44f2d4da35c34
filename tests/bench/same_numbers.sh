#!/bin/sh
# Compares the numbers of two builds: CosmoFlow, ResNet and the contrastive losses, a few steps of each in float64, on one rank
# and on grids. For changes that must not change results: the numbers depend on the machine, so no test can contain them.
#
#   sh tests/bench/same_numbers.sh BEFORE AFTER        two build folders, as build/ is one, of trainers that take keys
#
# The results (weights with running statistics, losses) must be equal bit by bit on one rank and within 1e-12 on grids. Prints a
# line for each run, `failed: NAME` for each that differs and ends with `N passed, M failed, K skipped`.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
. "$root/examples/packaging/packages.sh"
case "${1:-}" in -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
[ "$#" -eq 2 ] || die "two build folders are compared (--help)"
before=$1 after=$2
for tool in universe cosmoflow classify contrastive; do
  for folder in "$before" "$after"; do [ -x "$folder/examples/$tool" ] || die "$folder/examples/$tool is not there"; done
done
install_packages hdf5-tools
. "$root/tests/suite.sh"
export OMP_NUM_THREADS=1

# ---- data
run "$before/examples/universe" generate --universes 8 --size 32 --cell 4 --out "$work/universes"
[ "$status" -eq 0 ] || die "no universes: $(cat "$work/err")"
volumes=$root/../shared/data/3d/adrenalmnist3d/adrenal28.h5
[ -f "$volumes" ] || die "$volumes is not there"
python3 - "$work" <<'END'
import random, struct, sys
random.seed(5)
n, side = 32, 16
header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({n}, {side}, {side}), }}"
header += ' ' * (-(len(header) + 11) % 64) + '\n'
values = [random.random() * (1 + (i // side**2) % 4) for i in range(n * side**2)]
with open(f'{sys.argv[1]}/pictures.npy', 'wb') as f:
    f.write(b'\x93NUMPY\x01\x00' + struct.pack('<H', len(header)) + header.encode() + struct.pack(f'<{len(values)}f', *values))
header = f"{{'descr': '<i8', 'fortran_order': False, 'shape': ({n},), }}"
header += ' ' * (-(len(header) + 11) % 64) + '\n'
with open(f'{sys.argv[1]}/kinds.npy', 'wb') as f:
    f.write(b'\x93NUMPY\x01\x00' + struct.pack('<H', len(header)) + header.encode() + struct.pack(f'<{n}q', *(i % 4 for i in range(n))))
END

# ---- runs
same_bits() {
  h5diff -q "$work/before/weights.h5" "$work/after/weights.h5" && cmp -s "$work/before/weights.h5" "$work/after/weights.h5"
}
close() { h5diff --delta=1e-12 "$work/before/weights.h5" "$work/after/weights.h5"; }
# compare NAME RANKS GRID TOOL ARGUMENT...: compares the same run of both builds.
compare() {
  what="$1 on $3" count=$2 grid=$3 program=$4
  shift 4
  for build_name in before after; do
    rm -rf "${work:?}/$build_name"
    if [ $build_name = before ]; then folder=$before; else folder=$after; fi
    threads "$count" "$folder/examples/$program" "$@" --precision float64 --grid "$grid" --out "$work/$build_name"
    if [ "$status" -ne 0 ]; then
      judge "$what: $build_name" succeeds
      return
    fi
  done
  if [ "$count" -eq 1 ]; then condition=same_bits; else condition=close; fi
  judge "$what" $condition
  if cmp -s "$work/before/weights.h5" "$work/after/weights.h5"; then say "$what: the same bits"
  else say "$what: $(h5diff --delta=1e-12 "$work/before/weights.h5" "$work/after/weights.h5" | grep -c difference) datasets differ"; fi
}
for grid in '1 sample=1' '2 sample=2' '4 depth=2,width=2'; do
  # shellcheck disable=SC2086  # ranks and grid
  set -- $grid
  compare 'CosmoFlow, hybrid' "$@" cosmoflow train --data "$work/universes" --epochs 2 --batch 2 --set data.flips --set data.shifts
  compare 'CosmoFlow, hybrid with batch norm' "$@" cosmoflow train --data "$work/universes" --epochs 1 --batch 2 --set network.batch_norm \
    --set schedule.accumulate=2
  compare 'CosmoFlow, mlperf' "$@" cosmoflow train --data "$work/universes" --variant mlperf --epochs 2 --batch 2 --optimizer sgd \
    --set optimizer.clip_norm=1
  compare 'classifier' "$@" classify train --data "$volumes" --set data.train_group=val --set data.validation_group=val --epochs 1 \
    --batch 32 --filters 4 --set data.flips
  case $2 in *width*) set -- 4 sample=2,width=2 ;; esac
  compare 'ResNet-18, NT-Xent' "$@" contrastive train --data "$work/pictures.npy" --encoder resnet18 --set network.width=4 \
    --set network.small_images --augment simclr \
    --epochs 1 --batch 8 --set network.head_hidden=16 --set network.head_out=8
  for loss in supcon clip siglip barlow vicreg spectral moco swav; do
    compare "conv4, $loss" "$@" contrastive train --data "$work/pictures.npy" --set data.labels=kind="$work/kinds.npy" --loss $loss \
      --set network.width=4 --augment simclr \
      --epochs 1 --batch 8 --set network.head_hidden=16 --set network.head_out=8 --set network.prototypes=12 --set loss.queue=32
  done
  [ "$2" != sample=2,width=2 ] || set -- 2 sample=2
  compare 'ResNet-50, NT-Xent in parts' "$@" contrastive train --data "$work/pictures.npy" --encoder resnet50 --set network.width=4 \
    --set network.frozen_norm --set loss.cached=2 \
    --augment simclr --epochs 1 --batch 8 --set network.head_hidden=16 --set network.head_out=8 --set loss.form=ring --set loss.tile=4
done
summary
