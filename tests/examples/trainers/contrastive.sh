#!/bin/sh
# Runs the contrastive tool as a user does, on small made-up pictures: what it prints, writes and refuses. Prints `failed: NAME`
# for each failed test and ends with `N passed, M failed, K skipped`. tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher
. "$root/tests/suite.sh"

tool=$build/examples/contrastive
pack=$build/examples/pack
needs 'the contrastive tool is' "$tool"

# ---- data: 48 pictures in four classes and two families, as IDX, and as .npy without labels
python3 "$root/tests/examples/trainers/bars.py" "$work"
data=$work/bars-images-idx3-ubyte
head -c 2000 "$data" >"$work/cut-images-idx3-ubyte"

# ---- conditions
# value NAME LOW HIGH: a number in the JSON document printed.
value() {
  is_json && python3 - "$work/out" "$@" <<'END'
import json, sys
def find(node, name):
    if isinstance(node, dict):
        for key, inner in node.items():
            if key == name: return inner
            found = find(inner, name)
            if found is not None: return found
low, high = map(float, sys.argv[3:])
sys.exit(not low <= find(json.load(open(sys.argv[1])), sys.argv[2]) <= high)
END
}
# npy FILE SHAPE: a .npy of finite numbers.
npy() {
  python3 - "$@" <<'END'
import ast, math, struct, sys
content = open(sys.argv[1], "rb").read()
length = struct.unpack("<H", content[8:10])[0]
header = ast.literal_eval(content[10:10 + length].decode())
data = content[10 + length:]
kind = {"<f4": "f", "<f8": "d", "<i8": "q"}[header["descr"]]
count = math.prod(header["shape"])
values = struct.unpack(f"<{count}{kind}", data)
good = "x".join(map(str, header["shape"])) == sys.argv[2] and all(map(math.isfinite, values)) and (10 + length) % 64 == 0
sys.exit(not good or len(set(values)) < 2)
END
}
# Frames with the right checksums, the first with the version, others with that tag.
events() { python3 "$root/tests/examples/trainers/events.py" "$@"; }
no_warning() { succeeds && ! grep -q '^warning' "$work/err"; }
same_files() { cmp -s "$1" "$2"; }

cat >"$work/small.toml" <<'END'
program = "contrastive"
[network]
width = 4
blocks = [2]
head_hidden = 8
head_out = 6
END
train() { # train TRANSPORT RANKS OUT EPOCHS OPTIONS...
  transport=$1 p=$2 out=$3 epochs=$4
  shift 4
  "$transport" "$p" "$tool" train "$work/small.toml" --data "$data" --set schedule.shape=constant --set schedule.monitor=${monitor:-16} \
    --batch ${batch:-12} --precision ${dtype:-float64} --epochs "$epochs" --out "$work/$out" "$@"
}

# ---- help and arguments
run "$tool" --help
judge 'contrastive --help' says 'Usage: '
for command in train embed evaluate; do
  run "$tool" "$command" --help
  judge "contrastive $command --help" says 'Usage: '
  run "$tool" "$command" --no-such-option
  judge "contrastive $command refuses an unknown option" refuses_arguments '^contrastive: '
