#!/bin/sh
# Tests of framework/tensor/gdb_printer.py in gdb. Prints `failed: NAME` for each failed test and ends with
# `N passed, M failed, K skipped`. tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
. "$root/tests/suite.sh"

program=$build/tests/gdb_tensors
needs 'the program of tensors for gdb is' "$program"
debugger() { run env DEBUGINFOD_URLS= gdb -batch -nx "$@"; }
debugger -ex 'python print("python is here")' -ex run "$(command -v true)"
if ! grep -q '^python is here$' "$work/out" || ! grep -q 'exited normally' "$work/out"; then
  skip 'gdb with Python that can run programs is not installed: gdb_printer'
  summary
  exit
fi

set --
for name in none matrix scalar half truths many dry many.type_.shape; do set -- "$@" -ex "output tensors.$name" -ex 'echo \n'; done
debugger -ex "source $root/framework/tensor/gdb_printer.py" -ex 'break look' -ex run -ex up "$@" "$program"
prints() { succeeds && grep -F -x -q -e "$1" "$work/out"; }
for text in 'none' 'float32 [2, 3]: 1 2.5 -3 4 5 6' 'int64 []: 7' 'bfloat16 [2]: 0.5 -2' 'boolean [2]: true false' \
  'int32 [100]: 0 1 2 3 4 5 6 7 8 9 10 11 ...' 'float32 [4], on device dry' '[100]'; do
  judge "gdb prints $text" prints "$text"
done
summary
