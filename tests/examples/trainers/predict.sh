#!/bin/sh
# Runs `evaluate` and `predict` of cosmoflow and classify, and `pack`, as a user does, on small universes and made-up volumes: the same
# numbers from every format, batch and number of ranks, and what is refused. Prints `failed: NAME` for each failed test and ends with
# `N passed, M failed, K skipped`. tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher

tools=$build/examples
. "$root/tests/suite.sh"

needs 'the tools are' "$tools/pack"

# ---- conditions
# onnx_runs FILES: ONNX's own checker and ONNX Runtime take what --onnx has written.
if python3 -c 'import onnx, onnxruntime' 2>"$work/no"; then onnx=yes; else onnx=; fi
onnx_runs() {
  if [ -z "$onnx" ]; then skip 'Python has no onnx and onnxruntime'; return; fi
  run python3 "$root/tests/models/export/onnx_runtime.py" "$@"
  judge "ONNX Runtime runs $(basename -a "$@" | tr '\n' ' ')" succeeds
}
rows() { succeeds && [ "$(wc -l <"$1")" -eq $(($2 + 1)) ]; }
# A number of a JSON document: value FILE KEY [KEY].
value() {
  python3 - "$@" <<'END'
import json, sys
document = json.load(open(sys.argv[1]))
for key in sys.argv[2:]: document = document[key]
print(document)
END
}
near() { succeeds && awk -v a="$1" -v b="$2" -v part="${3:-1e-9}" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a != "" && b != "" && d <= part * (b < 0 ? -b : b)) }'; }
# same FILE FILE [NAMES]: the columns that two tables share have the same texts, and numbers to 1e-9; there are at least two of
# them, and as many rows. With NAMES the samples have other names and are compared in their order.
same() {
  succeeds && python3 - "$@" <<'END'
import csv, sys
a, b = (list(csv.DictReader(open(name))) for name in sys.argv[1:3])
columns = [c for c in a[0] if c in b[0] and not (c == "sample" and sys.argv[3:])]
def equal(x, y):
    try: return abs(float(x) - float(y)) < 1e-9
    except ValueError: return x == y
assert len(a) == len(b) and len(columns) >= 2, (len(a), len(b), columns)
for one, two in zip(a, b):
    for c in columns: assert equal(one[c], two[c]), (c, one[c], two[c])
END
}