done
refuse() { # refuse NAME PATTERN OPTIONS...
  name=$1 pattern=$2
  shift 2
  train ranks 2 refused 1 "$@"
  judge "$name" refuses_arguments "$pattern"
}
for bad in 0 -1 nan; do refuse "temperature $bad" 'loss.temperature: ' --set loss.temperature="$bad"; done
batch=1
refuse 'a batch of one' 'nothing to contrast'
batch=64
refuse 'a batch larger than the data' 'more than the 48 samples'
batch=12
refuse 'a loss that does not exist' 'nt-xent' --loss other
refuse 'a step of views that does not exist' "no step 'fold'" --augment fold
refuse 'a number that a step does not have' "no number 'angle'" --augment warp:angle=3
refuse 'a number given twice' "'shear' is given twice" --augment warp:shear=3:shear=4
refuse 'a probability that is none' 'is a probability' --augment erase:p=-1
refuse 'half an axis' 'is an integer' --augment flip:axis=1.5
refuse 'labels of one name twice' 'is given twice' --set data.labels=a=x --set data.labels=a=y
refuse 'a ring of statistics' 'ring is of' --set loss.form=ring --loss barlow
refuse 'parts of a batch with statistics' 'network.frozen_norm' --set loss.cached=2
refuse 'small crops for features that depend on extents' 'network.average' --loss swav --set loss.small_crops=1
refuse 'parts of a batch with a teacher' 'loss.cached is not for dino' --loss dino --set loss.cached=2 --set network.frozen_norm
refuse 'a condition that is none' 'NAME=V,V' --set data.where=kind
refuse 'a grid of other ranks' 'needs 3 ranks' --grid sample=3
for bad in 99999999999999999999 010; do refuse "seed $bad" '--seed: a whole number' --seed "$bad"; done
run "$tool" train --data "$work/plain.npy" --set data.label=nope --out "$work/refused"
judge 'labels asked for that no sample has' refuses_once 'data.label nope: the samples of .*plain.npy.* have no labels'
ranks 2 "$tool" train --data "$data" --set data.label=nope --out "$work/refused"
judge 'labels asked for that are not there' refuses_once "there are no labels 'nope', but family, kind"
run "$tool" evaluate --data "$work/plain.npy" --pixels --label nope --metrics geometry
judge 'evaluate: labels that are not there' refuses_once 'data.label nope'
# unused WHAT OPTIONS...: data of a kind that has no use for the options
unused() {
  what=$1
  shift
  run "$pack" --out "$work/refused" "$@"
  judge "pack refuses $*" refuses_once "$what"
}
unused 'a choice of 3 channels means nothing' --data "$work/plain.npy" --channels 3
unused 'a choice of 1 channels means nothing' --data "$data" --channels 1
unused "the part 'train' means nothing" --data "$data" --part train
unused "a dataset of volumes, 'other', means nothing" --data "$data" --volume other
unused "a dataset of labels, 'other', means nothing" --data "$work/plain.npy" --label-dataset other
unused 'a choice of 1 channels means nothing for a file of this kind' --data "$work/kinds.npy" --channels 1
run "$tool" evaluate --data "$data"
judge 'evaluate needs weights or pixels' refuses_arguments 'weights or --pixels'
run "$tool" evaluate --data "$data" --pixels --ways 3
judge 'ways are of episodes' refuses_arguments '--few-shot'
run "$tool" embed --data "$data"
judge 'embed needs weights' refuses_arguments 'weights'

# ---- training: the same on every grid
train threads 1 one 2 --json
judge 'train on one rank' value neighbour_accuracy 0 1
for file in weights.h5 metrics.csv training.png summary.json; do judge "train writes $file" test -s "$work/one/$file"; done
if [ -f "$work/one/events.out.tfevents.0000000000.mpigrad" ]; then
  judge 'the event file decodes' events "$work/one/events.out.tfevents.0000000000.mpigrad" collapse/effective_rank
else
  skip 'this build writes no event files'
fi
train ranks 2 two 1 --set checkpoint.epochs=1
judge 'train under the launcher' says '^nearest neighbours are right'
judge 'two ranks: the same loss' same_losses "$work/one/metrics.csv" 1 "$work/two/metrics.csv" 1
train threads 4 four 1 --grid sample=2,height=2
judge 'samples and height: the same loss' same_losses "$work/one/metrics.csv" 1 "$work/four/metrics.csv" 1
train ranks 2 parts 1 --set grid.sharded_weights
judge 'weights in parts: the same loss' same_losses "$work/one/metrics.csv" 1 "$work/parts/metrics.csv" 1
train threads 3 ring 1 --set loss.form=ring --set loss.tile=2 --grid width=3
judge 'round a ring, split in width: the same loss' same_losses "$work/one/metrics.csv" 1 "$work/ring/metrics.csv" 1
train threads 2 resumed 2 --resume "$work/two/checkpoint.h5" --grid width=2
judge 'resumed on another grid: the same loss' same_losses "$work/one/metrics.csv" 2 "$work/resumed/metrics.csv" 2
train threads 1 whole 1 --set network.frozen_norm
for p in 1 2; do
  train threads "$p" "parts$p" 1 --set network.frozen_norm --set loss.cached=3
  judge "a batch in parts, $p ranks: the same loss" same_losses "$work/whole/metrics.csv" 1 "$work/parts$p/metrics.csv" 1
