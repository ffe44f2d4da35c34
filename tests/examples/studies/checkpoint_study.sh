#!/bin/sh
# `checkpoint_study` on small networks. Prints `failed: NAME` for each failed test and ends with `N passed, M failed, K skipped`.
# tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher

tools=$build/examples
. "$root/tests/suite.sh"

needs 'the tools are' "$tools/checkpoint_study"
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
restarted() { [ "$(grep -c '"restart: .*,yes$' "$work/threads/checkpoints.csv")" -eq 6 ] && ! grep -q ',no$' "$work/threads/checkpoints.csv"; }
judge 'a new process continues with the same bits' restarted
judge 'a picture' test -s "$work/threads/checkpoints.png"
judge 'no other file is left' test "$(ls "$work/threads" | wc -l)" -eq 2
run "$study" --tiny --rounds 1 --out "$work/threads"
judge 'nothing is overwritten' refuses 'checkpoints.csv exists; --overwrite replaces it'
ranks 2 "$study" --tiny --rounds 1 --networks cosmoflow --json --out "$work/processes"
judge 'on two processes, as JSON' is_json
run "$study" --tiny --rounds 1 --networks cosmoflow --rank-counts 8 --out "$work/many"
judge 'more ranks than cores are marked' says 'cosmoflow, 8 ranks'
# Which is marked, in table and file; the lines of 64 ranks that read and write a 64th each take less time than on one.
run "$study" --tiny --rounds 1 --networks cosmoflow --rank-counts 1 --simulate 64 --machine "$root/examples/machines/perlmutter.toml" --out "$work/larger"
if grep -q 'libtomlplusplus' "$work/err"; then skip 'there is no toml++'; else
  judge 'ranks that are not there are simulated, and said to be' says '^cosmoflow, 64 ranks (simulated: one rank here, Perlmutter)'
  marked() { awk -F, 'NR > 1 && $4 != ($2 == 64) { exit 1 } NR > 1 && $4 { n++ } END { exit !(n >= 8) }' "$work/larger/checkpoints.csv"; }
  judge 'simulated rows are marked' marked
  parts() {
    awk -F, '/"weights: a file per rank"/ { save[$2] = $7; load[$2] = $9 } END { exit !(save[64] < save[1] && load[64] < load[1]) }' \
      "$work/larger/checkpoints.csv"
  }
  judge 'ranks that write a part each take less time' parts
  run "$study" --simulate 64 --machine "$root/examples/machines/h100_node.toml" --out "$work/none"
  judge 'a machine whose storage is not known' refuses 'has no \[disk\]'
  run "$study" --rank-counts 2 --simulate 64 --machine "$root/examples/machines/perlmutter.toml" --out "$work/none"
  judge 'a simulation without one rank that is measured' refuses_arguments 'rank-counts with 1'
fi
run "$study" --networks alexnet --out "$work/none"
judge 'a network that is not there' refuses_arguments 'alexnet'
ranks 2 "$study" --rank-counts 2 --out "$work/none"
judge 'ranks twice' refuses_arguments 'here there are several'
summary