# ---- universes: weights know their network
universes=$work/universes unseen=$work/unseen
run "$tools/universe" generate --out "$universes" --universes 10 --size 32 --cell 4 --seed 1 --spread
run "$tools/universe" generate --out "$unseen" --first 50 --universes 5 --size 32 --cell 4 --seed 7 --spread --json
cp "$work/out" "$work/parameters.json"
cp -R "$unseen" "$work/unknown"
for file in "$work/unknown"/*; do
  for name in unit phys; do python3 "$root/tests/examples/tools/patch.py" "$file" s "${name}Par" -- "${name}Nil"; done
done
cosmoflow=$tools/cosmoflow
run "$cosmoflow" train --data "$universes" --filters 4 --set network.batch_norm --batch 4 --epochs 1 --precision float64 \
  --set data.test_fraction=0.3 --out "$work/hybrid"
judge 'cosmoflow trains' succeeds
run "$cosmoflow" train --data "$universes" --variant mlperf --filters 8 --batch 4 --epochs 1 --out "$work/mlperf"
judge 'cosmoflow trains the other variant' succeeds
run "$cosmoflow" train --data "$universes" --variant pyramid --filters 2 --set data.flips --set data.transpositions --batch 4 --epochs 1 \
  --precision float64 \
  --set data.test_fraction=0.3 --out "$work/pyramid"
judge 'cosmoflow trains the third variant' succeeds
for network in hybrid mlperf pyramid; do
  run "$cosmoflow" evaluate --weights "$work/$network/weights.h5" --data "$universes" --batch 2 --out "$work/$network-again" --json \
    --onnx "$work/$network.onnx"
  judge "$network: evaluation finds the test samples of the training, and warns of nothing" silent
  judge "$network: evaluation of the training's own data gives its scores" near \
    "$(value "$work/$network-again/summary.json" targets sigma_8 mse)" "$(value "$work/$network/summary.json" targets sigma_8 mse)" 1e-6
  judge "$network: and those of the regression" near "$(value "$work/$network-again/summary.json" targets sigma_8 spectrum_mse)" \
    "$(value "$work/$network/summary.json" targets sigma_8 spectrum_mse)" 1e-15
done
judge 'in float64 to the last digits' same "$work/hybrid/predictions.csv" "$work/hybrid-again/predictions.csv"
judge 'the variant is the weights own' test "$(value "$work/mlperf-again/summary.json" variant)" = mlperf
judge 'so are the filters' test "$(value "$work/mlperf-again/summary.json" filters)" = 8
judge 'and so is batch norm' test "$(value "$work/hybrid-again/summary.json" batch_norm)" = True
onnx_runs "$work/mlperf.onnx"  # the other has float64, for which ONNX Runtime has no convolution
run "$cosmoflow" predict --weights "$work/mlperf/weights.h5" --data "$unseen" --out "$work/mlperf-onnx" --onnx "$work/mlperf.onnx"
judge '--onnx replaces nothing' refuses_once 'mlperf.onnx exists already'
# mixed TRANSPORT RANKS OUT OPTIONS...: the same training on ranks that split layers otherwise.
mixed() {
  transport=$1 p=$2 out=$3
  shift 3
  "$transport" "$p" "$cosmoflow" train --data "$universes" --filters 4 --set network.batch_norm --batch 4 --epochs 1 --precision float64 \
    --set data.test_fraction=0.3 \
    --out "$work/$out" "$@"
  judge "cosmoflow $*: the same predictions" same "$work/hybrid/predictions.csv" "$work/$out/predictions.csv"
}
mixed ranks 2 filters --grid filter=2
mixed threads 4 layers --grid depth=2,height=2 --set grid.layers=conv5-7:channel=4 --set grid.layers=linear1-2:sample=2,filter=2
mixed ranks 2 parts --grid sample=2 --set grid.sharded_weights
mixed ranks 2 stages --grid stage=2
for split in depth=2,height=2 sample=2,width=2 stage=2,sample=2; do
  threads 4 "$cosmoflow" train --data "$universes" --variant pyramid --filters 2 --set data.flips --set data.transpositions --batch 4 \
    --epochs 1 --precision float64 \
    --set data.test_fraction=0.3 --grid $split --out "$work/pyramid-$split"
  # A fit of 48 features to 7 samples repeats rounding errors 1e5 times.
  judge "pyramid on $split: the same error" near \
    "$(value "$work/pyramid-$split/summary.json" targets Omega_m mse)" "$(value "$work/pyramid/summary.json" targets Omega_m mse)" 1e-6
done
run "$cosmoflow" train --data "$universes" --set network.last_layer=random --out "$work/refused"
judge 'network.last_layer is of one variant' refuses_arguments 'network.last_layer is of --variant pyramid'
run "$cosmoflow" train --data "$universes" --variant pyramid --set network.padding=reflect --out "$work/refused"
judge 'pyramid has one padding' refuses_arguments 'network.padding: the variant pyramid is circular'
run "$cosmoflow" evaluate --weights "$work/layers/weights.h5" --data "$universes" --batch 2 --out "$work/layers-again"
judge 'weights of split layers are read on one rank' same "$work/hybrid/predictions.csv" "$work/layers-again/predictions.csv"
# ---- weights that come with the project, on universes of a seed that they do not know
large=$work/large
run "$tools/universe" generate --out "$large" --universes 12 --size 64 --cell 4 --seed 5 --spread
run "$cosmoflow" evaluate --weights "$root/examples/trainers/cosmoflow/pyramid64.h5" --data "$large" --out "$work/large-scores" --json
judge 'pyramid64.h5 scores universes that it has never seen' succeeds
# 12 errors of about 0.01, 0.01 and 0.06, of which the prior's mean has 0.33.
below() { awk -v a="$(value "$work/large-scores/summary.json" targets "$1" mse)" -v most="$2" 'BEGIN { exit !(a != "" && a < most) }'; }
judge 'it knows Omega_m' below Omega_m 0.04
judge 'it knows sigma_8' below sigma_8 0.04
judge 'it knows much of N_spec' below N_spec 0.15
ranks 2 "$cosmoflow" predict --weights "$root/examples/trainers/cosmoflow/pyramid64.h5" --data "$large" --grid depth=2 --out "$work/large-split"
alike() {
  succeeds && python3 - "$@" <<'END'
import csv, sys
a, b = (list(csv.DictReader(open(name))) for name in sys.argv[1:3])
assert len(a) == len(b) == 12
for one, two in zip(a, b):
    for name in ("Omega_m", "sigma_8", "N_spec", "H_0"):
        assert abs(float(one[name + "_predicted"]) - float(two[name + "_predicted"])) < 1e-3, (name, one, two)
END
}
judge 'and predicts the same of volumes that two ranks share' alike "$work/large-scores/predictions.csv" "$work/large-split/predictions.csv"
infer() { # infer TRANSPORT RANKS GRID COMMAND DATA OUT OPTIONS...: of cosmoflow
  transport=$1 p=$2 grid=$3 command=$4 data=$5 out=$6
  shift 6
  "$transport" "$p" "$cosmoflow" "$command" --weights "$work/hybrid/weights.h5" --data "$data" --grid "$grid" --out "$work/$out" "$@"
}
infer ranks 1 sample=1 evaluate "$unseen" known
judge 'new universes are evaluated' rows "$work/known/predictions.csv" 5
for batch in 1 2 3 5 100; do
  infer ranks 1 sample=1 predict "$work/unknown" "unknown-$batch" --batch "$batch"
  judge "batches of $batch: what is predicted without the truth is what is predicted beside it" same \
    "$work/known/predictions.csv" "$work/unknown-$batch/predictions.csv" names
done
judge 'predict prints a table' says '^  *Omega_m .*predicted, in physical units'
judge 'predict draws' test -s "$work/unknown-1/cosmoflow.png"
infer ranks 2 depth=2 predict "$work/unknown" unknown-depth
judge 'two ranks in depth predict the same' same "$work/unknown-1/predictions.csv" "$work/unknown-depth/predictions.csv"
infer ranks 2 sample=2 predict "$work/unknown" unknown-sample --batch 2
judge 'two ranks with a sample each predict the same' same "$work/unknown-1/predictions.csv" "$work/unknown-sample/predictions.csv"
infer threads 4 sample=2,width=2 evaluate "$unseen" known-four --batch 3
judge 'four ranks evaluate the same' same "$work/known/predictions.csv" "$work/known-four/predictions.csv"
# physical TABLE: physPar is a line through unitPar, which two universes show; so are the predictions.
physical() {
  succeeds && python3 - "$work/parameters.json" "$1" <<'END'
import csv, json, sys
a, b = json.load(open(sys.argv[1]))["universes"][:2]
rows = list(csv.DictReader(open(sys.argv[2])))
assert len(a["parameters"]) == 4
for t, (name, p) in enumerate(a["parameters"].items()):
    scale = (b["parameters"][name] - p) / (b["unit"][t] - a["unit"][t])
    for row in rows:
        expected = p + scale * (float(row[name + "_predicted"]) - a["unit"][t])
        assert abs(float(row[name + "_physical"]) - expected) < 1e-4 * abs(p), (name, row, expected)
END
}
judge 'physical units are those of the files' physical "$work/known/predictions.csv"
run "$tools/pack" --data "$unseen" --out "$work/unseen.h5"
infer ranks 1 sample=1 evaluate "$work/unseen.h5" known-packed
judge 'packed universes evaluate the same' same "$work/known/predictions.csv" "$work/known-packed/predictions.csv" names
run "$tools/pack" --data "$universes" --validation-fraction 0.3 --split-seed 4 --out "$work/universes.h5" --json
infer ranks 1 sample=1 predict "$work/universes.h5" known-group --group val --json
json_and_rows() { is_json && rows "$@"; }
judge 'a group of packed universes' json_and_rows "$work/known-group/predictions.csv" 3
infer ranks 1 sample=1 predict "$work/unknown" unknown-1
judge 'predict overwrites nothing' refuses 'exists; --overwrite'
infer ranks 2 depth=2 evaluate "$work/unknown" refused
judge 'evaluate needs the truth' refuses_once "no 'unitPar'\|unitPar"
infer ranks 1 sample=1 evaluate "$unseen" refused --part test
judge 'test samples are those of the training' refuses_arguments 'is not what .* was trained on, whose test samples are asked for'
infer ranks 2 depth=3 predict "$work/unknown" refused
judge 'predict: a grid of other ranks' refuses_arguments 'needs 3 ranks'
infer ranks 1 sample=1 predict "$work/unknown" refused --precision bfloat16
judge 'predict: 16 bits beside float64' refuses_arguments 'parameters of float32, those of .* are float64'
run "$cosmoflow" predict --weights "$work/hybrid/weights.h5" --out "$work/refused"
judge 'predict without data' refuses_arguments '--data is needed'
run "$cosmoflow" predict --data "$work/unknown" --out "$work/refused"
judge 'predict without weights' refuses_arguments '--weights'
run "$cosmoflow" predict --weights "$unseen/universe_00050.hdf5" --data "$work/unknown" --out "$work/refused"
judge 'weights that are none' refuses_once 'universe_00050.hdf5'
run "$cosmoflow" predict --weights "$work/mlperf/weights.h5" --data "$work/unknown" --precision bfloat16 --out "$work/sixteen" --json
judge 'predict in 16 bits' is_json
cp -R "$work/unknown" "$work/cut"
head -c 20000 "$unseen/universe_00052.hdf5" >"$work/cut/universe_00052.hdf5"
infer ranks 2 depth=2 predict "$work/cut" refused
judge 'a file that is cut off is found before anything is written' refuses_arguments 'universe_00052.hdf5.*truncated'

# ---- a classifier: 24 volumes of 8 x 10 x 12 cells in folders, bright in the middle (disc) or at a side (edge)
cat >"$work/volumes.py" <<'END'
import gzip, os, random, struct, sys
work = sys.argv[1]
def write(path, extents, values):
    header = bytearray(352)
    struct.pack_into("<i", header, 0, 348)
    struct.pack_into("<8h", header, 40, 3, *extents, 1, 1, 1, 1)
    struct.pack_into("<hh", header, 70, 16, 32)
    struct.pack_into("<4f", header, 76, 1, 1, 1, 1)
    struct.pack_into("<3f", header, 108, 352, 1, 0)
    header[344:348] = b"n+1\0"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, "wb").write(gzip.compress(bytes(header) + struct.pack(f"<{len(values)}f", *values)))
def volume(seed, kind):
    random.seed(seed)
    values = []
    for z in range(8):
        for y in range(10):
            for x in range(12):
                inside = (z - 3.5) ** 2 + (y - 4.5) ** 2 + (x - 5.5) ** 2 < 14 if kind == "disc" else x < 3
                values.append(random.random() + 1.5 * inside)
    return values
for seed in range(24):
    kind = ("disc", "edge")[seed % 2]
    write(f"{work}/scans/{kind}/v{seed:02}.nii.gz", (12, 10, 8), volume(seed, kind))
for seed in range(100, 107):
    kind = "edge" if seed % 3 else "disc"
    values = volume(seed, kind)
    write(f"{work}/more/{kind}/v{seed}.nii.gz", (12, 10, 8), values)
    write(f"{work}/new/v{seed}.nii.gz", (12, 10, 8), values)
    if kind == "edge": write(f"{work}/edges/edge/v{seed}.nii.gz", (12, 10, 8), values)
write(f"{work}/other/square/v.nii.gz", (12, 10, 8), volume(1, "disc"))
# Pictures, as .npy with labels of two kinds.
import random
random.seed(3)
n, side = 30, 16
kinds = [i % 3 for i in range(n)]
pixels = [random.random() + 2 * (kinds[i] * 5 <= x < kinds[i] * 5 + 5) for i in range(n) for y in range(side) for x in range(side)]
def npy_bytes(kind, shape, data):
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': ({', '.join(map(str, shape))},), }}"
    header = header + " " * (-(11 + len(header)) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data
def npy(name, *array): open(f"{work}/{name}", "wb").write(npy_bytes(*array))
import zipfile
with zipfile.ZipFile(f"{work}/medical.npz", "w") as archive:  # as MedMNIST has them
    for part, first, last in ("train", 0, 20), ("val", 20, 30):
        images = bytes(int(80 * value) for value in pixels[first * side**2:last * side**2])
        archive.writestr(f"{part}_images.npy", npy_bytes("|u1", [last - first, side, side], images))
        archive.writestr(f"{part}_labels.npy", npy_bytes("|u1", [last - first, 1], bytes(kinds[first:last])))
npy("pictures.npy", "<f4", [n, side, side], struct.pack(f"<{len(pixels)}f", *pixels))
cubes = [float(i % 3) for i in range(2 * 32**3)]
npy("cubes.npy", "<f4", [2, 32, 32, 32], struct.pack(f"<{len(cubes)}f", *cubes))
npy("stripes.npy", "<i8", [n], struct.pack(f"<{n}q", *kinds))
npy("parity.npy", "<i8", [n], struct.pack(f"<{n}q", *(i % 2 for i in range(n))))
END
python3 "$work/volumes.py" "$work"
classify=$tools/classify
train() { # train OUT OPTIONS...: for $epochs
  out=$1
  shift
  # shellcheck disable=SC2086  # with its number of ranks
  ${launcher:-run} "$classify" train --filters 4 --batch 6 --epochs "${epochs:-6}" --set network.norm_momentum=0.5 --learning-rate 0.01 \
    --precision float64 --quiet --set data.flips --out "$work/$out" "$@"
}
split='--set data.validation_fraction=0.25 --set data.split_seed=5'
# shellcheck disable=SC2086  # two options
{
  train folder --data "$work/scans" $split
  judge 'classify trains on folders of volumes' succeeds
  run "$tools/pack" --data "$work/scans" --validation-fraction 0.25 --split-seed 5 --out "$work/scans.h5"
  judge 'pack makes groups for training and validation' says 'written to .*scans.h5 (18 in train, 6 in val)'
}
train groups --data "$work/scans.h5"
judge 'classify trains on packed groups' rows "$work/groups/predictions.csv" 6
column() { cut -d, -f 2,3 "$1/metrics.csv"; }
judge 'volumes in folders and packed groups: the same losses' test "$(column "$work/folder")" = "$(column "$work/groups")"
launcher='ranks 2' && train kept --data "$work/scans.h5" --grid depth=2 --set data.ghosts=2 --set data.store=1 --set data.read=collective
launcher=
judge 'so have planes around blocks, and samples that ranks keep' near_losses "$work/groups/metrics.csv" "$work/kept/metrics.csv"
train memory --data "$work/medical.npz" --set data.read=collective
judge 'collective reading of samples that are in memory' refuses_arguments 'all samples of data.path are in memory'
weights=$work/folder/weights.h5
probabilities() { tail -n +2 "$1/predictions.csv" | cut -d, -f 4-; }
judge 'and the same probabilities' test "$(probabilities "$work/folder")" = "$(probabilities "$work/groups")"
judge 'it learns' awk -v a="$(value "$work/folder/summary.json" validation accuracy)" 'BEGIN { exit !(a > 0.8) }'
run "$classify" evaluate --weights "$weights" --data "$work/scans" --batch 4 --out "$work/folder-again"
judge 'evaluation of the training data gives the scores of its end' near \
  "$(value "$work/folder-again/summary.json" validation loss)" "$(value "$work/folder/summary.json" validation loss)"
judge 'of its validation samples' same "$work/folder/predictions.csv" "$work/folder-again/predictions.csv"
run "$classify" evaluate --weights "$work/groups/weights.h5" --data "$work/scans.h5" --group val --out "$work/groups-again"
judge 'so of a group' same "$work/groups/predictions.csv" "$work/groups-again/predictions.csv"
run "$classify" evaluate --weights "$weights" --data "$work/scans" --part all --out "$work/folder-all"
judge 'all of the training data: it is said' warns 'is what .* was trained on: 18 of these 24 volumes are no test'
run "$classify" evaluate --weights "$weights" --data "$work/more" --out "$work/more-scores"
judge 'other folders are evaluated' rows "$work/more-scores/predictions.csv" 7
for batch in 1 3 16; do
  run "$classify" predict --weights "$weights" --data "$work/new" --batch "$batch" --out "$work/new-$batch"
  judge "batches of $batch: every sample is predicted" rows "$work/new-$batch/predictions.csv" 7
done
# Files in folders come in the order of their folders.
in_order() { for f in "$1" "$2"; do tail -n +2 "$f/predictions.csv" | sed 's|^[^,]*/||' | sort | awk -F, '{ print $1, $(NF - 2), $(NF - 1) + 0, $NF + 0 }' >"$f/sorted"; done; succeeds && cmp "$1/sorted" "$2/sorted"; }
judge 'without truth the same is predicted' in_order "$work/more-scores" "$work/new-1"
for batch in 3 16; do judge "batches of $batch: the same" same "$work/new-1/predictions.csv" "$work/new-$batch/predictions.csv"; done
judge 'predict says how many are of which class' says '^[0-9]* of class disc, [0-9]* of class edge$'
judge 'predict draws' test -s "$work/new-1/classify.png"
ranks 2 "$classify" predict --weights "$weights" --data "$work/new" --grid depth=2 --out "$work/new-depth"
judge 'two ranks in depth predict the same' same "$work/new-1/predictions.csv" "$work/new-depth/predictions.csv"
threads 2 "$classify" predict --weights "$weights" --data "$work/new" --batch 2 --out "$work/new-two"
judge 'two ranks with a sample each predict the same' same "$work/new-1/predictions.csv" "$work/new-two/predictions.csv"
run "$classify" evaluate --weights "$weights" --data "$work/edges" --out "$work/edges-scores"
as_edges() { succeeds && [ "$(tail -n +2 "$work/edges-scores/predictions.csv" | cut -d, -f 2 | sort -u)" = edge ]; }
judge 'a folder of the second class alone is of the second class' as_edges
train apart --data "$work/scans" --set data.validation_data="$work/edges"
judge 'validation data of their own, classes by their names' rows "$work/apart/predictions.csv" "$(find "$work/edges" -name '*.gz' | wc -l)"
train pictures --data "$work/pictures.npy" --set data.labels=kind="$work/stripes.npy" --set data.labels=parity="$work/parity.npy" \
  --set data.label=kind \
  --set data.validation_fraction=0.2 --json