done
# Classes follow each other in the data, over and over.
monitor=48
train threads 1 all 1 --set data.label=kind --json
judge 'the monitor finds classes among all' value neighbour_accuracy 0.3 1
monitor=24
train threads 1 some 1 --set data.label=kind --json
judge 'the monitor finds classes among some' value neighbour_accuracy 0.2 0.99
monitor=16
train threads 2 local 1 --loss moco --set loss.queue=16 --set network.statistics=local
train threads 4 spatial 1 --loss moco --set loss.queue=16 --set network.statistics=spatial --grid sample=2,height=2
judge 'shuffled keys of moco, split in height: the same loss' same_losses "$work/local/metrics.csv" 1 "$work/spatial/metrics.csv" 1
train threads 4 local-spatial 1 --loss moco --set loss.queue=16 --set network.statistics=local --grid sample=2,height=2
judge 'moco with statistics of each part' succeeds
train threads 1 conditions 1 --set data.where=kind=0,1 --set data.where=kind=2 --json
judge 'conditions of one name are one' value training_samples 36 36
# shellcheck disable=SC2086
run "$tool" train "$work/small.toml" --data "$work/volumes.npy" --encoder encoder3d --set network.blocks=1 --batch 12 \
  --epochs 1 --loss swav --set loss.queue=0 --set loss.small_crops=2 --out "$work/small-volumes"
judge 'small crops of volumes' says 'resized crop \[2, 3, 3\]'
dino='--set network.prototypes=5 --set loss.koleo=0.1 --set loss.centre_momentum=0.5'
for loss in supcon clip siglip barlow vicreg lejepa spectral moco swav dino; do
  options='--set loss.queue=16'
  [ $loss != dino ] || options=$dino
  [ $loss != swav ] || options='--set loss.queue=16 --set network.prototypes=5 --set loss.small_crops=1 --set network.average --set loss.freeze_prototypes=2 --optimizer lars'
  # shellcheck disable=SC2086
  train threads 1 "$loss-1" 2 --loss $loss $options
  # shellcheck disable=SC2086
  train threads 2 "$loss-2" 1 --loss $loss --set checkpoint.epochs=1 $options
  # shellcheck disable=SC2086
  train threads 2 "$loss-3" 2 --loss $loss --resume "$work/$loss-2/checkpoint.h5" $options
  judge "$loss: the same loss on two ranks" same_losses "$work/$loss-1/metrics.csv" 1 "$work/$loss-2/metrics.csv" 1
  judge "$loss: resumed equals uninterrupted" same_losses "$work/$loss-1/metrics.csv" 2 "$work/$loss-3/metrics.csv" 2
done
# shellcheck disable=SC2086
train threads 4 dino-4 1 --loss dino $dino --grid sample=2,height=2
judge 'dino: the same loss on four ranks' same_losses "$work/dino-1/metrics.csv" 1 "$work/dino-4/metrics.csv" 1
train ranks 2 refused 2 --resume "$work/two/checkpoint.h5" --loss barlow
judge 'going on with another loss' refuses_once 'loss nt-xent, now it is barlow'
train ranks 2 refused 2 --resume "$work/two/checkpoint.h5" --set data.where=kind=0,1,2,3 --set data.test_fraction=0
judge 'going on with the same samples' succeeds
rm -rf "$work/refused"
train threads 1 fewer 1 --set data.where=family=0 --set checkpoint.epochs=1
train ranks 2 refused 2 --resume "$work/fewer/checkpoint.h5" --set data.where=family=1
judge 'going on with other samples' refuses_arguments 'was trained on other samples: contents of training samples of '
dtype=bfloat16
train threads 2 sixteen 1 --optimizer lamb
judge 'train in 16 bits' succeeds
dtype=float64

# ---- what a step costs: more in ../describe.sh
run "$tool" train --describe --data "$data" --batch 12 --set network.width=4 --set network.blocks=2
judge 'describe: of data' says 'a training step of 12 samples'
run "$tool" train --describe
judge 'describe needs data or extents' refuses_arguments '--data, or data.size'

