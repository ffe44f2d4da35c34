#!/bin/sh
# Runs the segmentation tool as a user does, on small made-up volumes of different sizes: what it prints, writes and refuses.
# Prints `failed: NAME` for each failed test and ends with `N passed, M failed, K skipped`. tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher
. "$root/tests/suite.sh"

tool=$build/examples/unet3d
needs 'the segmentation tool is' "$tool"

# ---- data: 10 volumes of about 14 x 16 x 12 cells of 1 x 1 x 2 mm, bright balls (class 1) with a dark core (class 2) in noise.
cat >"$work/nifti.py" <<'END'
import gzip, random, struct
def write(path, extents, values, code=4, spacing=(1, 1, 2), at=(0, 0, 0), pack=gzip.compress):
    header = bytearray(352)
    struct.pack_into("<i", header, 0, 348)
    struct.pack_into("<8h", header, 40, 3, *extents, 1, 1, 1, 1)
    struct.pack_into("<hh", header, 70, code, 16 if code == 4 else 8)
    struct.pack_into("<4f", header, 76, 1, *spacing)
    struct.pack_into("<3f", header, 108, 352, 1, 0)
    header[123] = 2
    struct.pack_into("<h", header, 254, 1)
    for row in range(3):
        struct.pack_into("<4f", header, 280 + 16 * row, *(spacing[row] * (c == row) for c in range(3)), at[row])
    header[344:348] = b"n+1\0"
    data = struct.pack(f"<{len(values)}{'h' if code == 4 else 'B'}", *values)
    open(path, "wb").write(pack(bytes(header) + data))
def ball(seed):
    random.seed(seed)
    extents = [random.randrange(11, 17), random.randrange(12, 18), random.randrange(10, 14)]
    centre, radius = [e / 2 + random.uniform(-1, 1) for e in extents], random.uniform(3.5, 4.5)
    image, labels = [], []
    for z in range(extents[2]):
        for y in range(extents[1]):
            for x in range(extents[0]):
                r = sum((a - b) ** 2 for a, b in zip((x, y, z), centre)) ** 0.5
                label = 2 if r < radius / 2 else 1 if r < radius else 0
                labels.append(label)
                image.append(100 + (0, 60, -60)[label] + random.randrange(-15, 16) + 40 * seed)
    return extents, image, labels
END
PYTHONPATH="$work" python3 - "$work" <<'END'
import os, shutil, sys
from nifti import write, ball
work = sys.argv[1]
for folder in ("data", "new"):
    for part in ("images", "labels"):
        os.makedirs(f"{work}/{folder}/{part}")
for seed in range(10):
    extents, image, labels = ball(seed)
    write(f"{work}/data/images/v{seed}.nii.gz", extents, image)
    write(f"{work}/data/labels/v{seed}.nii.gz", extents, labels, 2)
extents, image, labels = ball(77)
write(f"{work}/new/images/one.nii", extents, image, pack=bytes)
write(f"{work}/new/labels/one.nii", extents, labels, 2, pack=bytes)
def broken(name, change):
    shutil.copytree(f"{work}/data", f"{work}/{name}")
    change(f"{work}/{name}")
extents, image, labels = ball(3)
broken("missing", lambda at: os.remove(f"{at}/labels/v3.nii.gz"))
broken("smaller", lambda at: write(f"{at}/labels/v3.nii.gz", [extents[0], extents[1], extents[2] - 1], labels[:-extents[0] * extents[1]], 2))
broken("moved", lambda at: write(f"{at}/labels/v3.nii.gz", extents, labels, 2, at=(0, 9, 0)))
broken("beyond", lambda at: write(f"{at}/labels/v3.nii.gz", extents, [min(7, 7 * label) for label in labels], 2))
broken("cut", lambda at: write(f"{at}/images/v3.nii.gz", extents, image[:100], pack=lambda b: b))
broken("kind", lambda at: write(f"{at}/images/v3.nii.gz", extents, [v % 256 for v in image], 128))
broken("hollow", lambda at: write(f"{at}/images/v3.nii.gz", [extents[0], 0, extents[2]], []))
END

