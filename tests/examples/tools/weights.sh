#!/bin/sh
# The `weights` tool as users run it, on what a trainer has written. Prints `failed: NAME` for each failed test and ends with
# `N passed, M failed, K skipped`. tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher

tools=$build/examples
. "$root/tests/suite.sh"

needs 'the tools are' "$tools/weights"
weights=$tools/weights

# ---- a network's weights, there and back
run "$tools/universe" generate --out "$work/universes" --universes 4 --size 32 --cell 4 --seed 1 --spread
run "$tools/cosmoflow" train --data "$work/universes" --set network.batch_norm --batch 2 --epochs 1 --out "$work/run"
judge 'cosmoflow trains' succeeds
h5=$work/run/weights.h5
run "$weights" list "$h5"
judge 'list: names, types, shapes, and PyTorch names' says '^parameters/norm7.gamma .*float32 .*\[256\] .*norm7.weight$'
judge 'list: elements' says '^9441668 elements$'
run "$weights" list --json "$h5"
judge 'list: JSON' is_json
run "$weights" convert "$h5" "$work/a.safetensors"
judge 'convert to safetensors' says 'written to'
run "$weights" convert "$work/a.safetensors" "$work/back.h5" --like "$h5"
judge 'and back' says 'written to'
run "$weights" compare "$h5" "$work/back.h5"
judge 'every element is what it was' says '^41 tensors agree, 0 differ, 0 are in one file only; the largest difference is 0$'
run "$weights" compare "$h5" "$work/a.safetensors"
judge 'compare takes both formats' says ' 0 differ, 0 are in one file only'
run "$tools/cosmoflow" evaluate --weights "$work/back.h5" --data "$work/universes" --part all --out "$work/scores"
judge 'what came back is used' succeeds
run "$weights" convert "$h5" "$work/a.npz"
judge 'convert to .npz' says 'written to'
run "$weights" convert "$h5" "$work/a.npz"
judge 'which replaces nothing' refuses_once 'a.npz exists; --overwrite replaces it'
run "$weights" convert "$work/a.npz" "$work/from-npz.h5" --like "$h5"
judge 'and back from .npz' says 'written to'
run "$weights" compare "$h5" "$work/from-npz.h5"
judge 'every element is what it was' says '^41 tensors agree, 0 differ, 0 are in one file only; the largest difference is 0$'
run "$weights" compare "$work/a.npz" "$work/a.safetensors"
judge '.npz and safetensors have the same' says '^41 tensors agree, 0 differ'
if python3 -c 'import numpy' 2>/dev/null; then
  run python3 -c 'import numpy, sys; a = numpy.load(sys.argv[1]); print(len(a.files), a["conv1.weight"].shape, a["conv1.weight"].dtype)' "$work/a.npz"
  judge 'NumPy reads it' says '^41 (16, 4, 3, 3, 3) float32$'
fi
run "$weights" convert "$h5" "$work/half.safetensors" --type bfloat16
judge 'convert to 16 bits' succeeds
run "$weights" compare "$h5" "$work/half.safetensors"
judge 'compare: what differs, exit code 1' test "$status" = 1
run "$weights" compare --tolerance 0.01 "$h5" "$work/half.safetensors"
judge 'compare: within a tolerance' succeeds
# Read without this project: header, order of dimensions and elements.
cat >"$work/check.py" <<'END'
import json, struct, subprocess, sys
path = sys.argv[1]
data = open(path, "rb").read()
length = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + length])
assert (8 + length) % 8 == 0
notes = header.pop("__metadata__")
assert notes["format"] == "pt" and notes["mpigrad.note.program"] == "cosmoflow", notes
assert header["conv1.weight"]["shape"] == [16, 4, 3, 3, 3] and header["conv1.weight"]["dtype"] == "F32"
assert header["linear1.weight"]["shape"] == [2048, 256 * 8], header["linear1.weight"]
assert header["norm1.running_var"]["shape"] == [16]
end = 0
for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
    begin, stop = entry["data_offsets"]
    assert begin == end, name
    end = stop
assert 8 + length + end == len(data)
END
run python3 "$work/check.py" "$work/a.safetensors"
judge 'the file is what the format says' succeeds
if python3 -c 'import safetensors.numpy' 2>"$work/no"; then
  run python3 -c 'import safetensors.numpy, sys; print(len(safetensors.numpy.load_file(sys.argv[1])))' "$work/a.safetensors"
  judge 'the format'\''s own library reads it' says '^41$'
  # Its elements are those of the .npz file, and what it writes itself is read with the same bits, of 16 bits too.
  cat >"$work/theirs.py" <<'END'
import sys
import numpy, safetensors.numpy
ours, archive, theirs = sys.argv[1:]
tensors, expected = safetensors.numpy.load_file(ours), numpy.load(archive)
assert sorted(tensors) == sorted(expected.files)
for name, value in tensors.items():
    assert value.dtype == expected[name].dtype and value.tobytes() == expected[name].tobytes(), name
safetensors.numpy.save_file(tensors, theirs, metadata={"format": "pt"})
half = {name: value.astype(numpy.float16) for name, value in tensors.items()}
safetensors.numpy.save_file(half, theirs.replace(".safetensors", "-half.safetensors"))
END
  run python3 "$work/theirs.py" "$work/a.safetensors" "$work/a.npz" "$work/theirs.safetensors"
  judge 'with the elements that the .npz file has' succeeds
  run "$weights" convert "$work/theirs.safetensors" "$work/theirs.h5" --like "$h5"
  judge 'a file that the library wrote is read' says 'written to'
  run "$weights" compare "$h5" "$work/theirs.h5"
  judge 'bit for bit' says '^41 tensors agree, 0 differ, 0 are in one file only; the largest difference is 0$'
  run "$weights" compare "$work/theirs-half.safetensors" "$work/a.safetensors" --tolerance 0.01
  judge 'one of 16 bits, too' says '^41 tensors agree, 0 differ'