# ---- what has no effect is said
idle() { # idle PATTERN OPTIONS...
  pattern=$1
  shift
  train threads 1 idle 0 --overwrite "$@"
  judge "train says that $* means nothing" warns "$pattern"
}
idle 'loss.queue has no effect: it is of --loss moco and swav, not of nt-xent' --set loss.queue=64
idle 'loss.teacher_temperature has no effect: it is of --loss dino' --set loss.teacher_temperature=0.1
idle 'loss.lambda has no effect' --set loss.lambda=0.1
idle 'network.prototypes has no effect' --set network.prototypes=7
idle 'network.small_images has no effect: it is for ResNets' --set network.small_images
idle 'data.split_seed has no effect' --set data.split_seed=3
idle 'optimizer.clip_norm has no effect: --epochs 0 trains nothing' --set optimizer.clip_norm=1
train threads 1 idle 1 --overwrite --set data.label=kind
judge 'train warns of nothing else' no_warning
run "$tool" evaluate --data "$data" --pixels --metrics geometry --neighbours 3 --overwrite
judge 'evaluate says what means nothing' warns 'evaluation.neighbours has no effect'
judge 'evaluate says that nothing is written' warns '--overwrite has no effect'
run "$tool" embed --data "$data" --weights "$work/one/weights.h5" --label kind --out "$work/idle-embedded"
judge 'embed says that a choice of labels means nothing' warns 'data.label has no effect: embed writes all'

# ---- a run that was killed after its last checkpoint
train threads 1 short 2 --set checkpoint.epochs=1
cp -R "$work/short" "$work/short-killed"
rm "$work/short-killed/weights.h5" "$work/short-killed/training.png" "$work/short-killed/summary.json"
train threads 1 short-killed 2 --resume "$work/short-killed/checkpoint.h5" --overwrite
judge 'resumed after its last epoch: ends well' succeeds
for file in weights.h5 metrics.csv training.png; do
  judge "resumed after its last epoch: the same $file" same_files "$work/short/$file" "$work/short-killed/$file"
done
judge 'resumed after its last epoch: the loss' test "$(sed -n '/final_loss/p' "$work/short/summary.json")" = \
  "$(sed -n '/final_loss/p' "$work/short-killed/summary.json")"
train threads 1 refused 1 --resume "$work/short/checkpoint.h5"
judge 'resumed for fewer epochs than there were' refuses_once '--epochs 1 asks for fewer'

# ---- embeddings and what they are worth
ranks 2 "$tool" embed --data "$data" --weights "$work/one/weights.h5" --batch 7 --grid height=2 --out "$work/embedded"
judge 'embed' npy "$work/embedded/embeddings.npy" 48x36
judge 'embed writes labels' npy "$work/embedded/kind.npy" 48
run "$tool" embed --data "$data" --weights "$work/moco-2/checkpoint.h5" --projected --out "$work/projected"
judge 'embed from a checkpoint with a queue' npy "$work/projected/embeddings.npy" 48x6
run "$tool" evaluate --data "$data" --weights "$work/one/weights.h5" --label kind --test-fraction 0.5 --few-shot 1,1 --ways 2 \
  --group family --episodes 20 --out "$work/evaluated" --json
judge 'evaluate: probe' value probe_accuracy 0.5 1
judge 'evaluate: neighbours' value neighbour_accuracy 0 1
judge 'evaluate: episodes' value few_shot_accuracy 0.2 1
judge 'evaluate draws' test -s "$work/evaluated/evaluation.png"
threads 3 "$tool" evaluate --data "$data" --weights "$work/one/weights.h5" --label kind --test-fraction 0.5 --few-shot 1,1 --ways 2 \
  --group family --episodes 20 --json
numbers() { python3 -c 'import json, sys; print(*(f"{v:.6g}" for v in json.load(open(sys.argv[1]))["results"].values()))' "$1"; }
judge 'evaluate on three ranks: the same' test "$(numbers "$work/out")" = "$(numbers "$work/evaluated/evaluation.json")"
run "$tool" evaluate --data "$data" --pixels --label family --test-fraction 0.25 --json
judge 'evaluate pixels: area under the curve' value probe_auc 0.6 1
run "$tool" evaluate --data "$work/embedded/embeddings.npy" --pixels
judge 'evaluate: embeddings are no pictures' refuses 'embeddings.npy'

# ---- packing
run "$pack" --data "$data" --samples-per-file 20 --out "$work/shards" --json
judge 'pack' value samples 48 48
judge 'pack writes shards' test -s "$work/shards/shard_00002.h5"
"$tool" embed --data "$work/shards" --weights "$work/one/weights.h5" --out "$work/again" >/dev/null 2>&1
judge 'packed samples give the same embeddings' npy "$work/again/embeddings.npy" 48x36
judge 'packed labels' same_files "$work/again/kind.npy" "$work/embedded/kind.npy"
rm "$work/shards/shard_00001.h5"
run "$tool" evaluate --data "$work/shards" --pixels
judge 'a lost shard' refuses 'shard_00002.h5: begins with sample 40 of 48'
run "$pack" --data "$work/shards" --label-dataset nope --out "$work/refused"
judge 'a dataset of labels that is not there' refuses_once 'nope'
run "$pack" --data "$work/shards" --channels 1 --out "$work/refused"
judge 'channels of HDF5' refuses_once 'means nothing for HDF5'
run "$pack" --data "$data" --out "$work/shards"
judge 'pack overwrites nothing' refuses 'shards'

