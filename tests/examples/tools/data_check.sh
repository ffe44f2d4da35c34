#!/bin/sh
# Trainers with data that changed, with values that no network can take, with labels that leave classes out and with volumes that
# are stored the other way round: small universes, pictures and volumes. Prints `failed: NAME` for each failed test and
# ends with `N passed, M failed, K skipped`. tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher
. "$root/tests/suite.sh"

tools=$build/examples
needs 'the trainers are' "$tools/cosmoflow"

cat >"$work/data.py" <<'END'
import math, os, random, struct, sys
work = sys.argv[1]
def npy(name, kind, shape, values, code):
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': ({', '.join(map(str, shape))},), }}"
    header = header + " " * (-(11 + len(header)) % 64) + "\n"
    start = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
    open(f"{work}/{name}.npy", "wb").write(start + struct.pack(f"<{len(values)}{code}", *values))
random.seed(1)
pixels = [random.random() + i // 256 % 2 for i in range(24 * 256)]
npy("pictures", "<f4", [24, 16, 16], pixels, "f")
npy("kinds", "<i8", [24], [i % 2 for i in range(24)], "q")
pixels[13 * 256 + 5 * 16 + 7] = math.inf
npy("infinite", "<f4", [24, 16, 16], pixels, "f")
pixels[13 * 256 + 5 * 16 + 7] = 1e300
npy("huge", "<f8", [24, 16, 16], pixels, "d")
def nifti(name, values, code, type, signs=(1, 1, 1)):
    os.makedirs(os.path.dirname(f"{work}/{name}"), exist_ok=True)
    header = bytearray(352)
    struct.pack_into("<i", header, 0, 348)
    struct.pack_into("<8h", header, 40, 3, 12, 10, 8, 1, 1, 1, 1)
    struct.pack_into("<2h", header, 70, type, struct.calcsize(code) * 8)
    struct.pack_into("<4f", header, 76, 1, 1, 1, 1)
    struct.pack_into("<2f", header, 108, 352, 1)
    struct.pack_into("<h", header, 254, signs is not None)
    for a in range(3): struct.pack_into("<f", header, 280 + 20 * a, signs[a] if signs else 0)
    header[344:348] = b"n+1\0"
    open(f"{work}/{name}", "wb").write(bytes(header) + struct.pack(f"<{len(values)}{code}", *values))
os.mkdir(f"{work}/arrays")
for n in range(5):
    cells = [(x - 6) ** 2 + (y - 5) ** 2 + (z - 4) ** 2 < 10 for z in range(8) for y in range(10) for x in range(12)]
    values = [random.random() + 2 * cell for cell in cells]
    for data, inside in ("balls", 1), ("masks", 255), ("flawed", 1), ("grown", 1):
        flaw = data == "flawed" and n == 3
        nifti(f"{data}/images/v{n}.nii", [math.nan if flaw and i == 500 else value for i, value in enumerate(values)], "f", 16)
        nifti(f"{data}/labels/v{n}.nii", [inside * (cell or data == "grown" and i < 9) for i, cell in enumerate(cells)], "B", 2)
    nifti(f"unplaced/images/v{n}.nii", values, "f", 16, None)
    nifti(f"unplaced/labels/v{n}.nii", [int(cell) for cell in cells], "B", 2, None)
    npy(f"arrays/v{n}_x", "<f4", [8, 10, 12], values, "f")
    npy(f"arrays/v{n}_y", "<i8", [8, 10, 12], cells, "q")
    for channel in range(2):  # as nnU-Net has them; labels of 3 are to be ignored
        nifti(f"nnunet/imagesTr/v{n}_000{channel}.nii", [value + channel * cell for value, cell in zip(values, cells)], "f", 16)
    nifti(f"nnunet/labelsTr/v{n}.nii", [3 if i % 5 == 0 else int(cell) for i, cell in enumerate(cells)], "B", 2)
for channel in range(2): nifti(f"nnunet/imagesTs/w_000{channel}.nii", values, "f", 16)
open(f"{work}/nnunet/dataset.json", "w").write('{"channel_names": {"0": "a", "1": "b"}, "labels": {"background": 0, "ball": 1, "ignore": 3}, "numTraining": 5}')
nifti("plain/v.nii", values, "f", 16)
nifti("turned/v.nii", values[::-1], "f", 16, (-1, -1, -1))
nifti("unsaid/v.nii", values, "f", 16, None)
for name, changes in ("sheared", {284: 0.3}), ("coarse", {88: 2.0, 320: 2.0}), ("contradicting", {88: 1.5}):  # y leans towards x; planes 2 mm apart
    nifti(f"{name}/v.nii", values, "f", 16)
    with open(f"{work}/{name}/v.nii", "r+b") as f:
        for at, value in changes.items(): f.seek(at), f.write(struct.pack("<f", value))
END
python3 "$work/data.py" "$work"

# ---- other data of the same names
for seed in 1 2; do
  run "$tools/universe" generate --out "$work/universes-$seed" --universes 6 --size 16 --cell 4 --seed "$seed" --spread
done
cosmoflow() { # cosmoflow COMMAND UNIVERSES OPTIONS...
  command=$1 data=$work/universes-$2
  shift 2
  ${launcher:-run} "$tools/cosmoflow" "$command" --data "$data" "$@"
}
set -- --filters 4 --batch 2 --set data.test_fraction=0.3 --quiet --out "$work/run"
cosmoflow train 1 --epochs 1 --set checkpoint.epochs=1 "$@"
judge 'a training reads its data before the first step' says '4 volumes of .*, 2 for the test, targets .*; .* read and checked in'
cosmoflow evaluate 1 --weights "$work/run/weights.h5" --out "$work/own"
judge 'evaluate knows the data of the training' says '^2 volumes .*, which the training kept; targets '
cosmoflow evaluate 2 --weights "$work/run/weights.h5" --out "$work/other"
judge 'evaluate takes all of other universes, whatever their names' says '^6 volumes of .* x 4; targets '
cosmoflow train 2 --epochs 2 --resume "$work/run/checkpoint.h5" --overwrite "$@"
judge 'going on with other data is refused, and both are named' refuses_arguments \
  "checkpoint.h5 was trained on other samples: contents of training samples of 'universes-1' 4 samples, .*, now of 'universes-2' 4 samples, "
launcher='ranks 2'
cosmoflow train 1 --grid depth=2 --epochs 2 --resume "$work/run/checkpoint.h5" --set checkpoint.allow_changes --overwrite "$@"
launcher=
judge 'with the same data it goes on, on another grid' succeeds

# ---- values that are not finite
place='infinite.npy \[13\]: the value at \[0, 5, 7\] \[z, y, x\] is inf$'
classify() {
  run "$tools/classify" train --set data.labels=kind="$work/kinds.npy" --set data.validation_fraction=0.25 --filters 4 --batch 6 \
    --epochs 1 --quiet "$@"
}
classify --data "$work/pictures.npy" --out "$work/pictures"
judge 'a classifier learns pictures' succeeds
classify --data "$work/infinite.npy" --out "$work/bad"
judge 'classify train names file and place' refuses_arguments "$place"
classify --data "$work/huge.npy" --out "$work/bad"
judge 'so it does of a number that the type of the batches cannot hold' refuses_arguments 'is 1e+300, which float32 cannot hold$'
ranks 2 "$tools/classify" predict --weights "$work/pictures/weights.h5" --data "$work/infinite.npy" --out "$work/bad"
judge 'classify predict writes no NaN' refuses_arguments "$place"
contrastive() { run "$tools/contrastive" train --data "$work/infinite.npy" --batch 8 --epochs 1 --quiet "$@"; }
contrastive --out "$work/bad"
judge 'contrastive train names file and place' refuses_arguments "$place"
contrastive --set schedule.skip_bad --out "$work/left_out"
judge 'with schedule.skip_bad it leaves them out' says 'samples that are not finite were left out'
run "$tools/contrastive" embed --weights "$work/left_out/weights.h5" --data "$work/infinite.npy" --out "$work/bad"
judge 'contrastive embed writes no NaN' refuses_arguments "$place"
unet3d() { ${launcher:-run} "$tools/unet3d" train --window 8 --filters 4,4,4 --batch 2 --epochs 1 --quiet "$@"; }
unet3d --data "$work/balls" --set checkpoint.epochs=1 --out "$work/balls_run"
judge 'unet3d learns balls' succeeds
launcher='ranks 2'
unet3d --data "$work/flawed" --set data.normalise=none --out "$work/bad"
launcher=
judge 'unet3d train names file and place' refuses_arguments 'flawed/images/v3.nii: the value at \[4, 1, 8\] \[z, y, x\] is nan$'
run "$tools/unet3d" predict --weights "$work/balls_run/weights.h5" --images "$work/flawed" --out "$work/bad"
judge 'unet3d predict lets no NaN change its neighbours' refuses_arguments 'v3.nii: the value at \[4, 1, 8\] \[z, y, x\] is nan$'
unet3d --data "$work/grown" --resume "$work/balls_run/checkpoint.h5" --overwrite --out "$work/balls_run"
judge 'labels are contents, too' refuses_arguments "was trained on other samples: .* of 'balls' .*, now of 'grown' "

# ---- classes with gaps
unet3d --data "$work/masks" --out "$work/bad"
judge 'masks of 0 and 255 are no 256 classes' refuses_arguments 'the labels of .*/masks are 0, 255: classes count from 0.* 1, 2, .*are missing'
cp "$work/err" "$work/bad_labels"
unet3d --data "$work/masks" --set network.classes=256 --out "$work/wide"
judge 'unless it is said how many there are' warns 'no cell of .*masks is of the classes 1, 2, 3, .*(254 in all)'

judge 'the message has the rule that numbers them anew' grep -q 'labels.map = { 255 = 1 }' "$work/bad_labels"
printf '[labels]\nmap = { 255 = 1 }\n' >"$work/map.toml"
unet3d "$work/map.toml" --data "$work/masks" --out "$work/mapped"
judge 'with the rule they are 2 classes' says ' with 2 classes for training'
run "$tools/unet3d" evaluate --weights "$work/mapped/weights.h5" --data "$work/masks" --out "$work/mapped_scores"
judge 'which the weights know' says ', 2 classes, '
unet3d --data "$work/nnunet" --out "$work/bad" --set labels.ignore=
judge 'without the rule of dataset.json for label 3 it is a class too many' refuses_arguments 'a label is 3, there are 2 classes'
launcher='ranks 2'
unet3d --data "$work/nnunet" --grid depth=2 --out "$work/nnunet_run"
launcher=
judge "nnU-Net's folders are read, with two channels in files and cells that are ignored" says 'up to \[8, 10, 12\] x 2 with 2 classes'
run "$tools/unet3d" evaluate --weights "$work/nnunet_run/weights.h5" --data "$work/nnunet" --out "$work/nnunet_scores"
judge 'evaluate ignores the same cells' says ', 2 classes, '
run "$tools/unet3d" predict --weights "$work/nnunet_run/weights.h5" --images "$work/nnunet" --out "$work/nnunet_predicted"
judge 'predict reads imagesTs and names its files as nnU-Net does' test -s "$work/nnunet_predicted/w.nii"
mkdir -p "$work/regions/imagesTr"
cp -r "$work/nnunet/labelsTr" "$work/regions"
python3 - "$work" <<'END'
import struct, sys
for n in range(5):  # both channels in one file, as the fourth dimension
    a, b = (open(f"{sys.argv[1]}/nnunet/imagesTr/v{n}_000{channel}.nii", "rb").read() for channel in range(2))
    open(f"{sys.argv[1]}/regions/imagesTr/v{n}.nii", "wb").write(a[:40] + struct.pack("<h", 4) + a[42:48] + struct.pack("<h", 2) + a[50:] + b[352:])
END
printf '{"labels": {"background": 0, "all": [1, 3], "rim": [3]}, "regions_class_order": [1, 3]}' >"$work/regions/dataset.json"
unet3d --data "$work/regions" --out "$work/regions_run"
judge "nnU-Net's regions are targets, of two channels in one file" eval "says 'region 2 is rim=3, written as class 3' && grep -q 'up to \[8, 10, 12\] x 2 ' '$work/out'"
run "$tools/unet3d" evaluate --weights "$work/regions_run/weights.h5" --data "$work/regions" --out "$work/regions_scores"
judge 'evaluate scores them by name' says '^ *rim  *[01]\.'

# ---- orientation
predict() {
  run "$tools/unet3d" predict --images "$work/$1" --weights "$2" --out "$work/$3"
}
predict plain "$work/balls_run/weights.h5" as_it_is
judge 'a volume that is stored as those of the training is segmented' silent
predict turned "$work/balls_run/weights.h5" turned_run
judge 'so is a volume that is stored the other way round' silent
cells='import sys; a, b = (open(name, "rb").read() for name in sys.argv[1:]); sys.exit(a[352:] != b[:351:-1])'
judge 'with the same classes at the same places' python3 -c "$cells" "$work/as_it_is/v.nii" "$work/turned_run/v.nii"
judge 'in a file whose header says where its cells are, as its image does' python3 -c "import sys
a, b = (open(name, 'rb').read() for name in sys.argv[1:])
sys.exit(a[76:108] != b[76:108] or a[252:328] != b[252:328])" "$work/turned/v.nii" "$work/turned_run/v.nii"
predict unsaid "$work/balls_run/weights.h5" unsaid_run
judge 'a volume that does not say its orientation is taken as stored' warns 'v.nii does not say its orientation; .* was trained on RAS'
unet3d --data "$work/unplaced" --out "$work/unplaced_run"
judge 'so are volumes of a training' warns '5 of 5 volumes do not say their orientation: they are taken as stored (.*v0.nii)'
predict sheared "$work/balls_run/weights.h5" sheared_run
judge 'axes that are not at right angles are said' warns '1 of 1 volumes have axes that are not at right angles: .*v.nii, 16.7 degrees'
predict contradicting "$work/balls_run/weights.h5" contradicting_run
judge 'so is a spacing that is not that of the affine map' warns \
  '1 of 1 volumes have a spacing that is not that of their affine map: .*v.nii says cells of 1.5 x 1 x 1 mm .* places them 1 x 1 x 1 mm apart'
predict coarse "$work/balls_run/weights.h5" coarse_run
judge 'so is a volume that is resampled' warns '1 of 1 volumes are resampled .*v.nii, 2 x 1 x 1 mm \[z, y, x\] to 1 x 1 x 1)'
judge 'whose classes are on its own cells' test "$(wc -c <"$work/coarse_run/v.nii")" -eq 1312
unet3d --data "$work/arrays" --out "$work/arrays_run"
predict turned "$work/arrays_run/weights.h5" arrays_predicted
judge 'weights of a training on arrays say once that they know no orientation' eval \
  "warns 'arrays_run/weights.h5 knows neither orientation nor spacing' && [ \"\$(wc -l <\"\$work/err\")\" -eq 1 ]"
unet3d --data "$work/balls" --set data.orientation=RAR --out "$work/bad"
judge 'an orientation that is none is refused' refuses_arguments "'RAR' is not stored, or one letter each of R or L, A or P, S or I"
# ---- a finding before training
mkdir -p "$work/spoilt"
cp -r "$work/balls/images" "$work/balls/labels" "$work/spoilt"
cp "$work/flawed/images/v3.nii" "$work/spoilt/images/v3.nii"       # a NaN
cp "$work/balls/images/v0.nii" "$work/spoilt/images/v1.nii"        # the values of v0
head -c 1000 "$work/balls/images/v4.nii" >"$work/spoilt/images/v4.nii"
cp "$work/balls/labels/v0.nii" "$work/spoilt/labels/w.nii"         # no image
cp "$work/balls/images/v0.nii" "$work/spoilt/images/x.nii"         # no labels, and the values of v0
python3 - "$work" <<'END'
import struct, sys
work = sys.argv[1]
for source, target, change in (
        ("labels/v0", "labels/v0", lambda b: b[:292] + struct.pack("<f", 7) + b[296:]),  # 7 mm from the image
        ("images/v0", "images/y", lambda b: b[:352] + bytes(len(b) - 352)),              # one value
        ("images/v2", "images/v2", lambda b: b[:88] + struct.pack("<f", 2) + b[92:]),
        ("labels/v2", "labels/v2", lambda b: b[:88] + struct.pack("<f", 2) + b[92:352] + bytes(255 * c for c in b[352:])),
        ("labels/v0", "labels/y", lambda b: b[:400] + b"\x02" + b[401:])):
    open(f"{work}/spoilt/{target}.nii", "wb").write(change(open(f"{work}/balls/{source}.nii", "rb").read()))
END
# found COUNT TEXT...: exit code 2, nothing on standard error, so many problems, and a line with each text.
found() {
  [ "$status" -eq 2 ] && [ ! -s "$work/err" ] && grep -q "^$1 problems in 7 volumes; .* read in " "$work/out" || return 1
  shift
  for text; do [ "$(grep -c -e "$text" "$work/out")" -eq 1 ] || { echo "not found: $text"; return 1; }; done
}
for launcher in run 'ranks 2' 'threads 3'; do
  $launcher "$tools/unet3d" check "$work/spoilt"
  judge "check says each problem in a line ($launcher)" found 10 'images/x.nii has no labels: there is no such file in' 'labels/w.nii has no image' \
    'images/v0.nii and its labels .*/v0.nii do not have the same cells: places: ' 'images/v3.nii: 1 values are not finite, the first at \[4, 1, 8\] \[z, y, x\] is nan' \
    'images/v4.nii: truncated: ' 'images/y.nii: every value is 0$' \
    'images/v2.nii says cells of 2 x 1 x 1 mm \[z, y, x\], and places them 1 x 1 x 1 mm apart' 'images/v1.nii has the same values as .*images/v0.nii' \
    'images/x.nii has the same values as .*images/v0.nii' \
    'the labels of .*/spoilt are 0, 1, 2, 255: .* labels.map = { 255 = 3 }' '^orientation RAS of 6 volumes' '^label 255: '
done
launcher=
run "$tools/unet3d" check "$work/spoilt" --set labels.map=255=1 --set data.workers=1 --json
judge 'with rules for labels, as JSON' test "$(python3 -c 'import json, sys; print(len(json.load(open(sys.argv[1]))["problems"]))' "$work/out")" -eq 9
run "$tools/unet3d" check "$work/balls"
judge 'data without problems' says '^0 problems in 5 volumes; '
run "$tools/unet3d" check "$work/nnunet"
judge "so are nnU-Net's folders, with the rules of dataset.json" says '^ignored labels: 20 % of the cells, in 5 volumes; '
numbers() {
  python3 - "$work" <<'END'
import re, struct, sys
work, cells, of = sys.argv[1], 12 * 10 * 8, {0: [[], []], 1: [[], []], 3: [[], []]}
for n in range(5):
    labels = open(f"{work}/nnunet/labelsTr/v{n}.nii", "rb").read()[352:]
    for channel in range(2):
        values = struct.unpack(f"<{cells}f", open(f"{work}/nnunet/imagesTr/v{n}_000{channel}.nii", "rb").read()[352:])
        for label, value in zip(labels, values): of[label][channel].append(value)
def line(label):
    means = [sum(v) / len(v) for v in of[label]]
    return [x for mean, v in zip(means, of[label]) for x in (mean, (sum((x - mean) ** 2 for x in v) / len(v)) ** 0.5)]
text = open(f"{work}/out").read()
for label, name in ((0, "label 0"), (1, "label 1"), (3, "ignored labels")):
    found = re.search(f"^{name}: .* in 5 volumes; mean .deviation.: (.*)$", text, re.M)[1]
    found = [float(x) for x in re.findall(r"[-+.e0-9]+", found)]
    assert len(found) == 4 and all(abs(a - b) <= 6e-4 * max(abs(b), 1e-3) for a, b in zip(found, line(label))), (name, found, line(label))
END
}
judge 'with mean and deviation of each label in each channel' numbers
cp -r "$work/nnunet" "$work/halved"
python3 - "$work/halved/imagesTr/v1_0001.nii" <<'END'
import struct, sys
bytes = open(sys.argv[1], "rb").read()  # half the planes
open(sys.argv[1], "wb").write(bytes[:46] + struct.pack("<h", 4) + bytes[48:352 + 12 * 10 * 4 * 4])
END
run "$tools/unet3d" check "$work/halved"
judge 'a channel of other cells is a problem, and the case has no part in means' eval '[ "$status" -eq 2 ] && grep -q "v1_0000.nii and .*v1_0001.nii do not have the same cells: " "$work/out" &&
  grep -q "^label 1: .* in 5 volumes; mean (deviation) in 4 of them: " "$work/out"'
run "$tools/unet3d" check "$work/nnunet" --set labels.ignore=
judge 'without them a label is too much in each volume' eval '[ "$status" -eq 2 ] && [ "$(grep -c "have a 3, .*dataset.json has 2 classes" "$work/out")" -eq 5 ]'
run "$tools/unet3d" check "$work/infinite.npy"
judge 'a file of another format is refused' refuses_arguments 'infinite.npy: not an HDF5 file'
run "$tools/unet3d" check "$work/absent"
judge 'so is what does not exist' refuses_arguments 'absent: no such file or folder'
mkdir -p "$work/twice" && cp -r "$work/balls/images" "$work/balls/labels" "$work/twice"
for n in 1 2 3 4; do cp "$work/balls/images/v0.nii" "$work/twice/images/v$n.nii"; done
unet3d --data "$work/twice" --out "$work/twice_run"
judge 'train says which volumes it has twice' warns '4 volumes have the values of another one (.*v0.nii and .*v1.nii)'
judge 'and that the validation has volumes of the training' warns '[1-4] volumes are in the training and in the validation, '
judge 'nothing was written' no_file "$work/bad"

summary
