#!/bin/sh
# Runs `classify` on two classes with the loss of pairs, and on numbers in place of classes, from folders with a table, a table by numbers of samples, and HDF5: the same
# losses and predictions on 1 and 2 ranks and from every format, and what is refused. Prints `failed: NAME` for each failed test
# and ends with `N passed, M failed, K skipped`. tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher

tools=$build/examples
. "$root/tests/suite.sh"

needs 'the tools are' "$tools/classify" "$tools/pack"

# Balls in noise: 24 volumes as NIfTI and as one array, and tables of their radius and of what is left of 5.
cat >"$work/volumes.py" <<'END'
import os, random, struct, sys
work = sys.argv[1]
os.makedirs(f"{work}/scans")
n, values, rows = 24, [], []
for i in range(n):
    random.seed(i)
    radius = 1.5 + 2.5 * (7 * i % n) / n
    volume = [0.2 * random.random() + ((z - 3.5) ** 2 + (y - 4.5) ** 2 + (x - 5.5) ** 2 < radius**2)
              for z in range(8) for y in range(10) for x in range(12)]
    header = bytearray(352)
    struct.pack_into("<i", header, 0, 348)
    struct.pack_into("<8h", header, 40, 3, 12, 10, 8, 1, 1, 1, 1)
    struct.pack_into("<2h", header, 70, 16, 32)
    struct.pack_into("<8f", header, 76, 1, 1, 1, 1, 0, 0, 0, 0)
    struct.pack_into("<2f", header, 108, 352, 1)
    header[344:348] = b"n+1\0"
    open(f"{work}/scans/v{i:02}.nii", "wb").write(bytes(header) + struct.pack(f"<{len(volume)}f", *volume))
    values += volume
    rows.append((f"v{i:02}.nii", 100 + 10 * radius, 5 - radius))
text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({n}, 8, 10, 12, 1), }}"
text += " " * (-(11 + len(text)) % 64) + "\n"
start = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()
open(f"{work}/scans.npy", "wb").write(start + struct.pack(f"<{len(values)}f", *values))
def table(name, columns, lines): open(f"{work}/{name}.csv", "w").write("\n".join([columns, *lines]) + "\n")
table("sizes", "file,radius,rest", [f"{file},{a!r},{b!r}" for file, a, b in rows[::-1]] + ["other.nii,0,0"])
table("turned", "file,rest,radius", [f"{file},{b!r},{a!r}" for file, a, b in rows])
table("numbered", "sample,radius,rest", [f"{i},{a!r},{b!r}" for i, (_, a, b) in enumerate(rows)])
table("short", "file,radius", [f"{file},{a!r}" for file, a, _ in rows[:-1]])
table("twice", "file,radius", [f"{file},{a!r}" for file, a, _ in rows + rows[3:4]])
table("words", "file,radius", [f"{file},large" for file, _, _ in rows])
table("beyond", "sample,radius", ["24,1"])
END
python3 "$work/volumes.py" "$work"

# value FILE KEY...: a number of a JSON document.
value() {
  python3 - "$@" <<'END'
import json, sys
document = json.load(open(sys.argv[1]))
for key in sys.argv[2:]: document = document[key]
print(document)
END
}
# same FILE FILE: the numbers of columns that two tables share, to 1e-9 of them, row by row; there are two such columns or more.
same() {
  succeeds && python3 - "$@" <<'END'
import csv, sys
a, b = (list(csv.DictReader(open(name))) for name in sys.argv[1:3])
columns = [c for c in a[0] if c in b[0] and c != "sample"]
assert len(a) == len(b) and len(columns) >= 2, (len(a), len(b), columns)
for one, two in zip(a, b):
    for c in columns: assert abs(float(one[c]) - float(two[c])) <= 1e-9 * abs(float(one[c])), (c, one[c], two[c])
END
}
train() { # train TRANSPORT RANKS OUT OPTIONS...
  how=$1 p=$2 out=$3
  shift 3
  "$how" "$p" "$tools/classify" train --filters 4 --batch 6 --epochs 40 --set network.norm_momentum=0.5 --learning-rate 0.01 \
    --precision float64 --quiet \
    --out "$work/$out" "$@"
}
split='--set data.validation_fraction=0.25 --set data.split_seed=5'
# shellcheck disable=SC2086  # two options
{
  train ranks 1 folder --data "$work/scans" --set data.targets="$work/sizes.csv" $split
  judge 'a folder and a table: MSE, RMSE and R2 of each target' says '^radius  *[0-9.e-]* *[0-9.e-]* *[0-9.e-]* *-*[0-9.]*$'
  judge 'it learns' awk -v a="$(value "$work/folder/summary.json" targets radius r2)" 'BEGIN { exit !(a > 0.3) }'
  train ranks 2 depth --data "$work/scans" --set data.targets="$work/sizes.csv" $split --grid depth=2
  judge 'two ranks in depth: the same losses' near_losses "$work/folder/metrics.csv" "$work/depth/metrics.csv"
  train ranks 2 samples --data "$work/scans" --set data.targets="$work/sizes.csv" $split --grid sample=2
  judge 'two ranks with samples of their own: the same losses' near_losses "$work/folder/metrics.csv" "$work/samples/metrics.csv"
  train threads 1 numbered --data "$work/scans.npy" --set data.targets="$work/numbered.csv" $split
  judge 'a table by the numbers of samples' says '^rest '
  run "$tools/pack" --data "$work/scans" --targets "$work/sizes.csv" --validation-fraction 0.25 --split-seed 5 --out "$work/scans.h5"
  judge 'pack writes the numbers' succeeds
}
train threads 1 packed --data "$work/scans.h5"
losses() { cut -d, -f 2,3 "$work/$1/metrics.csv"; }
judge 'HDF5 with floating-point labels: the same losses' test "$(losses folder)" = "$(losses packed)"
train threads 1 one --data "$work/scans.h5" --set data.label=radius
judge 'one of the targets' test "$(head -n 1 "$work/one/predictions.csv")" = sample,radius_true,radius_predicted

