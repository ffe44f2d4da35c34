#!/bin/sh
# Runs the command-line tools as a user does, on small universes: what they print, write and refuse. Prints `failed: NAME` for
# each failed test and ends with `N passed, M failed, K skipped`. tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher

tools=$build/examples
shared=${MPIGRAD_SHARED:-$root/../shared}
. "$root/tests/suite.sh"

needs 'the tools are' "$tools/cosmoflow"

# ---- conditions
# key KEY VALUE: a number in the JSON document printed.
key() { is_json && grep -q "^ *\"$1\": $2,\{0,1\}\$" "$work/out"; }
# The first column of a table, as one line.
epochs() { [ "$(sed 1d "$1" | cut -d, -f1 | tr '\n' ' ')" = "$2" ]; }
patch() { python3 "$root/tests/examples/tools/patch.py" "$@"; }
unchanged() { [ "$(cksum <"$1")" = "$2" ]; }

# ---- help and arguments
for tool in universe cosmoflow classify pack halo adjoint; do
  run "$tools/$tool" --help
  judge "$tool --help" says 'Usage: '
  run "$tools/$tool" --no-such-option
  judge "$tool refuses an unknown option" refuses_arguments "$tool: "
done
run "$tools/cosmoflow" train
judge 'cosmoflow without data' refuses_arguments '--data'
run "$tools/cosmoflow" train --data x --epochs two
judge 'cosmoflow refuses a number that is none' refuses_arguments '--epochs'
run "$tools/cosmoflow" train --data x --variant other
judge 'cosmoflow refuses an unknown variant' refuses_arguments 'hybrid'

for bad in nan 1e999 -1; do
  for key in network.keep optimizer.clip_norm schedule.warm_up schedule.milestones schedule.decay_factor optimizer.weight_decay \
    optimizer.momentum data.test_fraction network.norm_momentum; do
    run "$tools/cosmoflow" train --data x --set "$key=$bad"
    judge "cosmoflow refuses $key=$bad" refuses_arguments "^cosmoflow: --set $key: .\{10,90\}$"
  done
  run "$tools/cosmoflow" train --data x --learning-rate "$bad"
  judge "cosmoflow refuses --learning-rate $bad" refuses_arguments '^cosmoflow: --learning-rate: .\{10,90\}$'
  run "$tools/universe" generate --out "$work/refused" --cell "$bad"
  judge "universe refuses --cell $bad" refuses_arguments '^universe: --cell: '
  run "$tools/universe" displace --delta "$work/a:b" --out "$work/refused" --box "$bad"
  judge "universe refuses --box $bad" refuses_arguments '^universe: --box: '
  for option in --tcmb --omega-m --omega-b --sigma8 --h0 --redshift --kmin --kmax --k; do
    run "$tools/universe" power "$option" "$bad"
    judge "universe refuses $option $bad" refuses_arguments "^universe: $option"
  done
done
run "$tools/universe" power --ns nan
judge 'universe refuses --ns nan' refuses_arguments '^universe: --ns: '
run "$tools/universe" power --redshift 1e300
judge 'universe refuses a redshift beyond computing' refuses_arguments 'redshift 1e+300'
run "$tools/universe" power --h0 1e300
judge 'universe refuses what has no power spectrum' refuses_arguments 'the power spectrum cannot be computed'
for key in schedule.epochs schedule.milestones schedule.warm_up; do
  run "$tools/cosmoflow" train --data x --set "$key=9223372036854775807"
  judge "cosmoflow refuses steps beyond counting in $key" refuses_arguments '1000000000'
done

unequal '--epochs 1' '--epochs 2' "$tools/cosmoflow" train --data x
judge 'cosmoflow refuses ranks with different arguments' refuses_arguments "rank 0 has '--epochs 1', rank 1 has '--epochs 2'"
unequal 'power' '--help' "$tools/universe"
judge 'universe refuses ranks with different arguments' refuses_arguments "rank 0 has 'power', rank 1 has '--help'"

