#!/bin/sh
# Runs the halo tool as a user does, on plans worked out by hand. Prints `failed: NAME` for each failed test and ends with
# `N passed, M failed, K skipped`. tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher

tools=$build/examples
. "$root/tests/suite.sh"

needs 'the tools are' "$tools/halo"

# ---- halo: plans worked out by hand
# plan_is INPUT_BLOCKS OUTPUT_BLOCKS RANK...: what was printed. A rank is `null` or `left right pad_left pad_right [crop_left
# crop_right] | from:count ...`.
plan_is() {
  succeeds && python3 - "$work/out" "$@" <<'END'
import json, sys
path, inputs, outputs, *ranks = sys.argv[1:]
numbers = lambda text, cut=None: [int(word) for word in text.split(cut)]
def rank(text):
    if text == "null": return None
    head, tail = text.split("|")
    values = numbers(head)
    names = ["left", "right", "pad_left", "pad_right"] + (["crop_left", "crop_right"] if len(values) == 6 else [])
    messages = [numbers(word, ":") for word in tail.split()]
    return {**dict(zip(names, values)), "receive": [{"from": r, "count": c} for r, c in messages]}
expected = {"input_blocks": numbers(inputs), "output_blocks": numbers(outputs), "ranks": [rank(text) for text in ranks]}
found = json.load(open(path))
if found != expected or list(found) != list(expected): sys.exit(f"{found}\nis not\n{expected}")
END
}
halo() { run "$tools/halo" "$@"; }
halo --extent 10 --ranks 2 --kernel 5 --stride 2 --padding 2 --dilation 1 --json
judge 'halo: two ranks' plan_is '5 5' '3 2' '0 2 2 0 | 1:2' '1 0 0 1 | 0:1'
halo --extent 7 --ranks 3 --kernel 3 --padding 1 --input-blocks 5,0,2 --json
judge 'halo: uneven blocks' plan_is '5 0 2' '3 2 2' '0 -1 1 0 |' '3 1 0 0 | 0:3 2:1' '1 0 0 1 | 0:1'
halo --extent 10 --ranks 2 --kernel 1 --stride 4 --json
judge 'halo: a stride above the kernel' plan_is '5 5' '2 1' '0 0 0 0 |' '-3 -1 0 0 |'
halo --extent 6 --ranks 3 --kernel 1 --stride 5 --outputs centred --json
judge 'halo: a rank without outputs' plan_is '2 2 2' '1 0 1' '0 -1 0 0 |' null '-1 0 0 0 |'
halo --extent 6 --ranks 3 --kernel 1 --stride 5 --json
judge 'halo: nothing of the own block' plan_is '2 2 2' '1 1 0' '0 -1 0 0 |' '-3 2 0 0 | 2:1' null
halo --extent 8 --ranks 4 --kernel 7 --padding 3 --json
judge 'halo: over several neighbours' plan_is '2 2 2 2' '2 2 2 2' '0 3 3 0 | 1:2 2:1' '2 3 1 0 | 0:2 2:2 3:1' \
  '3 2 0 1 | 0:1 1:2 3:2' '3 0 0 3 | 1:1 2:2'