# ---- conditions
refuses_bad() { [ "$status" -eq 2 ] && [ "$(grep -c "$1" "$work/err")" -eq 1 ]; }
# within FILE NAME LOW HIGH: a number of a JSON document.
within() {
  succeeds && python3 - "$@" <<'END'
import json, sys
low, high = map(float, sys.argv[3:])
sys.exit(not low <= json.load(open(sys.argv[1]))[sys.argv[2]] <= high)
END
}
# same_cells FILE FILE: the same labels on the same cells.
same_cells() {
  succeeds && python3 - "$@" <<'END'
import gzip, sys
def read(path):
    data = open(path, "rb").read()
    return gzip.decompress(data) if path.endswith(".gz") else data
a, b = map(read, sys.argv[1:])
sys.exit(not (a[40:56] == b[40:56] and a[80:92] == b[80:92] and a[280:328] == b[280:328] and a[352:] == b[352:]))
END
}

cat >"$work/small.toml" <<'END'
program = "unet3d"
[data]
foreground = 0.5
augment = "elastic:amplitude=1:spacing=6:p=1,contrast:p=1,noise:p=1"
flips = true
END
small="$work/small.toml --filters 6,12,24"
train="$tool train --data $work/data --window 16,16,12 --batch 2 --learning-rate 5e-3 --quiet"

# ---- training
# shellcheck disable=SC2086  # several options
{
  run $train $small --epochs 14 --set checkpoint.half_weights --out "$work/run"
  judge 'a network learns to find balls' within "$work/run/summary.json" mean_dice 0.8 1
  table() { succeeds && grep -q '^class   Dice' "$work/out" && grep -q '^ mean ' "$work/out" && [ "$(wc -l <"$work/run/cases.csv")" -eq 3 ]; }
  judge 'it prints a table, and has a row for each validation volume' table
  judge 'it draws a picture' test -s "$work/run/unet3d.png"
  run $train $small --epochs 2 --precision float64 --out "$work/one"
  ranks 2 $train $small --epochs 2 --precision float64 --grid depth=2 --out "$work/two"
  judge 'two ranks along the depth have the losses of one' near_losses "$work/one/metrics.csv" "$work/two/metrics.csv"
  ranks 2 $train $small --epochs 2 --precision float64 --grid depth=2 --set data.ghosts=1 --set data.read=collective \
    --set data.cache="$work/cache" --out "$work/ghosts"
  judge 'so they have where planes around their blocks are read, by both together, of volumes that a cache has' near_losses "$work/one/metrics.csv" "$work/ghosts/metrics.csv"
  threads 4 $train $small --epochs 2 --precision float64 --grid sample=2,height=2 --set network.variant=mlperf --out "$work/four"
  judge 'so have threads that split samples and heights' near_losses "$work/one/metrics.csv" "$work/four/metrics.csv"
  threads 4 $train $small --epochs 2 --precision float64 --grid sample=2,filter=2 --set grid.layers=bottom:depth=2,channel=2 \
    --out "$work/mixed"
  judge 'so have threads that split filters, and channels at the bottom' near_losses "$work/one/metrics.csv" "$work/mixed/metrics.csv"
  ranks 2 $train $small --epochs 2 --precision float64 --grid depth=2 --set grid.sharded_weights \
    --set data.cache="$work/cache" --out "$work/parts"
  judge 'so have two ranks that store parts of the weights' near_losses "$work/one/metrics.csv" "$work/parts/metrics.csv"
  judge 'each volume is in the cache, and its labels' test "$(find "$work/cache" -name '*.volume' | wc -l)" -eq 20
  ranks 4 $train $small --epochs 2 --precision float64 --grid stage=2,height=2 --set grid.boundaries=up1 --out "$work/stages"
  judge 'so have two stages of two ranks each, with skip connections between them' \
    near_losses "$work/one/metrics.csv" "$work/stages/metrics.csv"
  run $train $small --epochs 1 --precision float64 --set checkpoint.epochs=1 --out "$work/part"
  run $train $small --epochs 2 --precision float64 --resume "$work/part/checkpoint.h5" --set schedule.shape=cosine \
    --set checkpoint.allow_changes --out "$work/part" --overwrite
  judge 'training goes on from a checkpoint' succeeds
  run $train --epochs 1 --set network.variant=lbann --filters 4,8,8,16 --set network.norm=group --set network.groups=4 --loss tversky \
    --set data.spacing=2 --set network.recompute --set optimizer.average_weights=0.9 --out "$work/lbann"
  judge 'the other variant, group norm, another loss, 2 mm, recomputing, averaged weights' succeeds
  run $tool train --describe --window 64 --json
  judge 'the MLPerf network has 31,190,243 parameters' eval 'succeeds && grep -q "\"parameters\": 31190243" "$work/out"'
}

