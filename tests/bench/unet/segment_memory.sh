#!/bin/sh
# Memory of each rank that segments one volume of 256^3 cells with 105 classes, expected and taken, by the number of ranks. The
# network has 22,000 parameters and windows of 64^3; its segmentation means nothing. Prints a table; about 10 minutes on two cores.
#
#   sh tests/bench/unet/segment_memory.sh [CELLS]      cells along each axis of the volume, 256 by default
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
case "${1:-}" in -h | --help) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
tool=$build/examples/unet3d
[ -x "$tool" ] || die "$tool is not built"
choose_launcher
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Three small volumes that have all classes, to train on, and the large one.
python3 - "$work" "${1:-256}" <<'END'
import os, random, struct, sys
work, cells = sys.argv[1], int(sys.argv[2])
def write(path, n, type, bits, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    header = bytearray(352)
    struct.pack_into("<i", header, 0, 348)
    struct.pack_into("<8h", header, 40, 3, n, n, n, 1, 1, 1, 1)
    struct.pack_into("<2h", header, 70, type, bits)
    struct.pack_into("<4f", header, 76, 1, 1, 1, 1)
    struct.pack_into("<2f", header, 108, 352, 1)
    struct.pack_into("<h", header, 254, 1)
    for a in range(3): struct.pack_into("<f", header, 280 + 20 * a, 1)
    header[344:348] = b"n+1\0"
    open(path, "wb").write(bytes(header) + data)
random.seed(1)
for name in "abc":
    write(f"{work}/small/images/{name}.nii", 16, 2, 8, random.randbytes(16**3))
    write(f"{work}/small/labels/{name}.nii", 16, 2, 8, bytes(i % 105 for i in range(16**3)))
write(f"{work}/large/images/a.nii", cells, 2, 8, random.randbytes(cells**3))
write(f"{work}/large/labels/a.nii", cells, 2, 8, random.randbytes(cells**3).translate(bytes(i % 105 for i in range(256))))
END
"$tool" train --data "$work/small" --window 64 --filters 4,8,16 --batch 1 --epochs 1 --quiet --out "$work/run" >"$work/log"

echo "| ranks | grid | command | expected | taken | seconds |"
echo "|--:|---|---|--:|--:|--:|"
for grid in depth=1 depth=2 depth=2,height=2; do
  case $grid in depth=1) ranks=1 ;; depth=2) ranks=2 ;; *) ranks=4 ;; esac
  for command in predict evaluate; do
    [ "$command" = predict ] && set -- --images "$work/large/images" || set -- --data "$work/large" --part all
    # shellcheck disable=SC2086  # MPIEXEC may hold options
    OMP_NUM_THREADS=1 $MPIEXEC -n "$ranks" "$tool" "$command" --weights "$work/run/weights.h5" "$@" --grid "$grid" --out "$work/out" --overwrite >"$work/log" 2>&1 ||
      die "$command on $ranks ranks failed: $(tail -n 1 "$work/log")"
    [ "$(grep -c 'of memory per rank' "$work/log")" -eq 2 ] || die "$command does not say its memory: $(cat "$work/log")"
    printf '| %s | %s | `%s` | %s | %s | %s |\n' "$ranks" "$grid" "$command" \
      "$(sed -n 's/.*at most \(.*\) of memory per rank expected.*/\1/p' "$work/log")" \
      "$(sed -n 's/.*at most \(.*\) of memory per rank$/\1/p' "$work/log")" "$(sed -n 's/^\(.*\) in all;.*/\1/p' "$work/log")"
  done
done