halo --extent 9 --ranks 3 --kernel 3 --dilation 2 --json
judge 'halo: dilation' plan_is '3 3 3' '2 2 1' '0 3 0 0 | 1:3' '1 2 0 0 | 0:1 2:2' '2 0 0 0 | 1:2'
halo --extent 9 --ranks 3 --kernel 3 --dilation 2 --outputs centred --json
judge 'halo: dilation, centred' plan_is '3 3 3' '1 3 1' '0 2 0 0 | 1:2' '2 2 0 0 | 0:2 2:2' '2 0 0 0 | 1:2'
halo --extent 2 --ranks 4 --kernel 1 --padding 3 --json
judge 'halo: nothing but padding' plan_is '1 1 0 0' '2 2 2 2' '0 -1 2 0 |' '1 -1 1 0 | 0:1' '1 0 0 1 | 1:1' '0 0 0 2 |'
halo --extent 3 --ranks 2 --kernel 3 --stride 2 --padding 1 --transposed --output-padding 1 --json
judge 'halo: transposed, with output padding' plan_is '2 1' '3 3' '0 0 0 0 1 1 |' '1 0 0 0 2 0 | 0:1'
halo --extent 2 --ranks 2 --kernel 1 --stride 3 --transposed --output-padding 2 --json
judge 'halo: transposed, with zeros added' plan_is '1 1' '3 3' '0 0 0 0 0 -2 |' '0 0 0 0 0 -2 |'
halo --extent 10 --ranks 2 --kernel 5 --stride 2 --padding 2
judge 'halo: a sentence' says '^rank 1 owns inputs 5-9, makes outputs 3-4, needs inputs 4-9 (left 1, right 0)'
judge 'halo: a picture' says '^rank 1    \.\.\.\.o#####p$'

# refused_plan WHAT OPTIONS...
refused_plan() {
  what=$1
  shift
  halo --json "$@"
  judge "halo refuses $*" refuses_arguments "^halo: .*$what"
}
refused_plan '--extent is required' --ranks 2 --kernel 3
refused_plan '--ranks is required' --extent 10 --kernel 3
refused_plan '--kernel is required' --extent 10 --ranks 2
for bad in 0 -1 1000000001 99999999999999999999 two 2.5 ''; do
  refused_plan '--extent' --ranks 2 --kernel 3 --extent "$bad"
  refused_plan '--ranks' --extent 10 --kernel 3 --ranks "$bad"
  refused_plan '--kernel' --extent 10 --ranks 2 --kernel "$bad"
  refused_plan '--stride' --extent 10 --ranks 2 --kernel 3 --stride "$bad"
  refused_plan '--dilation' --extent 10 --ranks 2 --kernel 3 --dilation "$bad"
done
for bad in -1 two 2.5; do
  refused_plan '--padding' --extent 10 --ranks 2 --kernel 3 --padding "$bad"
  refused_plan '--output-padding' --extent 10 --ranks 2 --kernel 3 --transposed --output-padding "$bad"
  refused_plan '--input-blocks' --extent 10 --ranks 2 --kernel 3 --input-blocks "$bad,11"
done
for bad in '' , 10 5,,5 5,5, ' 5,5' 5x5 99999999999999999999,0; do
  refused_plan '--input-blocks' --extent 10 --ranks 2 --kernel 3 --input-blocks "$bad"
done
refused_plan '2 ranks is needed, not 3 blocks' --extent 10 --ranks 2 --kernel 3 --input-blocks 5,4,1
refused_plan 'hold 9 inputs together, --extent is 10' --extent 10 --ranks 2 --kernel 3 --input-blocks 5,4
refused_plan 'balanced' --extent 10 --ranks 2 --kernel 3 --outputs other
refused_plan '--transposed' --extent 10 --ranks 2 --kernel 3 --output-padding 0
refused_plan 'dilation, 2, not 2' --extent 10 --ranks 2 --kernel 3 --stride 2 --transposed --output-padding 2
refused_plan 'no outputs: the window covers 13 inputs, with padding there are 12' --extent 10 --ranks 2 --kernel 7 --dilation 2 \
  --padding 1
refused_plan 'no outputs' --extent 3 --ranks 2 --kernel 1 --padding 2 --transposed
refused_plan 'more than 10000000 messages' --extent 5001 --ranks 5001 --kernel 5001 --padding 2500
refused_plan 'expected' --extent 10 --ranks 2 --kernel 3 more
refused_plan '--extent' --extent 010 --ranks 2 --kernel 3

# What did not arrive was not printed.
for option in --json --transposed --help; do
  full "$tools/halo" --extent 10 --ranks 2 --kernel 3 $option
  judge "halo $option to a full device fails" refuses_full
done
# More than one buffer of it.
full "$tools/halo" --extent 4000 --ranks 1000 --kernel 3 --json
judge 'halo: much to a full device fails' refuses_full

summary
