#!/bin/sh
# `plan`: published numbers, plans whose commands run, what was measured here, what cannot be. Prints `failed: NAME` for each failed
# test and ends with `N passed, M failed, K skipped`. tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher

tools=$build/examples
. "$root/tests/suite.sh"

needs 'plan is' "$tools/plan"
plan=$tools/plan
machines=$root/examples/machines
# holds EXPRESSION: of `d`, the JSON that was printed.
holds() { succeeds && python3 -c "import json, sys; d = json.load(open(sys.argv[1])); sys.exit(not ($1))" "$work/out"; }

# ---- formulas

cost() { run "$plan" cost --json "$@"; }
cost --strategy data --ranks 2 --samples 1280000 --batch 128 --alpha 9e-6 --bandwidth 50e9 --weight-bytes 90936064
judge 'Kahira, data, 2 ranks' holds "d['communication_s'] == 18.3672128 and d['compute_s'] is None and d['limit']['name'] == 'B'"
cost --strategy data --ranks 64 --samples 1280000 --batch 4096 --alpha 30.31e-6 --bandwidth 12.5e9 --weight-bytes 90936064
judge 'Kahira, data, 64 ranks' holds "'%.12g' % d['communication_s'] == '5.67828639504'"
cost --strategy spatial --ranks 8 --samples 1000 --batch 8 --alpha 9e-6 --bandwidth 50e9 --network cosmoflow --size 128
judge 'Kahira, spatial, a network by name' holds "d['communication_s'] > 0 and d['memory_bytes'] > 0"
cost --strategy data+filter --groups 4x2 --ranks 8 --samples 1000 --batch 8 --alpha 9e-6 --bandwidth 50e9 --network unet3d --size 32
judge 'Kahira, data and filter' holds "d['communication_s'] > 0"
for strategy in filter channel pipeline data+spatial; do
  groups=
  [ "$strategy" != data+spatial ] || groups='--groups 4x2'
  # shellcheck disable=SC2086  # two words, or none
  cost --strategy "$strategy" $groups --ranks 8 --samples 1000 --batch 8 --alpha 9e-6 --bandwidth 50e9 --network resnet50
  judge "Kahira, $strategy" holds "d['communication_s'] > 0 and d['memory_bytes'] > 0"
done
# 1,584 samples on nodes of four that have one each: seconds of an iteration beside what was measured.
kahira() {
  cost --strategy data+spatial --groups "$1x4" --ranks $((4 * $1)) --samples 1584 --batch "$1" --alpha 40.31e-6 --bandwidth 12.5e9 \
    --group-alpha 9e-6 --group-bandwidth 50e9 --halo-alpha 3.00011e-3 --halo-bandwidth 16e9 --spatial-layers 6 \
    --layers "$root/examples/studies/plan/kahira_cosmoflow.toml" --times "$root/examples/studies/plan/kahira_cosmoflow_times.toml"
  judge "Kahira, CosmoFlow on $1 nodes, within 25 %" holds "abs((d['compute_s'] + d['communication_s']) / (1584 // $1) / $2 - 1) < 0.25"
}
kahira 4 0.177
kahira 8 0.212
cost --strategy data --ranks 2 --samples 128 --batch 128 --alpha 9e-6 --bandwidth 50e9 --weight-bytes 90936064 --halo-alpha 1
judge 'halos of data parallelism' refuses_arguments 'data.spatial, not for data'
run "$plan" simulate --network "$root/examples/studies/plan/kahira_cosmoflow.toml" --machine "$machines/abci.toml" --batch 4 --grid sample=4,depth=4 --grid-of conv3-7:sample=16 --json
judge 'and as a network, as its authors lay it out' holds "d['ranks'] == 16 and d['redistribution_s'] > 0"
cat >"$work/layers.toml" <<'END'
[[layer]]
name = "one"
kind = "conv"
in = [8, 8, 8, 4]
out = [8, 8, 8, 16]
kernel = [3, 3, 3]
weights = 1728
[[layer]]
name = "two"
kind = "linear"
in = [1, 1, 1, 8192]
out = [1, 1, 1, 10]
weights = 81920
END
cost --strategy data --ranks 4 --samples 64 --batch 16 --alpha 1e-6 --bandwidth 1e9 --layers "$work/layers.toml"
# Four iterations, each 2 * 3 * (1 us + 83648 / 4 * 4 bytes at 1 GB/s).
judge 'layers from a file' holds "abs(d['communication_s'] - 4 * 6 * (1e-6 + 83648e-9)) < 1e-12"
sed 's/weights = 1728/weights = 9007199254740993/' "$work/layers.toml" >"$work/large.toml"
cost --strategy data --ranks 4 --samples 64 --batch 16 --alpha 1e-6 --bandwidth 1e9 --layers "$work/large.toml"
judge 'an integer beyond 2^53 is the nearest double' holds "abs(d['communication_s'] / (4 * 6 * 9007199255e-3) - 1) < 1e-9"
cat >"$work/times.toml" <<'END'
[[layer]]
name = "one"
forward = 1e-3
backward = 2e-3
update = 1e-4
[[layer]]
name = "two"
forward = 1e-3
backward = 2e-3
update = 1e-4
END
cost --strategy data --ranks 4 --samples 64 --batch 16 --alpha 1e-6 --bandwidth 1e9 --layers "$work/layers.toml" --times "$work/times.toml"
judge 'times of layers' holds "abs(d['compute_s'] - (16 * 6e-3 + 4 * 2e-4)) < 1e-12"
# A network of a file is laid out as the same one of the registry is.
python3 - "$work/alexnet.toml" <<'END'
import sys

