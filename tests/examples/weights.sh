#!/bin/sh
# The `weights` tool as users run it, on what a trainer has written. Prints `failed: NAME` for each failed test and ends with
# `N passed, M failed, K skipped`. tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
. "$root/tests/packages.sh"
choose_launcher

tools=$build/examples
. "$root/tests/suite.sh"

if [ ! -x "$tools/weights" ]; then
  printf 'skipped: 1 the tools are not built\n0 passed, 0 failed, 1 skipped\n'
  exit 0
fi
weights=$tools/weights

# ---- a network's weights, there and back
run "$tools/universe" generate --out "$work/universes" --universes 4 --size 32 --cell 4 --seed 1 --spread
run "$tools/cosmoflow" train --data "$work/universes" --batch-norm --batch 2 --epochs 1 --out "$work/run"
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
judge 'another format' refuses_arguments 'neither a .h5 nor a .safetensors'
refuses_once() { [ "$status" -eq 1 ] && [ "$(wc -l <"$work/err")" -eq 1 ] && grep -q -e "$1" "$work/err"; }
run "$weights" list "$work/none.safetensors"
judge 'a file that is not there' refuses_once 'none.safetensors cannot be read'
run "$weights" convert "$h5" "$work/a.safetensors"
judge 'nothing is overwritten' refuses_once 'a.safetensors exists; --overwrite replaces it'
run "$weights" convert "$work/a.safetensors" "$work/b.h5"
judge 'a .h5 file needs --like' refuses_arguments 'like that of a network'
head -c 100000 "$work/a.safetensors" >"$work/cut.safetensors"
run "$weights" list "$work/cut.safetensors"
judge 'a truncated file' refuses_once "cut.safetensors: .*'"
run "$tools/cosmoflow" train --data "$work/universes" --variant mlperf --batch 2 --epochs 1 --out "$work/mlperf"
run "$weights" convert "$work/a.safetensors" "$work/b.h5" --like "$work/mlperf/weights.h5"
judge 'weights of another network' refuses_once "has no 'conv1.bias'"
run "$weights" convert "$work/a.safetensors" "$work/b.h5" --like "$work/mlperf/weights.h5" --partial
judge 'also in part where shapes differ' refuses_once "'conv1.weight' is \[16, 4, 3, 3, 3\], parameters/conv1.weight would be \[32, 4, 3, 3, 3\]"
judge 'refused runs leave nothing behind' no_file "$work/b.h5"

summary