for bad in embeddings samples ../kind .kind; do
  run "$tool" embed --data "$data" --labels "$bad=$work/bars-kind-idx1-ubyte" --weights "$work/one/weights.h5" --out "$work/refused"
  judge "embed refuses labels called $bad" refuses_arguments "labels called '$bad'"
done

# ---- what is refused
train ranks 2 one 1
judge 'existing output' refuses_once 'overwrite'
small="$work/small.toml --batch 12 --epochs 1"
# shellcheck disable=SC2086
ranks 2 "$tool" train --data "$work/bad.npy" $small --out "$work/nan"
judge 'a sample that is not a number' refuses_arguments 'bad.npy \[17\]: the value at .* is nan'
judge 'no weights are written' no_file "$work/nan/weights.h5"
# shellcheck disable=SC2086
ranks 2 "$tool" train --data "$work/bad.npy" $small --out "$work/nan" --overwrite --set schedule.skip_bad --json
judge 'such a batch can be left out' value bad_batches 1 1
ranks 2 "$tool" embed --data "$work/bad.npy" --weights "$work/one/weights.h5" --out "$work/nan"
judge 'nor are embeddings of it' refuses_arguments 'bad.npy \[17\]: the value at .* is nan'
# shellcheck disable=SC2086
ranks 2 "$tool" train --data "$data" $small --set data.size=3 --out "$work/nan" --overwrite
judge 'views that all ranks fail to make' refuses_once 'is less than one of 3 pixels'
# shellcheck disable=SC2086
ranks 2 "$tool" train --data "$work/zeros.npy" $small --augment none --out "$work/zeros"
judge 'embeddings of zeros, by their sample' refuses_once 'zeros.npy \[[0-9]*\] is zero and has no direction$'
# shellcheck disable=SC2086
ranks 2 "$tool" train --data "$work/zeros.npy" $small --augment none --loss barlow --out "$work/zeros" --overwrite
judge 'embeddings of zeros where they are allowed' succeeds
ranks 2 "$tool" evaluate --data "$work/blank.npy" --labels kind="$work/kinds.npy" --test-fraction 0.9 --pixels
judge 'a blank picture has no direction' refuses_once 'blank.npy \[17\] is zero.*--metrics probe'
run "$tool" evaluate --data "$work/blank.npy" --labels kind="$work/kinds.npy" --test-fraction 0.9 --pixels --metrics probe --json
judge 'a probe needs none' value probe_accuracy 0 1
# shellcheck disable=SC2086
ranks 2 "$tool" train --data "$work/plain.npy" $small --loss supcon --out "$work/refused"
judge 'labels missing for training' refuses_once 'needs labels'
ranks 2 "$tool" evaluate --data "$work/plain.npy" --pixels
judge 'labels missing for evaluation' refuses_once 'evaluation needs labels'
run "$tool" evaluate --data "$work/plain.npy" --pixels --metrics geometry --json
judge 'geometry needs no labels' value uniformity -10 0
run "$tool" evaluate --data "$work/plain.npy" --labels kind="$work/kinds.npy" --pixels --json
judge 'labels from a file' value probe_accuracy 0 1
# shellcheck disable=SC2086
ranks 2 "$tool" train --data "$work/cut-images-idx3-ubyte" $small --out "$work/refused"
judge 'a truncated file' refuses_once 'cut-images-idx3-ubyte'
ranks 2 "$tool" embed --data "$data" --weights "$data" --out "$work/refused"
judge 'weights that are none' refuses_once 'bars-images'
# shellcheck disable=SC2086,SC2016
run sh -c 'ulimit -f 16 && exec "$@"' sh "$tool" train --transport threads --data "$data" $small --set checkpoint.epochs=1 \
  --out "$work/limit" --quiet
