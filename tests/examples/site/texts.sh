#!/bin/sh
# Runs every command that the texts of lessons and tutorials show, and compares what they say of its output: see texts.py. tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
if [ ! -x "$build/examples/adjoint" ] || [ ! -x "$build/examples/lessons/01_allgather" ]; then
  printf 'skipped: 1 the tools are not built\n0 passed, 0 failed, 1 skipped\n'
  exit 0
fi
lessons=$root/examples/lessons first=$root/examples/first
set -- "$first/thirty_lines.md" "$first/own_data.md" "$first/debug_a_hang.md" "$first/existing_code.md"
[ ! -x "$build/examples/own_trainer" ] || set -- "$@" "$first/own_trainer.md" "$first/split_it.md"
exec python3 "$root/tests/examples/site/texts.py" "$root" "$build" "$lessons/README.md" "$lessons/wrong_gradients.md" "$lessons"/coming_from/*.md \
  "$@"