# ---- evaluation and prediction
weights=$work/run/weights.h5
run "$tool" evaluate --weights "$weights" --data "$work/data" --out "$work/scores" --json
judge 'evaluate finds the validation volumes and the same Dice' eval \
  'within "$work/out" samples 2 2 && cmp -s "$work/run/cases.csv" "$work/scores/cases.csv"'
run "$tool" evaluate --weights "$work/one/weights.h5" --data "$work/data" --out "$work/wide" --json
judge 'so it does of weights in float64' eval 'within "$work/out" samples 2 2 && cmp -s "$work/one/cases.csv" "$work/wide/cases.csv"'
run "$tool" evaluate --weights "$weights" --data "$work/new" --out "$work/new_scores" --predictions --largest-component --json
judge 'evaluate takes other data' within "$work/out" mean_dice 0.8 1
run "$tool" predict --weights "$weights" --images "$work/new/images" --out "$work/predicted" --onnx "$work/predicted/net.onnx"
judge 'and the network as ONNX' says 'net.onnx: x \[N, [12], ...\] -> y, ONNX opset 17'
if python3 -c 'import onnx, onnxruntime' 2>"$work/no"; then
  run python3 "$root/tests/models/export/onnx_runtime.py" "$work/predicted/net.onnx"
  judge 'which ONNX Runtime runs' succeeds
else
  skip 'Python has no onnx and onnxruntime'
fi
judge 'predict writes a file of the same name' test -s "$work/predicted/one.nii"
cells() { python3 -c 'import sys; d = open(sys.argv[1], "rb").read(); t = open(sys.argv[2], "rb").read(); same = sum(a == b for a, b in zip(d[352:], t[352:])); sys.exit(len(d) != len(t) or d[40:56] != t[40:56] or d[280:328] != t[280:328] or same < 0.95 * (len(t) - 352))' "$1" "$2"; }
judge 'it lies on the cells of its image and is like the truth' cells "$work/predicted/one.nii" "$work/new/labels/one.nii"
ranks 2 "$tool" predict --weights "$weights" --images "$work/new" --grid depth=2 --out "$work/split"
judge 'two ranks predict the same' same_cells "$work/predicted/one.nii" "$work/split/one.nii"
run "$tool" predict --weights "$work/lbann/weights.h5" --images "$work/new/images" --out "$work/resampled"
same_extents() { succeeds && python3 -c 'import sys; a, b = (open(f, "rb").read() for f in sys.argv[1:]); sys.exit(a[40:56] != b[40:56] or len(a) != len(b))' "$1" "$2"; }
judge 'it says that its weights are averaged' says 'parameters, averaged weights (decay 0.9), '
judge 'a network of resampled volumes predicts the cells as they are stored' same_extents "$work/resampled/one.nii" "$work/new/labels/one.nii"
run "$tool" predict --weights "$weights" --images "$work/new/images" --out "$work/predicted"
judge 'it does not overwrite' refuses 'one.nii exists; --overwrite replaces it'
run "$tool" predict --weights "$weights" --images "$work/new/images" --out "$work/new/images" --overwrite
judge 'nor the images themselves' refuses_bad 'is the folder of the images'
run "$tool" evaluate --weights "$weights" --data "$work/new" --part validation --out "$work/nothing"
judge 'validation samples are those of the training' refuses_bad 'is not what'

# ---- several networks, mirrored windows, 16 bits, post-processing, regions
run "$tool" predict --weights "$weights" --images "$work/new/images" --set predict.mirror=depth --set predict.mirror=width \
  --set predict.scores=16-bit --set data.windows=2 --out "$work/mirrored"
judge 'mirrored windows predict as well' cells "$work/mirrored/one.nii" "$work/new/labels/one.nii"
ranks 2 "$tool" predict --weights "$weights" --images "$work/new/images" --set predict.mirror=depth --set predict.mirror=width \
  --set predict.scores=16-bit --grid depth=2 --out "$work/mirrored_split"