infer() { # infer TRANSPORT RANKS COMMAND OUT OPTIONS...
  how=$1 p=$2 command=$3 out=$4
  shift 4
  "$how" "$p" "$tools/classify" "$command" --weights "$work/folder/weights.h5" --out "$work/$out" "$@"
}
infer ranks 1 evaluate again --data "$work/scans" --targets "$work/turned.csv" --batch 4
judge 'evaluate: the predictions of the training, by the names of columns' same "$work/folder/predictions.csv" "$work/again/predictions.csv"
infer ranks 2 evaluate group --data "$work/scans.h5" --group val --grid depth=2
judge 'so from HDF5 on two ranks' same "$work/folder/predictions.csv" "$work/group/predictions.csv"
infer ranks 1 evaluate all --data "$work/scans" --targets "$work/sizes.csv" --part all
infer ranks 2 predict unknown --data "$work/scans" --grid depth=2
judge 'predict: the same without the truth' same "$work/all/predictions.csv" "$work/unknown/predictions.csv"
judge 'predict prints the targets'"'"' names' says '^ *radius  *rest  *predicted$'
judge 'and draws' test -s "$work/unknown/classify.png"

# ---- the loss of pairs of two classes, which lie on different ranks
python3 "$root/tests/examples/trainers/scans.py" "$work/kinds"
pairs() { # pairs TRANSPORT RANKS OUT OPTIONS...
  how=$1 p=$2 out=$3
  shift 3
  "$how" "$p" "$tools/classify" train --data "$work/kinds" --set data.validation_fraction=0.3 --filters 4 --batch 8 --epochs 2 \
    --precision float64 --set loss.name=auc --quiet --out "$work/$out" "$@"
}
pairs threads 1 pairs-1
judge 'loss.name auc: squared hinges of pairs' test "$(wc -l <"$work/pairs-1/metrics.csv")" = 3
pairs threads 2 pairs-2 --grid sample=2
judge 'pairs on two ranks: the same losses' near_losses "$work/pairs-1/metrics.csv" "$work/pairs-2/metrics.csv"
pairs threads 4 pairs-4 --grid sample=2,depth=2
judge 'pairs on four ranks, split in depth: the same losses' near_losses "$work/pairs-1/metrics.csv" "$work/pairs-4/metrics.csv"
pairs threads 1 pairs-wide --set loss.margin=3
judge 'another margin, another loss' sh -c "! cmp -s '$work/pairs-1/metrics.csv' '$work/pairs-wide/metrics.csv'"

# ---- what is refused
refuse() { ranks 2 "$tools/classify" train --data "$work/scans" --out "$work/refused" "$@"; }
for each in 'short:has no row for .*v23.nii' 'twice:second one of .*v03.nii' 'words:large.* is not a number' 'beyond:is of no sample: they are 0 to 23'; do
  refuse --set data.targets="$work/${each%%:*}.csv" --set data.validation_fraction=0.25
  judge "a table: ${each#*:}" refuses_once "${each%%:*}.csv.*${each#*:}"
done
refuse --set data.targets="$work/sizes.csv"
judge 'targets need validation samples' refuses_arguments 'data.targets needs data.validation_fraction or data.validation_data'
refuse --set data.labels=size="$work/sizes.csv" --set data.validation_fraction=0.25
judge 'a table is none of classes' refuses_arguments 'a table (CSV) of numbers is data.targets'
refuse --set data.targets="$work/sizes.csv" --set data.label=mass --set data.validation_fraction=0.25
judge 'a target that is not there' refuses_once "there is no target 'mass', but radius, rest"
refuse --set data.targets="$work/sizes.csv" --set data.validation_fraction=0.25 --set loss.name=auc
judge 'numbers have no pairs of classes' refuses_once 'loss.name auc compares samples of two classes; the data have numbers'
judge 'refused runs leave nothing behind' no_file "$work/refused"

summary
