#!/bin/sh
# What --describe says of networks and steps that no machine here could hold, beside what is known of them. Prints `failed: NAME` for
# each failed test and ends with `N passed, M failed, K skipped`. tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher
. "$root/tests/suite.sh"

tools=$build/examples
needs 'the tools are' "$tools/cosmoflow"

# key KEY VALUE: a number in the JSON document printed.
key() { is_json && grep -q "^ *\"$1\": $2,\{0,1\}\$" "$work/out"; }
# in_proportion TWO TWELVE: what 12 samples cost is 6 times what 2 do, to a thousandth.
in_proportion() { about "$(awk -v two="$1" 'BEGIN { printf "%.9g", 6 * two }')" "$2"; }

# ---- CosmoFlow and classifiers
run "$tools/cosmoflow" train --describe --json
judge 'describe: hybrid' key parameters 9437636
run "$tools/cosmoflow" train --describe --json --set network.batch_norm --size 512 --grid sample=2,depth=16,height=8,width=8
judge 'describe: batch norm on 2,048 ranks' key parameters 9439652
run "$tools/cosmoflow" train --describe --json --variant mlperf --size 128 --precision float64
judge 'describe: mlperf' key parameters 8907556
run "$tools/cosmoflow" train --describe --json --size 64 --grid depth=2 --batch 2
gflop=$(number forward_gflop) halo=$(number halo_bytes_per_rank) activations=$(number activation_bytes_per_rank)
judge 'describe: adam has two numbers for each weight, half of them on each rank' about "$(number optimizer_bytes_per_rank)" $((2 * 4 * 9437636 / 2))
run "$tools/cosmoflow" train --describe --json --size 64 --grid sample=2
judge 'describe: each gradient is reduced once' test "$(number reduced_bytes_per_rank)" = $((4 * 9437636))
run "$tools/cosmoflow" train --describe --json --size 64 --grid depth=2 --batch 12 --optimizer sgd --set optimizer.momentum=0.9
judge 'describe: the batch asked for' key batch 12
judge 'describe: work of the batch' in_proportion "$gflop" "$(number forward_gflop)"
judge 'describe: halos of the batch' in_proportion "$halo" "$(number halo_bytes_per_rank)"
judge 'describe: activations of the batch' in_proportion "$activations" "$(number activation_bytes_per_rank)"
judge 'describe: sgd has one number for each weight, half of them on each rank' about "$(number optimizer_bytes_per_rank)" $((4 * 9437636 / 2))
run "$tools/cosmoflow" train --describe --json --size 64 --grid depth=2 --batch 12 --set schedule.accumulate=6
judge 'describe: activations of a part' test "$(number activation_bytes_per_rank)" = "$activations"
judge 'describe: work of all parts' in_proportion "$gflop" "$(number forward_gflop)"
run "$tools/cosmoflow" train --describe --size 64 --batch 12 --set schedule.accumulate=5
judge 'describe refuses unequal parts' refuses_arguments 'equal micro-batches'
run "$tools/classify" train --describe --json --size 32 --batch 6
judge 'describe: classifier, the batch asked for' key batch 6
run "$tools/cosmoflow" train --describe --size 64
judge 'describe: table' says '^conv7 .*1769472'
run "$tools/cosmoflow" train --describe --size 64 --precision bfloat16
judge 'describe: 16 bits' says 'computed in bfloat16'
run "$tools/cosmoflow" train --describe --size 100
judge 'describe refuses an extent' refuses_arguments 'power of two'
run "$tools/cosmoflow" train --describe --size 64 --grid depth=65
judge 'describe refuses more ranks than planes' refuses_arguments '65 ranks along depth'
run "$tools/cosmoflow" train --describe --grid depht=2
judge 'describe refuses an unknown axis' refuses_arguments "no axis 'depht'"
run "$tools/cosmoflow" train --describe --grid depth=128,height=128,width=128
judge 'describe refuses millions of ranks' refuses_arguments '2097152 ranks'
run "$tools/cosmoflow" train --describe --json --size 64 --grid filter=4 --batch 2
judge 'describe: with filters split, a quarter of the numbers for weights' about "$(number optimizer_bytes_per_rank)" $((2 * 9437636))
judge 'describe: what gathers take' test "$(number forward_collective_bytes_per_rank)" -gt 0
run "$tools/cosmoflow" train --describe --json --size 64 --grid sample=4 --set grid.sharded_weights
judge 'describe: with weights in parts, a quarter, too' about "$(number optimizer_bytes_per_rank)" $((2 * 9437636))
run "$tools/cosmoflow" train --describe --size 64 --grid depth=4 --set grid.layers=conv5-7:sample=4 --batch 4
judge 'describe: what is redistributed' says '^conv5 .*[KM]iB .*[KM]iB'
judge 'describe: a column for it' says ' redistributed'
run "$tools/cosmoflow" train --describe --grid depth=4 --set grid.layers=conv8:sample=4
judge 'describe refuses a layer that there is not' refuses_arguments 'no layer with weights is called conv8; there are conv1, '
run "$tools/cosmoflow" train --describe --grid depth=4 --set grid.layers=conv5-7:sample=2
judge 'describe refuses a grid of fewer ranks' refuses_arguments 'conv5-7: sample=2 has 2 ranks, --grid 4'
run "$tools/cosmoflow" train --describe --grid depth=4 --set grid.layers=sample=2
judge 'describe refuses a grid of no layer' refuses_arguments "such as conv5-7:sample=4; got 'sample=2'"
run "$tools/cosmoflow" train --describe --size 64 --batch 4 --grid filter=2,channel=2 --json
judge 'describe: a grid that cuts weights in two dimensions' says '"filter": 2'
judge 'describe: a quarter of them' about "$(number optimizer_bytes_per_rank)" $((2 * 9437636))
run "$tools/classify" train --describe --json --size 64 --grid depth=2
judge 'describe: classifier' is_json

# ---- contrastive
describe() { # describe OPTIONS...
  run "$tools/contrastive" train --describe --json --set data.size=12 --set network.width=4 --set network.blocks=2 \
    --set network.head_hidden=8 --set network.head_out=6 "$@"
}
describe --batch 12
judge 'describe needs no data' is_json
weights=$(number parameters) gflop=$(number forward_gflop)
judge 'describe: the optimizer' test "$(number optimizer_bytes_per_rank)" -ge $((8 * weights))
describe --batch 24 --grid sample=2
judge 'describe: the batch asked for' awk -v one="$gflop" -v two="$(number forward_gflop)" 'BEGIN { exit !(two > 1.99 * one && two < 2.01 * one) }'
judge 'describe: gradients are reduced' test "$(number reduced_bytes_per_rank)" -ge $((4 * weights))
judge 'describe: embeddings are gathered' test "$(number gathered_bytes_per_rank)" -gt 0
describe --batch 2048
large=$(number peak_bytes_per_rank)
describe --batch 2048 --set loss.form=ring
judge 'describe: similarities are in memory, but for a ring' test $((large - $(number peak_bytes_per_rank))) -gt $((4 * 2048 * 2048))
for loss in supcon clip siglip barlow vicreg lejepa spectral moco swav dino; do
  describe --batch 24 --loss $loss --grid sample=2,height=2 --set loss.queue=64
  judge "describe: $loss" is_json
done

summary