else
  skip 'Python has no safetensors'
fi

ranks 2 "$weights" convert "$work/a.safetensors" "$work/ranks.h5" --like "$h5"
judge 'of two ranks one works' says 'written to'
ranks 2 "$weights" compare "$h5" "$work/half.safetensors"
judge 'and all have its exit code' test "$status" = 1

# ---- refusals
for bad in list compare convert; do
  run "$weights" "$bad"
  judge "$bad without files" refuses_arguments 'is required'
done
run "$weights" list "$work/run/metrics.csv"
judge 'another format' refuses_arguments 'is not a .h5, .safetensors or .npz file'
run "$weights" list "$work/none.safetensors"
judge 'a file that is not there' refuses_once 'none.safetensors cannot be read'
run "$weights" convert "$h5" "$work/a.safetensors"
judge 'nothing is overwritten' refuses_once 'a.safetensors exists; --overwrite replaces it'
run "$weights" convert "$work/a.safetensors" "$work/b.h5"
judge 'a .h5 file needs --like' refuses_arguments 'needs --like FILE'
head -c 100000 "$work/a.safetensors" >"$work/cut.safetensors"
run "$weights" list "$work/cut.safetensors"
judge 'a truncated file' refuses_once "cut.safetensors: .*'"
python3 -c 'import json, struct, sys
header = json.dumps({"w": {"dtype": "F64", "shape": [2], "data_offsets": [0, 16]}}).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(header)) + header + struct.pack("<2d", 1, 70000))' "$work/large.safetensors"
run "$weights" convert "$work/large.safetensors" "$work/small.safetensors" --type float16
judge 'a number that 16 bits do not hold' refuses_once "'w' holds 70000, which float16 cannot"
run "$weights" convert "$work/large.safetensors" "$work/small.safetensors" --type bfloat16
judge 'and one that others do' succeeds
run "$tools/cosmoflow" train --data "$work/universes" --variant mlperf --batch 2 --epochs 1 --out "$work/mlperf"
run "$weights" convert "$work/a.safetensors" "$work/b.h5" --like "$work/mlperf/weights.h5"
judge 'weights of another network' refuses_once "has no 'conv1.bias'"
run "$weights" convert "$work/a.safetensors" "$work/b.h5" --like "$work/mlperf/weights.h5" --partial
judge 'also in part where shapes differ' refuses_once "'conv1.weight' is \[16, 4, 3, 3, 3\], parameters/conv1.weight would be \[32, 4, 3, 3, 3\]"
judge 'refused runs leave nothing behind' no_file "$work/b.h5"

# ---- another training begins with them
tune="train --data $work/universes --batch 2 --epochs 2 --weights $h5 --seed 7"
# shellcheck disable=SC2086  # several options
{
  run "$tools/cosmoflow" $tune --set network.batch_norm --set network.take='conv*' --set network.take='norm*' \
    --set optimizer.freeze='conv*' --set report.mllog --set data.store=0.1 --set checkpoint.mtbf=24 --set checkpoint.steps=1 \
    --out "$work/tuned"
  judge 'fine-tuning' says 'checkpoints of .* lose the least time every'
  judge 'and what was taken' grep -q 'tensors taken: conv1.weight, ' "$work/err"
  judge 'and what stays' grep -q '6 of the network stay as they were: linear1.weight, linear1.bias, ' "$work/err"
  judge 'the store has all samples' says 'the store has room for 3 of 3 samples'
  judge 'the share of waiting is told' grep -q '% of the time waiting for data' "$work/err"
  python3 - "$work/tuned/mllog.txt" "$work/tuned/summary.json" <<'END'
import json, sys
lines = [json.loads(line.removeprefix(":::MLLOG ")) for line in open(sys.argv[1])]
keys = [line["key"] for line in lines]
assert all(line.startswith(":::MLLOG ") for line in open(sys.argv[1]))
assert keys.count("epoch_start") == keys.count("epoch_stop") == keys.count("eval_error") == 2, keys
assert lines[-1]["key"] == "run_stop" and lines[-1]["metadata"]["status"] == "success", lines[-1]
assert [line["time_ms"] for line in lines] == sorted(line["time_ms"] for line in lines)
run = json.load(open(sys.argv[2]))
assert run["store"]["samples"] >= 2 and run["store"]["of"] == 3 and run["checkpoints"] + run["checkpoints_skipped"] == 2, run
END
  judge "MLPerf's log and the summary" test $? = 0
  run "$weights" compare "$h5" "$work/tuned/weights.h5"
  judge 'frozen weights are what they were' test "$(grep -c 'conv[0-9].weight' "$work/out")" = 0
  run "$tools/cosmoflow" $tune --set network.take=common --out "$work/common"
  judge 'what two networks have in common' grep -q 'of the file are not used: norm1' "$work/err"
  run "$tools/cosmoflow" $tune --set network.take='conv9*' --out "$work/refused"
  judge 'a pattern of nothing' refuses_once "nothing that is called 'conv9\*'"
  run "$tools/cosmoflow" $tune --set optimizer.freeze='conv9*' --out "$work/refused"
  judge 'freezing nothing' refuses_once "none is called 'conv9\*'"
}
run "$tools/cosmoflow" train --data "$work/universes" --set network.take=common --out "$work/refused"
judge 'network.take without --weights' refuses_arguments 'is of network.weights'
judge 'they leave nothing behind, either' no_file "$work/refused"

summary