judge 'and so on two ranks' same_cells "$work/mirrored/one.nii" "$work/mirrored_split/one.nii"
run "$tool" predict --weights "$weights" --images "$work/new/images" --set predict.memory=0.01 --out "$work/small"
judge 'what does not fit is refused with numbers' refuses_bad 'one.nii of .* cells takes .* of each rank besides the .*left of the 0.01 GiB'
run "$tool" evaluate --weights "$weights" --data "$work/new" --ensemble "$work/lbann/weights.h5" --out "$work/both"
judge 'networks of other spacing make no ensemble' refuses_bad 'do not have the same'
run "$tool" evaluate --weights "$weights" --data "$work/new" --set report.regions=all=1+2 --set report.regions=core=2 \
  --postprocessing "$work/run/postprocessing.json" --out "$work/regions" --json
regions() {
  succeeds && python3 - "$work/out" "$work/regions" <<'END'
import csv, json, sys
document = json.load(open(sys.argv[1]))
scores = {each.get("region", each.get("class")): each["dice"] for each in document["classes_scored"]}
row = next(csv.DictReader(open(sys.argv[2] + "/cases.csv")))
page = open(sys.argv[2] + "/report.html").read()
assert scores["core"] == scores[2] and scores["all"] > 0.9 and abs(float(row["dice_all"]) - scores["all"]) < 1e-9, scores
assert "http" not in page and "<td>core</td>" in page and "data:image/png;base64," in page
END
}
judge 'regions are scored like classes, and the page has them' regions
run "$tool" train --filters 4,8,16 --data "$work/data" --window 16,16,12 --batch 2 --epochs 1 --set labels.regions=ball=1 --quiet --out "$work/one_region"
judge 'classes of no region are allowed' succeeds

# ---- two folds as trials of hpo, scored and used together
cat >"$work/folds.toml" <<END
program = ["$tool", "train", "$work/small.toml", "--filters", "4,8,16", "--data", "$work/data", "--window", "16,16,12", "--batch", "2",
           "--epochs", "5", "--learning-rate", "1e-2", "--set", "data.folds=2", "--quiet"]
metric = "validation_loss"
[parameters]
"data.fold" = [1, 2]
END
if [ -x "$build/examples/hpo" ]; then
  run "$build/examples/hpo" --space "$work/folds.toml" --slots 2 --cores 2 --out "$work/folds" --quiet
  judge 'hpo trains both folds' says '2 trials: 2 done'
  both="--weights $work/folds/trials/0001/weights.h5 --ensemble $work/folds/trials/0002/weights.h5"
  # shellcheck disable=SC2086
  run "$tool" evaluate $both --data "$work/data" --part folds --out "$work/cross" --json
  crossed() {
    succeeds && python3 - "$work/cross/cases.csv" "$work/folds/trials" <<'END'
import csv, sys
def rows(path): return {row.pop("sample"): row for row in csv.DictReader(open(path))}
cross, folds = rows(sys.argv[1]), [rows(f"{sys.argv[2]}/000{k}/cases.csv") for k in (1, 2)]
assert len(cross) == 10 and [len(fold) for fold in folds] == [5, 5] and not set(folds[0]) & set(folds[1])
assert cross == {**folds[0], **folds[1]}
END
  }
  judge 'each volume has the score of the network that has not seen it' crossed
  # shellcheck disable=SC2086
  run "$tool" evaluate $both --data "$work/data" --out "$work/bad"
  judge 'an ensemble is not scored on volumes that it has learned from' refuses_bad 'has learned from volumes that .* data.part=folds'
  run "$tool" evaluate --weights "$work/folds/trials/0001/weights.h5" --data "$work/data" --part folds --out "$work/bad"
  judge 'folds are complete' refuses_bad 'is kept by none of the 1 weights'
  # shellcheck disable=SC2086
  run "$tool" predict $both --postprocessing "$work/cross/postprocessing.json" --images "$work/new/images" --out "$work/ensemble"
  judge 'both predict together' says '^2 networks: the mean of them'
  # shellcheck disable=SC2086
  ranks 2 "$tool" predict $both --postprocessing "$work/cross/postprocessing.json" --images "$work/new/images" --grid height=2 --out "$work/ensemble_split"
  judge 'and so on two ranks' same_cells "$work/ensemble/one.nii" "$work/ensemble_split/one.nii"
