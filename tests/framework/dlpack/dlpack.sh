#!/bin/sh
# Shares tensors with NumPy and PyTorch, where they are installed. Prints `failed: NAME` for each failed test and ends with
# `N passed, M failed, K skipped`. tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
. "$root/tests/suite.sh"

bridge=$build/tests/libdlpack_bridge.so
if [ ! -f "$bridge" ]; then
  skip 'libdlpack-dev is not installed: tensors shared with NumPy and PyTorch'
  summary
  exit
fi
for module in numpy torch; do
  if ! python_with "$module"; then
    skip "no python3 has $module: tensors shared with it"
    continue
  fi
  run "$python" "$root/tests/framework/dlpack/dlpack.py" "$bridge" "$module"
  judge "tensors are shared with $module" succeeds
done
summary
