#!/bin/sh
# Networks exported to ONNX by this project, in ONNX's own checker and in ONNX Runtime, if python3 has both (pip install onnx
# onnxruntime), compared with the output of the network itself. Prints `failed: NAME` for each failed test and ends with `N
# passed, M failed, K skipped`. Results: tests/bench/results/other_programs.md.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher
. "$root/tests/suite.sh"

if [ ! -x "$build/tests/onnx_files" ]; then
  printf 'skipped: 1 built without protobuf\n0 passed, 0 failed, 1 skipped\n'
  exit 0
fi
if ! python3 -c 'import onnx, onnxruntime' 2>"$work/no"; then
  printf 'skipped: 1 Python has no onnx and onnxruntime\n0 passed, 0 failed, 1 skipped\n'
  exit 0
fi
run "$build/tests/onnx_files" "$work"
judge 'five networks are written' test "$(wc -l <"$work/out")" = 5
cp "$work/out" "$work/networks"
while read -r network; do
  run python3 "$root/tests/models/export/onnx_runtime.py" "$work/$network.onnx"
  judge "$network: ONNX Runtime computes what it computes" says "^$network: .* difference "
  cat "$work/out"
done <"$work/networks"
summary