# ---- a layer of one's own: the same numbers on every rank, of any number
run "$tools/own_layer"
judge 'own_layer' says '^rank 0: loss [0-9.]*, scale\.factor |gradient| [0-9.]*$'
alone=$(sed 's/^rank 0: //' "$work/out")
as_alone() { # RANKS: each of them printed what one rank prints
  succeeds && [ "$(wc -l <"$work/out")" -eq $(($1 * 3)) ] &&
    [ "$(sed 's/^rank [0-9]*: //' "$work/out" | sort -u)" = "$(printf '%s\n' "$alone" | sort)" ]
}
threads 3 "$tools/own_layer"
judge 'own_layer on 3 threads' as_alone 3
ranks 2 "$tools/own_layer"
judge 'own_layer on 2 processes' as_alone 2

# ---- universes
run "$tools/universe" power --json --k 0.1,1
judge 'universe power' is_json
universes=$work/universes
ranks 2 "$tools/universe" generate --out "$universes" --universes 12 --size 16 --cell 8 --seed 1 --spread --json
judge 'universe generate' is_json
ranks 2 "$tools/universe" generate --out "$universes" --universes 12 --size 16 --cell 8 --seed 1
judge 'universe generate overwrites nothing' refuses_once 'overwrite'
echo 'half a file' >"$work/half"
left=$universes/.universe_00000.hdf5.0123456789abcdef.part
cp "$work/half" "$left"
touch -d "2 days ago" "$left"
run "$tools/universe" generate --out "$universes" --universes 1 --size 16 --cell 8 --seed 1 --overwrite
judge 'what an interrupted run left is removed' no_file "$left"
mv "$universes/universe_00000.hdf5" "$work/whole"
ln -s "$work/half" "$universes/universe_00000.hdf5"
ranks 2 "$tools/universe" generate --out "$universes" --universes 1 --size 16 --cell 8 --seed 1 --overwrite
judge 'a link is replaced' test -s "$universes/universe_00000.hdf5" -a ! -L "$universes/universe_00000.hdf5"
judge 'and not followed' test "$(cat "$work/half")" = 'half a file'
rm "$universes/universe_00000.hdf5"
mkfifo "$universes/universe_00000.hdf5"
ranks 2 "$tools/universe" generate --out "$universes" --universes 1 --size 16 --cell 8 --seed 1 --overwrite
judge 'a pipe is refused' refuses_arguments 'universe_00000.hdf5 is in the way: a pipe'
rm "$universes/universe_00000.hdf5"
mv "$work/whole" "$universes/universe_00000.hdf5"
ranks 2 "$tools/universe" generate --out "$work/half" --universes 2 --size 16 --spread
judge 'universe generate: a folder that cannot be made' refuses_once 'cannot be created'
reference=$shared/data/cosmo/monofonic/test_1lpt_sc_generic.hdf5
if [ -f "$reference" ]; then
  ranks 2 "$tools/universe" displace --delta "$reference:DM_delta" --box 100 --order 1 --out "$work/moved.hdf5"
  judge 'universe displace' test -s "$work/moved.hdf5"
  before=$(cksum <"$work/moved.hdf5")
  ln "$work/moved.hdf5" "$work/again.hdf5"
  ranks 2 "$tools/universe" displace --delta "$work/moved.hdf5:dx" --box 100 --out "$work/again.hdf5" --overwrite
  judge 'universe displace refuses its own input' refuses_arguments 'would overwrite the field'
  judge 'the input stays' unchanged "$work/moved.hdf5" "$before"
  ranks 2 "$tools/universe" displace --delta "$work/moved.hdf5:dw" --box 100 --out "$work/new.hdf5"
  judge 'universe displace: no such field' refuses_once "no dataset 'dw'"
else
  skip 'the reference data is not on this machine (MPIGRAD_SHARED says where it is)'
fi

