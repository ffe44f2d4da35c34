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
  run python3 "$root/tests/framework/dlpack/dlpack.py" "$bridge" "$module"
  if [ "$status" -eq 77 ]; then skip "$module is not installed for python3: tensors shared with it"
  else judge "tensors are shared with $module" succeeds; fi
done
summary