judge 'pictures, and one of several labels' test "$(value "$work/pictures/summary.json" classes)" = 3
run "$classify" evaluate --weights "$work/pictures/weights.h5" --data "$work/pictures.npy" --labels kind="$work/stripes.npy" \
  --labels parity="$work/parity.npy" --out "$work/pictures-again"
judge 'the label that was trained on counts' same "$work/pictures/predictions.csv" "$work/pictures-again/predictions.csv"
run "$classify" predict --weights "$work/pictures/weights.h5" --data "$work/pictures.npy" --out "$work/pictures-new" --onnx "$work/pictures.onnx"
judge 'predict writes the network as ONNX' says 'pictures.onnx: x \[N, 1, ...\] -> y, ONNX opset 17'
cat >"$work/same_network.py" <<'END'
import csv, sys
import numpy, onnxruntime
work = sys.argv[1]
session = onnxruntime.InferenceSession(f"{work}/pictures.onnx", providers=["CPUExecutionProvider"])
x = numpy.load(f"{work}/pictures.npy")[:, None, None]
y = session.run(None, {"x": x.astype(numpy.float64 if "double" in session.get_inputs()[0].type else numpy.float32)})[0]
found = numpy.exp(y - y.max(1, keepdims=True))
found /= found.sum(1, keepdims=True)
table = list(csv.DictReader(open(f"{work}/pictures-new/predictions.csv")))
expected = numpy.array([[float(row[f"probability_{kind}"]) for kind in range(3)] for row in table])
assert found.shape == expected.shape and numpy.ptp(expected) > 1e-3
difference = (abs(found - expected) / expected).max()
print(f"classify predict: largest difference of a probability {difference:.2g} of it")
assert difference < 1e-5
END
if [ -n "$onnx" ]; then
  run python3 "$work/same_network.py" "$work"
  judge 'ONNX Runtime gives the probabilities that predict writes' succeeds
  cat "$work/out"