judge 'a limit on the size of files' refuses_once 'checkpoint.h5: cannot be .*: File too large'
mkdir "$work/disk"
if unshare -rm mount -t tmpfs -o size=20k tmpfs "$work/disk" 2>/dev/null; then
  # shellcheck disable=SC2086,SC2016
  run unshare -rm sh -c 'mount -t tmpfs -o size=20k tmpfs "$0" && cd "$0/.." && exec "$@"' "$work/disk" \
    "$tool" train --transport threads --data "$data" $small --set checkpoint.epochs=1 --out "$work/disk/run" --quiet
  judge 'a full disk' refuses '^\[hdf5\] .*checkpoint.h5: cannot be .*: No space left on device'
  judge 'and the weights so far are elsewhere' test -s "$(sed -n 's/^the weights so far are in //p' "$work/err")"
  # shellcheck disable=SC2016
  run unshare -rm sh -c 'mount -t tmpfs -o size=4k tmpfs "$0" && "$@"; ls "$0/e" >&2; exit 1' "$work/disk" \
    "$tool" embed --transport threads --data "$data" --weights "$work/one/weights.h5" --out "$work/disk/e"
  judge 'embeddings that a full disk cuts are not there' refuses_once 'embeddings.npy could not be .*: No space left on device'
  for command in train embed evaluate; do
    options="--weights $work/one/weights.h5"
    [ $command != train ] || options=$small
    # shellcheck disable=SC2086,SC2016
    run unshare -rm sh -c 'mount -t tmpfs -o ro tmpfs "$0" && exec "$@"' "$work/disk" \
      "$tool" $command --transport threads --data "$data" $options --out "$work/disk"
    judge "$command: a folder that cannot be written" refuses_once 'cannot be written: Read-only file system'
  done
  # shellcheck disable=SC2016
  run unshare -rm sh -c 'mount -t tmpfs -o ro tmpfs "$0" && exec "$@"' "$work/disk" \
    "$pack" --transport threads --data "$data" --samples-per-file 20 --out "$work/disk/shards"
  judge 'pack: a folder that cannot be written' refuses_once 'cannot be written: Read-only file system'
else
  skip 'this machine lets nobody mount a small disk'
fi
unequal '--seed 1' '--seed 2' "$tool" train --data "$data" --out "$work/refused"
judge 'ranks with different arguments' refuses_arguments "rank 0 has '--seed 1', rank 1 has '--seed 2'"
unequal '' '--set checkpoint.epochs=1' "$tool" train --data "$data" --out "$work/refused"
judge 'ranks of which one has more arguments' refuses_arguments "rank 0 has no more, rank 1 has '--set checkpoint.epochs=1'"
mkdir "$work/here" "$work/there"
cp "$data" "$work/bars-kind-idx1-ubyte" "$work/here"
cp "$data" "$work/there"
cp "$work/bars-family-idx1-ubyte" "$work/there/bars-kind-idx1-ubyte"
# shellcheck disable=SC2086
unequal_folders "$work/here" "$work/there" "$tool" train --data "$(basename "$data")" $small --out "$work/refused"
judge 'ranks that find different data' refuses_once 'the data of the ranks differ'
cp "$work/bars-kind-idx1-ubyte" "$work/there"
cp "$work/one/weights.h5" "$work/here"
cp "$work/two/weights.h5" "$work/there"
unequal_folders "$work/here" "$work/there" "$tool" embed --data "$data" --weights weights.h5 --out "$work/refused"
judge 'ranks that find different weights' refuses_once 'weights.h5 differ'
python3 - "$work" <<'END'
import os, random, struct, sys, zlib
random.seed(1)
def chunk(kind, data): return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
for i in range(24):
    rows = b"".join(bytes([0] + [random.randrange(256) for _ in range(12)]) for _ in range(12))
    header = struct.pack(">IIBBBBB", 12, 12, 8, 0, 0, 0, 0)
    picture = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    for place, cut in ("here", len(picture)), ("there", len(picture) if i == 0 else 60):
        os.makedirs(f"{sys.argv[1]}/{place}/pictures", exist_ok=True)
        open(f"{sys.argv[1]}/{place}/pictures/{i:02}.png", "wb").write(picture[:cut])
END
if run "$tool" embed --data "$work/here/pictures" --weights "$work/one/weights.h5" --out "$work/pictures" && succeeds; then
  unequal_folders "$work/here" "$work/there" "$tool" embed --data pictures --weights "$work/one/weights.h5" --out "$work/pictures" \
    --overwrite
  judge 'an error of one rank ends all' refuses '^\[rank 1 of 2\] \[png\] pictures/'
else
  skip 'this build reads no PNG'
fi
judge 'refused runs leave nothing behind' no_file "$work/refused"

summary