# ---- training: the same run on several grids
train() { # train TRANSPORT RANKS GRID OUT OPTIONS...
  transport=$1 p=$2 grid=$3 out=$4
  shift 4
  "$transport" "$p" "$tools/cosmoflow" train --data "$universes" --grid "$grid" --filters 2 --set network.batch_norm --batch 4 \
    --set data.flips --set data.shifts \
    --set schedule.shape=constant --precision float64 --out "$work/$out" "$@"
}
train threads 1 sample=1 one --epochs 2 --json
judge 'cosmoflow trains on one rank' key parameters 148272
for file in weights.h5 metrics.csv predictions.csv cosmoflow.png summary.json; do
  judge "cosmoflow writes $file" test -s "$work/one/$file"
done
train ranks 2 depth=2 two --epochs 1 --set checkpoint.epochs=1
judge 'cosmoflow trains under the launcher' says '^sigma_8 '
judge 'two ranks in depth: the same loss' same_losses "$work/one/metrics.csv" 1 "$work/two/metrics.csv" 1
train threads 3 height=3 three --epochs 1
judge 'three ranks in height: the same loss' same_losses "$work/one/metrics.csv" 1 "$work/three/metrics.csv" 1
train threads 4 sample=2,width=2 four --epochs 1
judge 'samples and width: the same loss' same_losses "$work/one/metrics.csv" 1 "$work/four/metrics.csv" 1
train threads 2 width=2 resumed --epochs 2 --resume "$work/two/checkpoint.h5"
judge 'resumed on another grid: the same loss' same_losses "$work/one/metrics.csv" 2 "$work/resumed/metrics.csv" 2
cp -R "$work/two" "$work/on"
train threads 2 width=2 on --epochs 2 --resume "$work/on/checkpoint.h5" --overwrite
judge 'going on in the same folder keeps the first epoch' epochs "$work/on/metrics.csv" '1 2 '
judge 'the row kept is the same' test "$(sed -n 1,2p "$work/on/metrics.csv")" = "$(cat "$work/two/metrics.csv")"
train ranks 2 depth=2 refused --epochs 2 --resume "$work/two/checkpoint.h5" --set data.test_fraction=0.4
judge 'going on with other test samples' refuses_once 'test fraction 0.15, now it is 0.4'
train ranks 2 depth=2 refused --epochs 2 --resume "$work/two/checkpoint.h5" --optimizer adamw
judge 'going on with another optimizer' refuses_once 'optimizer adam, now it is adamw'
mkdir "$work/fewer"
for file in "$universes"/*[0-8].hdf5; do ln -s "$file" "$work/fewer"; done
ranks 2 "$tools/cosmoflow" train --data "$work/fewer" --grid depth=2 --filters 2 --set network.batch_norm --batch 4 --precision float64 \
  --epochs 2 \
  --resume "$work/two/checkpoint.h5" --out "$work/refused"
judge 'going on with other data' refuses_arguments "was trained on other samples: .* of 'universes' 10 samples, .*, now of 'fewer' 9 samples"
plain() { # plain OUT OPTIONS...: without what differs between parts of a batch
  out=$1
  shift
  threads 2 "$tools/cosmoflow" train --data "$universes" --grid depth=2 --filters 2 --set network.keep=1 --epochs 2 --batch 4 \
    --precision float64 \
    --out "$work/$out" "$@"
}
plain whole
plain parts --set schedule.accumulate=2
judge 'a batch in parts: the same loss' same_losses "$work/whole/metrics.csv" 2 "$work/parts/metrics.csv" 2
half() { # half OUT OPTIONS...: in float16, whose loss scale is part of what training goes on with
  out=$1
  shift
  threads 2 "$tools/cosmoflow" train --data "$universes" --grid depth=2 --filters 2 --set network.batch_norm --batch 4 --precision float16 \
    --set schedule.shape=constant --out "$work/$out" "$@"
}
half sixteen --epochs 2
judge 'cosmoflow trains in float16' grep -q 'loss scale [0-9]*, [1-9][0-9]* steps skipped' "$work/err"
half sixteen-first --epochs 1 --set checkpoint.epochs=1
half sixteen-resumed --epochs 2 --resume "$work/sixteen-first/checkpoint.h5"
judge 'resumed in float16: the same loss' same_losses "$work/sixteen/metrics.csv" 2 "$work/sixteen-resumed/metrics.csv" 2
judge 'resumed in float16: the same scale' test "$(tail -n 1 "$work/sixteen/metrics.csv" | cut -d , -f 8,9)" = \
  "$(tail -n 1 "$work/sixteen-resumed/metrics.csv" | cut -d , -f 8,9)"
threads 2 "$tools/cosmoflow" evaluate --data "$universes" --part all --weights "$work/one/weights.h5" --out "$work/scored" --json
judge 'weights are evaluated' is_json
judge 'weights that were trained on these data: it is said' warns 'is what .* was trained on: 10 of these 12 volumes are no test'
train threads 2 sample=2 scored --epochs 0 --weights "$work/one/weights.h5" --json
judge 'training for no epoch is refused' refuses_arguments '--epochs 0 trains nothing: the command .evaluate. scores weights'

# ---- what --describe says of a step, beside steps that run: one of a second epoch, and the memory of one rank
reductions() { # reductions EPOCHS: bytes that rank 0 handed to reductions, in a training with one step per epoch
  run env MPIGRAD_CHECKS=trace "$tools/cosmoflow" train --transport threads --ranks 2 --grid sample=2 --set network.batch_norm \
    --data "$universes" --batch 10 --epochs "$1" --out "$work/traced" --overwrite --quiet
  python3 - "$work/err" <<'END'
import re, sys
calls = re.findall(r"^\[rank 0 of 2\] #\d+ i?(?:allreduce|reduce_scatter) of .*: (\d+) bytes", open(sys.argv[1]).read(), re.M)
print(sum(map(int, calls)))
END
}
once=$(reductions 1) twice=$(reductions 2)
run "$tools/cosmoflow" train --describe --json --size 16 --set network.batch_norm --grid sample=2 --batch 10
judge 'describe: reductions as in a step that runs' about $((twice - once)) "$(number reduced_bytes_per_rank)"
threads 1 "$tools/cosmoflow" train --set network.batch_norm --data "$universes" --batch 10 --epochs 1 --out "$work/traced" --overwrite --json
peak=$(number peak_tensor_bytes)
run "$tools/cosmoflow" train --describe --json --size 16 --set network.batch_norm --batch 10
judge 'describe: memory as in a step that runs' about "$(number peak_bytes_per_rank)" "$peak" 0.1

# ---- evaluation on data that the network has not seen: all of them, against a mean that is none of one volume
# scored FOLDER PARAMETERS: every volume is predicted once, and the scores are those of the predictions beside the means of
# PARAMETERS, a document of `universe generate`; `own`: of the volumes themselves. The last: how many samples of the document are
# for training, by the table of a training's test.
scored() {
  python3 - "$@" <<'END'
import csv, json, sys
folder, parameters, *test = sys.argv[1:]
rows = list(csv.DictReader(open(folder + "/predictions.csv")))
summary = json.load(open(folder + "/summary.json"))
assert len({row["sample"] for row in rows}) == len(rows) == summary["test_samples"], "volumes predicted"
def means():
    if parameters == "own": return None
    known = {row["sample"].split("/")[-1] for row in csv.DictReader(open(test[0] + "/predictions.csv"))}
    units = [u["unit"] for u in json.load(open(parameters))["universes"] if u["file"].split("/")[-1] not in known]
    return [sum(column) / len(units) for column in zip(*units)]
expected = means()
for t, (name, score) in enumerate(summary["targets"].items()):
    truth = [float(row[name + "_true"]) for row in rows]
    made = [float(row[name + "_predicted"]) for row in rows]
    mean = expected[t] if expected else sum(truth) / len(truth)
    for key, numbers in ("mean_mse", [mean] * len(truth)), ("mse", made):
        value = sum((a - b) ** 2 for a, b in zip(numbers, truth)) / len(truth)
        assert abs(value - score[key]) < 1e-6 * (value + 1e-3), (name, key, value, score[key])
END
}
# seen FOLDER FOLDER: the regression on power spectra sees sigma_8, with the same errors in both summaries to the last bit.
seen() {
  python3 - "$@" <<'END'
import json, sys
one, two = (json.load(open(folder + "/summary.json")) for folder in sys.argv[1:])
for name, score in one["targets"].items():
    assert score["spectrum_mse"] == two["targets"][name]["spectrum_mse"], name
    assert abs(score["spectrum_ratio"] * score["spectrum_mse"] / score["mse"] - 1) < 1e-12, name
assert one["targets"]["sigma_8"]["spectrum_mse"] < 0.7 * one["targets"]["sigma_8"]["mean_mse"]
assert "spectrum_missing" not in one
END
}
rows() { [ "$(wc -l <"$1")" -eq $(($2 + 1)) ]; }
# The same numbers to 1e-9, in the same order.
same_predictions() {
  python3 - "$1" "$2" <<'END'
import csv, sys
a, b = (list(csv.reader(open(name)))[1:] for name in sys.argv[1:])
assert [row[0] for row in a] == [row[0] for row in b]
assert all(abs(float(x) - float(y)) < 1e-9 for one, two in zip(a, b) for x, y in zip(one[1:], two[1:]))
END
}
run "$tools/universe" generate --out "$work/again-12" --universes 12 --size 16 --cell 8 --seed 1 --json
cp "$work/out" "$work/parameters.json"
run "$tools/universe" generate --out "$work/unseen" --first 100 --universes 5 --size 16 --cell 8 --seed 9
judge 'a training holds its test against its own mean' scored "$work/one" "$work/parameters.json" "$work/one"
evaluate() { # evaluate TRANSPORT RANKS GRID DATA OUT OPTIONS...
  transport=$1 p=$2 grid=$3 data=$4 out=$5
  shift 5
  "$transport" "$p" "$tools/cosmoflow" evaluate --data "$data" --grid "$grid" --weights "$work/one/weights.h5" --out "$work/$out" "$@"
}
evaluate threads 1 sample=1 "$work/unseen" unseen-1 --batch 8
judge 'evaluation of fewer volumes than a batch' rows "$work/unseen-1/predictions.csv" 5
judge 'evaluation says whose mean it is' says '^of mean: of predicting the mean of the training set'
judge 'evaluation shows the regression beside it' says '^target  *MSE  *of mean  *ratio  *P(k)  *ratio  *MAE'
judge 'evaluation says what that is' says '^P(k): ridge regression on binned power spectra'
judge 'evaluation against the mean of the training set' scored "$work/unseen-1" "$work/parameters.json" "$work/one"
judge 'evaluation warns of nothing' silent
judge 'evaluation writes no weights' no_file "$work/unseen-1/weights.h5"
evaluate ranks 2 sample=2 "$work/unseen" unseen-2 --batch 4
judge 'the regression of the weights, on any number of ranks' seen "$work/unseen-1" "$work/unseen-2"
judge 'evaluation is of all volumes' rows "$work/unseen-2/predictions.csv" 5
judge 'a last batch that leaves a rank without a volume: the same predictions' same_predictions \
  "$work/unseen-1/predictions.csv" "$work/unseen-2/predictions.csv"
evaluate threads 3 depth=3 "$work/unseen/universe_00102.hdf5" unseen-3
judge 'evaluation of a single volume' rows "$work/unseen-3/predictions.csv" 1
mkdir "$work/renamed"
python3 - "$work/unseen" "$work/renamed" <<'END'
import os, sys
for name in os.listdir(sys.argv[1]):
    content = open(f"{sys.argv[1]}/{name}", "rb").read()
    assert b"sigma_8" in content
    open(f"{sys.argv[2]}/{name}", "wb").write(content.replace(b"sigma_8", b"sigma_9"))
END
evaluate threads 1 sample=1 "$work/renamed" unseen-4
judge 'targets of other names: it is said' warns 'was trained to predict .*sigma_8.*; the targets of .* are called .*sigma_9'
judge 'targets of other names: against their own mean' scored "$work/unseen-4" own
judge 'which is said, too' says '^of mean: of predicting the mean of the samples evaluated'
judge 'targets of other names: no regression, and why' says '^P(k): none, the weights predict other parameters'
judge 'which the summary has' grep -q '"spectrum_missing": "the weights predict other parameters"' "$work/unseen-4/summary.json"

# ---- a run that was killed after its last checkpoint
# Takes the last files of a run away and lets it go on; they come back as they were.
killed() { # killed FOLDER FILES...: of what the command line in `resume` does
  folder=$1
  shift
  cp -R "$folder" "$folder-killed"
  for file; do rm "$folder-killed/$file"; done
}
train threads 1 sample=1 short --epochs 2 --set checkpoint.epochs=1
killed "$work/short" weights.h5 predictions.csv cosmoflow.png summary.json
echo 'part of a picture' >"$work/short-killed/.cosmoflow.png.0123456789abcdef.part"
touch -d '2 days ago' "$work/short-killed/.cosmoflow.png.0123456789abcdef.part"
train threads 1 sample=1 short-killed --epochs 2 --resume "$work/short-killed/checkpoint.h5" --overwrite
judge 'resumed after its last epoch: ends well' succeeds
for file in weights.h5 predictions.csv metrics.csv checkpoint.h5; do
  judge "resumed after its last epoch: the same $file" cmp -s "$work/short/$file" "$work/short-killed/$file"
done
for file in cosmoflow.png summary.json; do
  judge "resumed after its last epoch: $file" test -s "$work/short-killed/$file"
done
judge 'what the killed run left of a picture is gone' no_file "$work/short-killed/.cosmoflow.png.0123456789abcdef.part"
train threads 1 sample=1 brief --epochs 3 --set schedule.minutes=0.00001
brief() { succeeds && [ "$(wc -l <"$work/brief/metrics.csv")" -eq 2 ] && grep -q '"stopped": "0:00 are over"' "$work/brief/summary.json"; }
judge 'a training whose minutes are over ends behind an epoch, and says so' brief
train ranks 2 depth=2 refused --epochs 1 --resume "$work/short/checkpoint.h5"
judge 'resumed for fewer epochs than there were' refuses_once '2 epochs behind it; --epochs 1 asks for fewer'

volumes=$shared/data/3d/adrenalmnist3d/adrenal28.h5
if [ -f "$volumes" ]; then
  ranks 2 "$tools/classify" train --data "$volumes" --grid depth=2 --set data.flips --epochs 1 --batch 32 --filters 8 --json \
    --out "$work/classes"
  judge 'classify trains under the launcher' is_json
  judge 'classify writes its picture' test -s "$work/classes/classify.png"
  validation_loss() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["validation"]["loss"])' "$1"; }
  # With a batch that no group fills.
  ranks 2 "$tools/classify" evaluate --data "$volumes" --group val --grid depth=2 --batch 100000 \
    --weights "$work/classes/weights.h5" --json --out "$work/classes-scored"
  judge 'classify evaluates weights' about "$(validation_loss "$work/classes/summary.json")" "$(validation_loss "$work/out")" 1e-5
  judge 'classify evaluates every volume' rows "$work/classes-scored/predictions.csv" "$(number validation_samples)"
else
  skip 'the reference data is not on this machine (MPIGRAD_SHARED says where it is)'
fi

# ---- what is refused; nothing is written
before=$(cksum <"$work/one/weights.h5")
train ranks 2 depth=2 one
judge 'existing output' refuses 'overwrite'
judge 'existing output stays' unchanged "$work/one/weights.h5" "$before"
train ranks 2 depth=3 refused
judge 'a grid of other ranks' refuses_arguments 'needs 3 ranks'
train ranks 2 time=2 refused
judge 'a grid axis that does not exist' refuses_arguments "no axis 'time'"
train threads 17 depth=17 refused
judge 'more ranks than planes' refuses '17 ranks along depth for 16 planes'
first=$universes/universe_00000.hdf5
mkdir "$work/late"
cp "$work/half" "$work/late/metrics.csv"
before=$(cksum <"$work/half")
train ranks 2 depth=2 late --epochs 1 --overwrite --learning-rate 1e200 --optimizer sgd
judge 'a run that fails early' refuses 'the loss is'
judge 'a run that fails early leaves the table of an earlier one' unchanged "$work/late/metrics.csv" "$before"
mkdir "$work/late/checkpoint.h5"
train ranks 2 depth=2 late --epochs 1 --overwrite --set checkpoint.epochs=1
judge 'a checkpoint that cannot be written' refuses_arguments 'late/checkpoint.h5 is a folder'
train threads 2 depth=2 "$(printf 'caf\351')" --epochs 1 --json
judge 'a folder whose name is not UTF-8' is_json
ranks 2 "$tools/cosmoflow" train --data "$work/nowhere" --grid depth=2 --out "$work/refused"
judge 'missing data' refuses 'nowhere'
head -c 3000 "$first" >"$work/truncated.hdf5"
ranks 2 "$tools/cosmoflow" train --data "$work/truncated.hdf5" --grid depth=2 --out "$work/refused"
judge 'truncated data' refuses 'truncated'
run "$tools/cosmoflow" train --data "$work/one/weights.h5" --out "$work/refused"
judge 'data of another kind' refuses "no dataset 'volume'"
mkdir "$work/bad" "$work/pipe" "$work/oblong"
cp "$universes"/*.hdf5 "$work/bad"
run "$tools/universe" generate --out "$work/numbers" --universes 1 --size 16 --cell 8 --seed 1 --json
values=$(python3 -c 'import json, sys; print(*json.load(sys.stdin)["universes"][0]["unit"])' <"$work/out")
# shellcheck disable=SC2086  # four numbers
patch "$work/bad/universe_00000.hdf5" f $values -- nan 0 0 0
ranks 2 "$tools/cosmoflow" train --data "$work/bad" --grid depth=2 --batch 4 --out "$work/refused"
judge 'targets that are no numbers' refuses_arguments "universe_00000.hdf5: 'unitPar' holds nan"
mkfifo "$work/pipe/a.hdf5"
ranks 2 "$tools/cosmoflow" train --data "$work/pipe" --grid depth=2 --out "$work/refused"
judge 'a pipe among the data' refuses_once 'not a regular file'
cp "$first" "$work/oblong/a.hdf5"
patch "$work/oblong/a.hdf5" q 16 16 16 4 -- 32 16 8 4
run "$tools/cosmoflow" train --describe --data "$work/oblong"
judge 'describe refuses volumes that are no cubes' refuses_once 'takes cubes'
mkdir "$work/mixed"
cp "$first" "$work/mixed/a.hdf5"
run "$tools/universe" generate --out "$work/other" --universes 1 --size 32 --cell 8
cp "$work/other/universe_00000.hdf5" "$work/mixed/b.hdf5"
ranks 2 "$tools/cosmoflow" train --data "$work/mixed" --grid depth=2 --batch 1 --out "$work/refused"
judge 'data of two shapes' refuses '32'
run "$tools/cosmoflow" train --data "$universes" --variant mlperf --out "$work/refused"
judge 'volumes too small for the network' refuses 'power of two'
run "$tools/cosmoflow" train --data "$universes" --batch 4 --weights "$work/one/weights.h5" --out "$work/refused"
judge 'weights of another network' refuses 'float64'
run "$tools/classify" train --data "$first" --out "$work/refused"
judge 'classify: data of another kind' refuses 'train'
judge 'refused runs leave nothing behind' no_file "$work/refused"

summary
