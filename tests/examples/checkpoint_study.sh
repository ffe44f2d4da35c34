#!/bin/sh
# `checkpoint_study` on small networks. Prints `failed: NAME` for each failed test and ends with `N passed, M failed, K skipped`.
# tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
. "$root/tests/packages.sh"
choose_launcher

tools=$build/examples
. "$root/tests/suite.sh"

if [ ! -x "$tools/checkpoint_study" ]; then
  printf 'skipped: 1 the tools are not built\n0 passed, 0 failed, 1 skipped\n'
  exit 0
fi
study=$tools/checkpoint_study
# Every way of each network on 1 and 2 ranks, two of them for several ranks only, with times above 0.
table() {
  succeeds && [ "$(grep -c "^$1,$2,[01]," "$work/$3/checkpoints.csv")" -ge "$4" ] &&
    ! awk -F'",' 'NR > 1 { split($2, n, ","); if (!(n[2] > 0)) exit 1 }' "$work/$3/checkpoints.csv" | grep -q .
}
run "$study" --tiny --rounds 1 --out "$work/threads"
for network in cosmoflow unet3d resnet50; do
  judge "$network on one rank" table $network 1 threads 8
  judge "$network on two" table $network 2 threads 10
done
judge 'a picture' test -s "$work/threads/checkpoints.png"
judge 'no other file is left' test "$(ls "$work/threads" | wc -l)" -eq 2
run "$study" --tiny --rounds 1 --out "$work/threads"
judge 'nothing is overwritten' refuses 'checkpoints.csv exists; --overwrite replaces it'
ranks 2 "$study" --tiny --rounds 1 --networks cosmoflow --json --out "$work/processes"
judge 'on two processes, as JSON' is_json
run "$study" --tiny --rounds 1 --networks cosmoflow --rank-counts 8 --out "$work/many"
judge 'more ranks than cores are marked' says 'cosmoflow, 8 ranks'
run "$study" --networks alexnet --out "$work/none"
judge 'a network that is not there' refuses_arguments 'alexnet'
ranks 2 "$study" --rank-counts 2 --out "$work/none"
judge 'ranks twice' refuses_arguments 'here there are several'
summary