else
  skip 'Python has no onnx and onnxruntime'
fi
judge 'pictures without labels' rows "$work/pictures-new/predictions.csv" 30
epochs=2
train medical --data "$work/medical.npz"
judge 'parts of .npz train and validate' rows "$work/medical/predictions.csv" 10
run "$classify" evaluate --weights "$work/medical/weights.h5" --data "$work/medical.npz" --group val --out "$work/medical-again"
judge 'and are evaluated' same "$work/medical/predictions.csv" "$work/medical-again/predictions.csv"
train resumed --data "$work/scans" --set data.validation_fraction=0.25 --set data.split_seed=5 --set checkpoint.epochs=1
train resumed --data "$work/scans" --set data.validation_fraction=0.25 --set data.split_seed=6 --resume "$work/resumed/checkpoint.h5" \
  --overwrite
judge 'going on with other validation samples' refuses_once 'split seed 5, now it is 6'

# ---- what is refused
refuse() { ranks 2 "$classify" "$@" --out "$work/refused"; }
refuse train --data "$work/scans"
judge 'no validation samples' refuses_once "the part 'train' means nothing.*data.validation_data PATH or data.validation_fraction F"
refuse train --data "$work/scans" --set data.validation_fraction=0.2 --set data.validation_data="$work/edges"
judge 'both kinds of validation samples' refuses_arguments 'one of the two'
refuse train --data "$work/scans.h5" --set data.split_seed=3
judge 'a seed of no split' refuses_arguments 'data.split_seed is of data.validation_fraction'
refuse train --data "$work/pictures.npy" --set data.validation_fraction=0.2
judge 'no labels' refuses_once 'needs labels'
refuse train --data "$work/scans.h5" --set data.label=nope
judge 'a label that is not there' refuses_once "there are no labels 'nope'"
refuse train --data "$work/scans.h5" --epochs 0
judge 'no epoch' refuses_arguments 'evaluate'
refuse evaluate --weights "$weights" --data "$work/other"
judge 'a class that was not trained on' refuses_once "the class 'square' is none of disc, edge"
refuse evaluate --weights "$weights" --data "$work/new"
judge 'evaluate needs classes' refuses_once 'needs labels'
refuse predict --weights "$work/mlperf/weights.h5" --data "$work/new"
judge 'weights of another program' refuses_once 'was written by cosmoflow, not by classify'
python3 - "$weights" "$work/changed.h5" <<'END'
import sys
content = open(sys.argv[1], "rb").read()
assert b"full_resolution" in content
open(sys.argv[2], "wb").write(content.replace(b"full_resolution", b"half_resolution"))
END
refuse predict --weights "$weights" --data "$work/pictures.npy"
judge 'pictures for a network of volumes' refuses_once 'is a picture, .* is of volumes'
infer ranks 2 depth=2 predict "$work/cubes.npy" refused
judge 'universes of other channels' refuses_once 'cubes.npy has 1 channels, .* is of 4'
refuse predict --weights "$work/changed.h5" --data "$work/new"
judge 'weights whose notes were changed' refuses_once 'changed.h5'
run "$tools/pack" --data "$work/scans" --validation-fraction 0.2 --samples-per-file 3 --out "$work/refused"
judge 'pack: groups of several files' refuses_arguments 'one of the two'
run "$tools/pack" --data "$work/scans" --split-seed 3 --out "$work/refused"
judge 'pack: a seed of no split' refuses_arguments '--split-seed needs --validation-fraction'
run "$tools/pack" --data "$work/scans" --validation-fraction 0.2 --out "$work/scans.h5"
judge 'pack overwrites nothing' refuses_once 'scans.h5: exists already'
run "$tools/contrastive" pack --data "$work/scans" --out "$work/refused"
judge 'pack is no command of contrastive' refuses_arguments '^contrastive: '
judge 'refused runs leave nothing behind' no_file "$work/refused"

summary