file = open(sys.argv[1], "w")


def layer(name, kind, inputs, outputs, kernel=None, weights=None):
    file.write(f'[[layer]]\nname = "{name}"\nkind = "{kind}"\nin = {inputs}\nout = {outputs}\n')
    if kernel:
        file.write(f"kernel = [1, {kernel}, {kernel}]\n")
    if weights:
        file.write(f"weights = {weights}\n")


place, channels = 227, 3
for number, extent, out, kernel, groups, pool in (1, 55, 96, 11, 1, 27), (2, 27, 256, 5, 2, 13), (3, 13, 384, 3, 1, 0), (4, 13, 384, 3, 2, 0), (5, 13, 256, 3, 2, 6):
    shape = [1, extent, extent, out]
    layer(f"conv{number}", "conv", [1, place, place, channels], shape, kernel, kernel * kernel * channels * out // groups + out)
    layer(f"relu{number}", "activation", shape, shape)
    if pool:
        layer(f"pool{number}", "max_pool", shape, [1, pool, pool, out], 3)
    place, channels = pool or extent, out
features = place * place * channels
for number, out in (6, 4096), (7, 4096), (8, 1000):
    layer(f"fc{number}", "linear", [1, 1, 1, features], [1, 1, 1, out], weights=features * out + out)
    if number < 8:
        layer(f"relu{number}", "activation", [1, 1, 1, out], [1, 1, 1, out])
        layer(f"drop{number}", "dropout", [1, 1, 1, out], [1, 1, 1, out])
    features = out
END
of() { run "$plan" best --network "$1" --machine "$machines/perlmutter.toml" --ranks 4 --batch 64 --json; }
of alexnet
cp "$work/out" "$work/alexnet.json"
of "$work/alexnet.toml"
# That one is trained with a loss, and this one with a sum, for which its last layers may be split otherwise.
cat >"$work/alike.py" <<'END'
import json
import sys

one, other = (json.load(open(file))["plans"] for file in sys.argv[1:])
assert len(one) == len(other) > 2
for a, b in zip(one, other):
    assert abs(a["seconds_per_step"] / b["seconds_per_step"] - 1) < 0.1
convolutions = [plans[0]["choice"].split("; fc")[0] for plans in (one, other)]
assert convolutions[0] == convolutions[1] and abs(one[0]["memory_bytes"] / other[0]["memory_bytes"] - 1) < 0.01
END
alike() { succeeds && python3 "$work/alike.py" "$work/alexnet.json" "$work/out"; }
judge 'best of a layer file' alike
run "$plan" simulate --network "$work/alexnet.toml" --machine "$machines/perlmutter.toml" --batch 64 --grid sample=4
judge 'simulate a layer file' succeeds
# One of every kind; 28 is 2 * 14, and a kernel of 3 with a stride of 2 gives 13.
python3 - "$work/kinds.toml" <<'END'
import sys

file, before = open(sys.argv[1], "w"), [8, 28, 28, 4]
for kind, out, more in (("conv", [4, 14, 14, 16], "kernel = [3, 3, 3]\nweights = 1728\n"), ("batch_norm", 0, "weights = 32\n"), ("activation", 0, ""),
                        ("conv_transpose", [8, 28, 28, 8], "kernel = [2, 2, 2]\nweights = 1032\n"), ("group_norm", 0, ""), ("instance_norm", 0, ""),
                        ("layer_norm", 0, ""), ("other", 0, ""), ("max_pool", [3, 13, 13, 8], "kernel = [3, 3, 3]\n"), ("avg_pool", [1, 6, 6, 8], "kernel = [2, 2, 2]\n"),
                        ("dropout", 0, ""), ("linear", [1, 1, 1, 10], "weights = 2890\n")):
    inputs = [1, 1, 1, 288] if kind == "linear" else before
    file.write(f'[[layer]]\nname = "{kind}"\nkind = "{kind}"\nin = {inputs}\nout = {out or before}\n{more}')
    before = out or before
END
run "$plan" simulate --network "$work/kinds.toml" --machine "$machines/perlmutter.toml" --batch 4 --grid sample=2,depth=2
judge 'a layer file with every kind' succeeds
sed 's/in = \[1, 13, 13, 384\]/in = [1, 13, 13, 192]/' "$work/alexnet.toml" >"$work/broken.toml"
of "$work/broken.toml"
judge 'a layer file that is no chain' refuses "layer .* does not take what .* gives"
run "$plan" integrated --network alexnet --ranks 512 --batch 2048 --alpha 2e-6 --bandwidth 6442450944 --samples 1200000 --json
judge "Gholami's best grid" holds "d['best'] == {'pr': 32, 'pc': 16} and abs(d['speedup'] / 9.7 - 1) < 0.1"
run "$plan" integrated --network alexnet --ranks 1024 --batch 512 --alpha 2e-6 --bandwidth 6e9 --samples 1200000 --convolutions domain --json
judge 'more ranks than samples, images split' holds "d['best']['pr'] > 1"

# ---- figures of documents

run "$plan" figures --examples "$root/examples" --ranks 128 --out "$work/figures"
judge 'figures of three documents' says 'gholami-6, gholami-7, .*oyama-unet3d'
cat >"$work/figures.py" <<'END'
import csv
import pathlib
import sys

folder = pathlib.Path(sys.argv[1])
rows = {file.stem: list(csv.DictReader(file.open())) for file in folder.glob("*.csv")}
assert len(rows) == 10 and all((folder / f"{name}.png").stat().st_size > 5000 for name in rows)
assert (folder / "index.html").read_text().count("<img") == 10
for row in rows["gholami-7"]:
    assert row["grid, published"] == row["grid, ours"]
    for what, most in ("communication speed-up", 0.1), ("speed-up", 0.05):
        assert abs(float(row[f"{what}, ours"]) / float(row[f"{what}, published"]) - 1) < most
assert all(row["published"] == row["ours"] for row in rows["paradl-digits"])
epochs = {(row["network"], row["P"], row["strategy"]): row for row in rows["paradl-epochs"]}
for network, ranks, strategy in epochs:
    for other in "data+spatial", "data+filter", "filter":
        if strategy != "channel" and (network, ranks, other) in epochs:
            one, two = epochs[network, ranks, strategy], epochs[network, ranks, other]
            assert (float(one["measured"]) < float(two["measured"])) == (float(one["ours"]) < float(two["ours"]))
for row in rows["oyama-unet3d"]:
    assert 0.5 < float(row["efficiency"]) < 1.05 and float(row["GiB of a rank"]) < 16
assert [row["ranks"] for row in rows["oyama-cosmoflow"] if row["scaling"] == "weak"] == ["8", "16", "32", "64", "128"]
END
judge 'their numbers' python3 "$work/figures.py" "$work/figures"
run "$plan" figures --examples "$root/examples" --out "$work/figures"
judge 'figures are not overwritten' refuses_arguments 'has an index.html'
run "$plan" figures --examples "$work" --out "$work/no-figures"
judge 'figures need the sources' refuses_arguments 'kahira_cosmoflow'
scale() { run "$plan" simulate --network cosmoflow --size 64 --machine "$machines/summit.toml" --batch 2 --grid sample=2 --json "$@"; }
scale --scaling strong --to-ranks 8 --plot "$work/strong.png"
judge 'strong scaling' holds "[p['grid'] for p in d['points']] == ['sample=2', 'sample=2,depth=2', 'sample=2,depth=2,height=2'] and d['points'][2]['batch'] == 2"
judge 'its table' test "$(wc -l <"$work/strong.csv")" = 4
scale --scaling weak --to-ranks 8
judge 'weak scaling' holds "[(p['ranks'], p['batch']) for p in d['points']] == [(2, 2), (4, 4), (8, 8)] and d['points'][2]['efficiency'] <= 1"
scale --scaling weak --to-ranks 3
judge 'no larger grid' refuses_arguments 'no grid is larger'
scale --plot "$work/none.png"
judge 'a plot is of scaling' refuses_arguments 'are for --scaling'

# ---- plans

best() { run "$plan" best "$@"; }
best --network cosmoflow --size 512 --machine "$machines/perlmutter.toml" --ranks 2048 --batch 64 --stages 1 --json
cp "$work/out" "$work/huge.json"
judge 'a plan for 2,048 ranks' holds "len(d['plans']) == 5 and d['plans'][0]['fits'] and d['plans'][0]['seconds_per_step'] > 0"
best --network cosmoflow --size 512 --machine "$machines/perlmutter.toml" --ranks 2048 --batch 64 --plot "$work/plan.png"
judge 'the same as a table' says 'mpiexec -n 2048 build/examples/cosmoflow train --data DATA --batch 64 --grid sample='
judge 'its picture' test -s "$work/plan.png"
best --network cosmoflow --machine "$machines/perlmutter.toml" --ranks 2 --batch 2 --plot "$work/plan.png"
judge 'no picture is overwritten' refuses_arguments 'plan.png exists'
for machine in "$machines"/*.toml; do
  all=8
  [ "$(basename "$machine")" != two_cores.toml ] || all=2
  best --network unet3d --machine "$machine" --ranks "$all" --batch 8 --candidates 4 --json
  judge "a plan for $(basename "$machine")" holds "d['plans'][0]['memory_bytes'] > 0"
done
best --network unet3d --size 512 --machine "$machines/abci.toml" --ranks 2 --batch 2
judge 'what does not fit is said not to' says 'Nothing fits: the best needs'
best --network vgg16 --machine "$machines/summit.toml" --ranks 4 --batch 16 --best 100
judge 'a pipeline, its bubble and folded placement' sh -c "grep -q ' stage=4, 4 micro-batches' '$work/out' && grep -q 'Stages of plan .*its bubble.* folded placement' '$work/out'"
best --network vgg16 --machine "$machines/summit.toml" --ranks 4 --batch 16 --best 100 --stages 1 --json
judge 'no pipelines' holds "not any('stage=' in p['choice'] for p in d['plans'])"
best --network resnet50 --machine "$machines/h200_node.toml" --ranks 8 --batch 64 --precision bfloat16 --uniform
judge 'images' says '--precision bfloat16'

# ---- what this machine can do

ranks 1 "$plan" calibrate --networks cosmoflow --size 32 --minutes 1 --out "$work/one.toml"
judge 'one rank is measured' says 'written to'
ranks 2 "$plan" calibrate --networks cosmoflow --size 32 --minutes 1 --add "$work/one.toml" --out "$work/two.toml"
judge 'two are, and added' says 'allreduce'
best --network cosmoflow --size 32 --machine "$work/one.toml" --ranks 1 --batch 1 --precision float32 --json
judge 'a plan of what was measured' holds "d['plans'][0]['measured_share'] > 0.99"
best --network cosmoflow --size 32 --machine "$work/two.toml" --ranks 2 --batch 2 --precision float32 --json
judge 'on two ranks' holds "d['plans'][0]['measured_share'] > 0.5"
ranks 2 "$plan" calibrate --networks cosmoflow --size 16 --minutes 0.02 --brief --out "$work/brief.toml"
judge 'a machine file of a few lines' says 'written to'
judge 'has no times of ops' sh -c "! grep -q 'ops = ' '$work/brief.toml' && test \"\$(wc -l <'$work/brief.toml')\" -lt 60"
best --network unet3d --size 32 --machine "$work/brief.toml" --ranks 2 --batch 2 --json
judge 'and plans are made with it' holds "d['plans'][0]['measured_share'] == 0"
ranks 1 "$plan" calibrate --networks cosmoflow --size 16 --brief --add "$work/one.toml" --out "$work/both.toml"
judge 'nothing is added in brief' refuses_arguments '--brief is for a file of its own'
ranks 1 "$plan" calibrate --networks cosmoflow --size 32 --out "$work/one.toml"
judge 'no machine file is overwritten' refuses_arguments 'one.toml exists'
# The commands of plans run as they are printed.
best --network cosmoflow --size 32 --machine "$work/two.toml" --ranks 2 --batch 2 --precision float32 --json
python3 -c "import json, sys; print('\n'.join(p['command'] for p in json.load(open(sys.argv[1]))['plans']))" "$work/out" >"$work/commands"
run "$tools/universe" generate --universes 4 --out "$work/universes" --size 32
if succeeds; then
  number=0
  while read -r command; do
    number=$((number + 1))
    arguments=${command#mpiexec -n 2 build/examples/cosmoflow train --data DATA}
    # shellcheck disable=SC2086  # several words
    ranks 2 "$tools/cosmoflow" train --data "$work/universes" $arguments --epochs 1 --out "$work/trained$number"
    judge "plan $number's command trains:$arguments" succeeds
  done <"$work/commands"
  judge 'there were five' test "$number" -eq 5
  # Where the memory is too small for all plans, stages are tried.
  sed 's/^memory = [1-9].*/memory = 1e6/' "$machines/two_cores.toml" >"$work/tiny.toml"
  best --network cosmoflow --size 32 --machine "$work/tiny.toml" --ranks 2 --batch 2 --best 400 --json
  python3 -c "import json, sys; print(next(p['command'] for p in json.load(open(sys.argv[1]))['plans'] if 'stage=2' in p['choice']))" "$work/out" >"$work/commands"
  arguments=$(sed 's/.* --data DATA//' "$work/commands")
  # shellcheck disable=SC2086  # several words
  ranks 2 "$tools/cosmoflow" train --data "$work/universes" $arguments --epochs 1 --out "$work/pipelined"
  judge "a pipeline's command trains:$arguments" succeeds
else
  skip 'no universes to train on'
fi

# Where messages are slow, filters of some layers and channels of others at once.
sed 's/^bandwidth = .*/bandwidth = 1e8/' "$machines/cori_knl.toml" >"$work/slow.toml"
best --network cosmoflow --size 64 --machine "$work/slow.toml" --ranks 2 --batch 1 --json
judge 'filters and channels at once' holds "all(t in d['plans'][0]['command'] for t in ('filter=2', 'channel=2'))"
arguments=$(python3 -c "import json, sys; print(json.load(open(sys.argv[1]))['plans'][0]['command'])" "$work/out")
run "$tools/universe" generate --universes 2 --out "$work/large" --size 64
if succeeds; then
  # shellcheck disable=SC2086  # several words
  ranks 2 "$tools/cosmoflow" train --data "$work/large" ${arguments#mpiexec -n 2 build/examples/cosmoflow train --data DATA} --epochs 1 --out "$work/both"
  judge "and the command trains:${arguments#*--data DATA}" succeeds
else
  skip 'no larger universes to train on'
fi

if [ -e "$build/tests/emulation/libmpigrad.so" ] || ls "$build"/tests/emulation/libmpigrad.so.* >/dev/null 2>&1; then
  MPIGRAD_EMULATION=late
  export MPIGRAD_EMULATION
  run sh "$root/tests/emulated.sh" "$plan" calibrate --device cuda --transport threads --ranks 1 --networks cosmoflow --size 16 --minutes 0.3 --out "$work/gpu.toml"
  judge 'a GPU that the CPU plays is measured' says 'written to'
  unset MPIGRAD_EMULATION
  best --network cosmoflow --size 16 --machine "$work/gpu.toml" --ranks 1 --batch 1 --precision float32 --json
  judge 'and planned for' holds "d['plans'][0]['measured_share'] > 0.9 and d['plans'][0]['command'].endswith('--device cuda')"
else
  skip 'no GPU that the CPU plays'
fi

# ---- simulated

run "$plan" simulate --network cosmoflow --size 512 --machine "$machines/jupiter.toml" --grid sample=64,depth=8,height=2,width=2 --batch 64 --trace "$work/trace.json" --json
judge 'steps of 2,048 ranks' is_json
judge 'their trace' python3 -c "import json, sys; assert len(json.load(open(sys.argv[1]))['traceEvents']) > 100" "$work/trace.json"
run "$plan" simulate --network cosmoflow --size 512 --machine "$machines/jupiter.toml" --grid depth=8 --batch 1 --straggler 3:2
judge 'one rank is slow' says 'slowest rank  *3  '
run "$plan" simulate --network unet3d --machine "$machines/jupiter.toml" --grid sample=2,depth=4 --batch 2 --recompute --sharded-weights
judge 'weights in parts, blocks computed again' says 'recomputed, weights in parts'
# What is planned can be simulated, layers with grids of their own included: those that choose samples, space, filters and channels.
proposed() {
  python3 -c "import json, sys; print('\n'.join(p['simulation'] for p in json.load(open(sys.argv[1]))['plans']))" "$1" >"$work/proposed"
  whole=0 own=0
  while read -r command; do
    # shellcheck disable=SC2086  # several words
    run "$plan" ${command#build/examples/plan}
    succeeds || return
    whole=$((whole + 1))
    case $command in *--grid-of*) own=$((own + 1)) ;; esac
  done <"$work/proposed"
  [ "$whole" -eq 5 ] && [ "$own" -ge 1 ]
}
judge 'plans of 2,048 ranks, simulated' proposed "$work/huge.json"
best --network alexnet --machine "$machines/h200_node.toml" --ranks 8 --batch 4 --stages 1 --json
cp "$work/out" "$work/images.json"
judge 'plans of a network of images, simulated' proposed "$work/images.json"
best --network unet3d --size 32 --machine "$work/slow.toml" --ranks 4 --batch 1 --json
cp "$work/out" "$work/slow.json"
judge 'plans where messages are slow, simulated' proposed "$work/slow.json"
run "$plan" simulate --network cosmoflow --machine "$machines/jupiter.toml" --grid depth=2 --batch 2 --grid-of conv9:sample=2
judge 'a grid of a layer that there is not' refuses_arguments 'no layer with weights is called conv9'
run "$plan" simulate --network cosmoflow --machine "$machines/jupiter.toml" --grid depth=2 --batch 2 --grid-of conv5:sample=4
judge 'a grid of a layer of other ranks' refuses_arguments 'has 4 ranks'
run "$plan" simulate --network cosmoflow --machine "$machines/jupiter.toml" --grid depth=2 --batch 2 --recompute
judge 'what has no such blocks' refuses_arguments 'no blocks that are computed again'
run "$plan" simulate --network cosmoflow --machine "$machines/jupiter.toml" --grid depth=8 --batch 1 --trace "$work/trace.json"
judge 'no trace is overwritten' refuses_arguments 'trace.json exists'

best --network unet3d --size 32 --machine "$work/two.toml" --ranks 2 --batch 2 --json
judge "a U-Net's command says its window" holds "'--set data.window=32,32,32' in d['plans'][0]['command'] and '--device' not in d['plans'][0]['command']"
scans=${MPIGRAD_SHARED:-$root/../shared}/data/3d/hippocampus
if [ -d "$scans/images" ]; then
  arguments=$(python3 -c "import json, sys; print(json.load(open(sys.argv[1]))['plans'][0]['command'])" "$work/out")
  mkdir -p "$work/scans/images" "$work/scans/labels"
  for scan in $(ls "$scans/images" | head -n 4); do cp "$scans/images/$scan" "$work/scans/images/" && cp "$scans/labels/$scan" "$work/scans/labels/"; done
  # shellcheck disable=SC2086  # several words
  ranks 2 "$tools/unet3d" train --data "$work/scans" ${arguments#mpiexec -n 2 build/examples/unet3d train --data DATA} \
    --filters 8,16,32,64,80,80 --epochs 1 --out "$work/segmented"
  judge "a U-Net's command trains, of a quarter of the filters:${arguments#*--data DATA}" succeeds
else
  skip 'no volumes to train a U-Net on'
fi
best --network unet3d --machine "$machines/h200_node.toml" --ranks 2 --batch 2 --json
judge 'and where GPUs are, cuda' holds "d['plans'][0]['command'].endswith('--device cuda')"

# ---- what cannot be

best --network cosmoflow --machine "$machines/abci.toml" --ranks 2 --batch 2 --precision bfloat16
judge 'a type that the machine does not have' refuses_arguments 'has no such peak'

best --network lenet --machine "$machines/abci.toml" --ranks 2 --batch 2
judge 'an unknown network' refuses_arguments "no network 'lenet'"
best --network cosmoflow --machine "$machines/h200_node.toml" --ranks 9 --batch 9
judge 'more ranks than the machine has' refuses_arguments 'has 8'
best --network cosmoflow --size 100 --machine "$machines/abci.toml" --ranks 2 --batch 2
judge 'a size that the network cannot have' refuses_arguments 'power of two'
best --network cosmoflow --size 32 --machine "$machines/abci.toml" --ranks 4099 --batch 2
judge 'ranks that do not factor' refuses_arguments 'no grid of so many ranks'
best --network cosmoflow --machine "$work/none.toml" --ranks 2 --batch 2
judge 'a machine file that is not there' refuses_arguments 'none.toml'
sed 's/^memory = .*/memory = -1/' "$machines/abci.toml" >"$work/bad.toml"
best --network cosmoflow --machine "$work/bad.toml" --ranks 2 --batch 2
judge 'a bad machine file' refuses_arguments 'bad.toml:[0-9]*: .*memory'
run "$plan" simulate --network cosmoflow --machine "$machines/abci.toml" --grid depth=3,depth=2 --batch 1
judge 'an impossible grid' refuses_arguments 'depth twice'
cost --strategy data+filter --groups 3x2 --ranks 8 --samples 10 --batch 8 --alpha 1e-6 --bandwidth 1e9 --network resnet50
judge 'groups that do not multiply' refuses_arguments '3x2 are 6 ranks'
run "$plan"
judge 'no command' refuses_arguments 'a command is missing: best'
run "$plan" best --help
judge 'help' says '--machine'
summary