else
  skip 'hpo was not built'
fi
# shellcheck disable=SC2086
run $train $small --epochs 1 --set data.folds=3 --set data.fold=4 --out "$work/bad"
judge 'refused: a fold that does not exist' refuses_bad '4 of 3'

# ---- the weights that come with the sources, on volumes that their training has not seen
hippocampus=${MPIGRAD_SHARED:-$root/../shared}/data/3d/hippocampus
if [ -d "$hippocampus" ]; then
  mkdir -p "$work/unseen/images" "$work/unseen/labels"
  for number in 004 006 042; do
    for part in images labels; do cp "$hippocampus/$part/hippocampus_$number.nii.gz" "$work/unseen/$part/"; done
  done
  run "$tool" evaluate --weights "$root/examples/trainers/unet3d/hippocampus.h5" --data "$work/unseen" --out "$work/unseen_scores" --json
  judge 'the weights of the sources segment hippocampi' within "$work/out" mean_dice 0.85 1
  run "$tool" predict --weights "$root/examples/trainers/unet3d/hippocampus.h5" --images "$work/unseen/images" --out "$work/unseen_predicted"
  packed() { succeeds && [ "$(find "$work/unseen_predicted" -name 'hippocampus_0*.nii.gz' | wc -l)" -eq 3 ] && gzip -t "$work/unseen_predicted"/*.gz; }
  judge 'and predict them' packed
else
  skip 'the reference data is not on this machine (MPIGRAD_SHARED says where it is)'
fi

# ---- a plan from the data, and the training that it describes
run "$tool" plan "$work/data" --memory 40MiB --set plan.filters=4 --out "$work/plan.toml"
judge 'a plan says spacing, window, levels and batch' says 'spacing 2 x 1 x 1 mm, .*window 12 x 14 x 14, 2 levels, batch 2'
ranks 2 "$tool" plan "$work/data" --memory 40MiB --set plan.filters=4 --grid depth=2 --json --out "$work/plan2.toml"
judge 'two ranks read the data together' is_json
bytes_of_two=$(number step_bytes)
run "$tool" plan "$work/data" --memory 40MiB --set plan.filters=4 --json --out "$work/plan1.toml"
judge 'a grid of two ranks needs less memory on each' test "$bytes_of_two" -lt "$(number step_bytes)"
run "$tool" plan "$work/data" --memory 40MiB --out "$work/plan.toml"
judge 'a recipe is not replaced' refuses_arguments 'plan.toml exists'
run "$tool" plan "$work/data" --modality CT --set plan.filters=4 --set network.deep_supervision=false --out "$work/ct.toml"
ct() { succeeds && grep -q '^normalise = "ct"' "$work/ct.toml" && grep -q '^intensities = \[.*,.*,.*,.*\]' "$work/ct.toml" && grep -q '^deep_supervision = false' "$work/ct.toml"; }
judge 'CT is normalised by the foreground of all volumes' ct
# Every volume counts the same, by its mean, its variance and 10,000 of its cells.
numbers() {
  PYTHONPATH="$work" python3 - "$work/ct.toml" <<'END'
import re, sys
from nifti import ball
mean = lambda values: sum(values) / len(values)
def quantile(q):
    place = q * (len(cells) - 1)
    below = int(place)
    return cells[below] + (place - below) * (cells[below + 1] - cells[below])
volumes = [[v for v, label in zip(image, labels) if label] for _, image, labels in map(ball, range(10))]
cells = sorted(v[int((i + 0.5) * len(v) / 10000)] for v in volumes for i in range(10000))
middle = mean([mean(v) for v in volumes])
deviation = mean([mean([(x - middle) ** 2 for x in v]) for v in volumes]) ** 0.5
found = [float(x) for x in re.search(r"^intensities = \[(.*)\]", open(sys.argv[1]).read(), re.M)[1].split(",")]
sys.exit(max(abs(a - b) for a, b in zip(found, [quantile(0.005), quantile(0.995), middle, deviation])) > 1e-3)
END
}
judge 'with their mean, deviation and percentiles' numbers
run "$tool" train "$work/plan.toml" --set loss.batch_dice=true --set schedule.accumulate=2 --out "$work/in_parts"
judge 'one overlap over a batch in parts is refused' refuses_arguments 'loss.batch_dice is one overlap over a whole batch'
for case in plan ct; do
  run "$tool" train "$work/$case.toml" --epochs 2 --quiet --precision float64 --set schedule.batch=2 --out "$work/$case"
  judge "train takes the recipe $case" succeeds
  ranks 2 "$tool" train "$work/$case.toml" --epochs 2 --quiet --precision float64 --set schedule.batch=2 --grid height=2 --out "$work/$case-two"
  judge 'two ranks have the losses of one' near_losses "$work/$case/metrics.csv" "$work/$case-two/metrics.csv"
  run "$tool" predict --weights "$work/$case/weights.h5" --images "$work/new/images" --out "$work/$case-predicted"
  judge 'and its weights segment volumes' succeeds
done
sed 's/^intensities = \[[^,]*,/intensities = [-5,/' "$work/ct.toml" >"$work/ct2.toml"
run "$tool" train "$work/ct2.toml" --epochs 1 --quiet --precision float64 --set schedule.batch=2 --out "$work/ct2"
run "$tool" evaluate --weights "$work/ct/weights.h5" --ensemble "$work/ct2/weights.h5" --data "$work/new" --out "$work/two_scales"
judge 'networks that know other intensities make no ensemble' refuses_bad 'do not have the same normalisation'
run "$tool" plan "$work/data" --memory 1MiB --out "$work/bad.toml"
judge 'refused: less memory than the smallest window needs' refuses_arguments 'does not fit: a training step needs'
run "$tool" plan "$work/data" --memory 8 --out "$work/bad.toml"
judge 'refused: memory without a unit' refuses_arguments 'bytes with a unit'
ranks 2 "$tool" plan "$work/cut" --out "$work/bad.toml"
judge 'refused: a plan for files that cannot be read' refuses_bad 'v3.nii.gz: truncated'
mkdir -p "$work/empty/images" "$work/empty/labels"
run "$tool" plan "$work/empty" --out "$work/bad.toml"
judge 'refused: a plan for no volumes' refuses_arguments 'no volume'
run "$tool" train --data "$work/data" --set network.variant=resenc --set network.strides='1x1x1 2x2' --epochs 1 --out "$work/bad"
judge 'refused: strides that are no triples' refuses_bad 'three whole numbers DxHxW'
judge 'no recipe was written' no_file "$work/bad.toml"

# ---- bad input: one line, exit code 2 on every rank, nothing written
# shellcheck disable=SC2086
for case in 'missing|v3.nii.gz has no labels' 'smaller|do not have the same cells: extents' 'moved|do not have the same cells: places' \
  'cut|v3.nii.gz: truncated' 'kind|elements of type 128' 'hollow|extents'; do
  ranks 2 $tool train --data "$work/${case%%|*}" $small --window 12 --batch 2 --epochs 1 --out "$work/bad"
  judge "refused: ${case%%|*}" refuses_bad "${case#*|}"
done
run "$tool" evaluate --weights "$weights" --data "$work/beyond" --out "$work/bad"
judge 'refused: labels beyond the classes' refuses_bad 'a label is 7, there are 3 classes'
# shellcheck disable=SC2086
run $train --epochs 1 --out "$work/bad" --grid depth=2
judge 'refused: a grid of other ranks' refuses_bad 'grid'
# shellcheck disable=SC2086
threads 13 $train --epochs 1 --out "$work/bad" --grid width=13
judge 'refused: more ranks than planes' refuses_bad '13 ranks along width for 12 planes'
# shellcheck disable=SC2086
run $tool train --data "$work/data" --epochs 1 --out "$work/bad" --window 16,0,4
judge 'refused: a window without cells' refuses_bad 'window is one number or three'
run "$tool" predict --weights "$work/data/images/v0.nii.gz" --images "$work/new/images" --out "$work/bad"
judge 'refused: weights that are none' refuses 'v0.nii.gz'
judge 'nothing was written' no_file "$work/bad"

summary
