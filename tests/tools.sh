#!/bin/sh
# Runs the command-line tools as a user does, on small universes: what they print, write and refuse. Prints `failed: NAME` for
# each failed test and ends with `N passed, M failed, K skipped`. tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
. "$root/tests/packages.sh"
build=${MPIGRAD_BUILD:-$build}
choose_launcher

tools=$build/examples
shared=${MPIGRAD_SHARED:-$root/../shared}
. "$root/tests/suite.sh"

if [ ! -x "$tools/cosmoflow" ]; then
  printf 'skipped: 1 the tools are not built\n0 passed, 0 failed, 1 skipped\n'
  exit 0
fi

# ---- conditions
# Not 0, and not by a signal or the time limit.
refuses() { [ "$status" -gt 0 ] && [ "$status" -lt 124 ] && grep -q -e "$1" "$work/err"; }
is_json() { succeeds && python3 -m json.tool "$work/out" >/dev/null; }
# key KEY VALUE: a number in the JSON document printed.
key() { is_json && grep -q "^ *\"$1\": $2,\{0,1\}\$" "$work/out"; }
# same_losses FILE EPOCH FILE EPOCH: training losses of two runs, to 1e-9 relative.
same_losses() {
  awk -F, -v first="$2" -v second="$4" '
    FNR == 1 { file++ }
    file == 1 && $1 == first { a = $2 }
    file == 2 && $1 == second { b = $2 }
    END { d = a - b; if (d < 0) d = -d; exit !(a > 0 && b > 0 && d <= 1e-9 * a) }' "$1" "$3"
}
no_file() { [ ! -e "$1" ]; }
# Exit 1 everywhere with one line for all ranks, which matches: nobody was aborted.
refuses_once() { [ "$status" -eq 1 ] && [ "$(wc -l <"$work/err")" -eq 1 ] && grep -q -e "$1" "$work/err"; }
# The first column of a table, as one line.
epochs() { [ "$(sed 1d "$1" | cut -d, -f1 | tr '\n' ' ')" = "$2" ]; }
# patch FILE FORMAT OLD... -- NEW...: replaces the numbers OLD, which must be there, by NEW; FORMAT is Python's for one of them.
patch() {
  python3 - "$@" <<'END'
import struct, sys
path, form, *rest = sys.argv[1:]
cut = rest.index("--")
pack = lambda words: b"".join(struct.pack("<" + form, (float if form == "f" else int)(word)) for word in words)
content = open(path, "rb").read()
old, new = pack(rest[:cut]), pack(rest[cut + 1:])
if old not in content: sys.exit("nothing to patch")
open(path, "wb").write(content.replace(old, new))
END
}
unchanged() { [ "$(cksum <"$1")" = "$2" ]; }

# ---- help and arguments
for tool in universe cosmoflow classify halo adjoint; do
  run "$tools/$tool" --help
  judge "$tool --help" says 'Usage: '
  run "$tools/$tool" --no-such-option
  judge "$tool refuses an unknown option" refuses_arguments "$tool: "
done
run "$tools/cosmoflow"
judge 'cosmoflow without data' refuses_arguments '--data'
run "$tools/cosmoflow" --data x --epochs two
judge 'cosmoflow refuses a number that is none' refuses_arguments '--epochs'
run "$tools/cosmoflow" --data x --variant other
judge 'cosmoflow refuses an unknown variant' refuses_arguments 'hybrid'

for bad in nan 1e999 -1; do
  for option in --keep --clip-norm --warm-up --milestones --learning-rate --decay-factor --weight-decay --momentum \
    --test-fraction --norm-momentum; do
    run "$tools/cosmoflow" --data x "$option" "$bad"
    judge "cosmoflow refuses $option $bad" refuses_arguments "^cosmoflow: $option: .\{10,90\}$"
  done
  run "$tools/universe" generate --out "$work/refused" --cell "$bad"
  judge "universe refuses --cell $bad" refuses_arguments '^universe: --cell: '
  run "$tools/universe" displace --delta "$work/a:b" --out "$work/refused" --box "$bad"
  judge "universe refuses --box $bad" refuses_arguments '^universe: --box: '
  for option in --tcmb --omega-m --omega-b --sigma8 --h0 --redshift --kmin --kmax --k; do
    run "$tools/universe" power "$option" "$bad"
    judge "universe refuses $option $bad" refuses_arguments "^universe: $option"
  done
done
run "$tools/universe" power --ns nan
judge 'universe refuses --ns nan' refuses_arguments '^universe: --ns: '
run "$tools/universe" power --redshift 1e300
judge 'universe refuses a redshift beyond computing' refuses_arguments 'redshift 1e+300'
run "$tools/universe" power --h0 1e300
judge 'universe refuses what has no power spectrum' refuses_arguments 'no power spectrum'
for option in --epochs --milestones --warm-up; do
  run "$tools/cosmoflow" --data x "$option" 9223372036854775807
  judge "cosmoflow refuses steps beyond counting in $option" refuses_arguments '1000000000'
done

# ---- descriptions
run "$tools/cosmoflow" --describe --json
judge 'describe: hybrid' key parameters 9437636
run "$tools/cosmoflow" --describe --json --batch-norm --size 512 --grid sample=2,depth=16,height=8,width=8
judge 'describe: batch norm on 2,048 ranks' key parameters 9439652
run "$tools/cosmoflow" --describe --json --variant mlperf --size 128 --dtype float64
judge 'describe: mlperf' key parameters 8907556
run "$tools/cosmoflow" --describe --size 64
judge 'describe: table' says '^conv7 .*1769472'
run "$tools/cosmoflow" --describe --size 100
judge 'describe refuses an extent' refuses_arguments 'power of two'
run "$tools/cosmoflow" --describe --size 64 --grid depth=65
judge 'describe refuses more ranks than planes' refuses_arguments '65 ranks along depth'
run "$tools/cosmoflow" --describe --grid depht=2
judge 'describe refuses an unknown axis' refuses_arguments "no axis 'depht'"
run "$tools/cosmoflow" --describe --grid depth=128,height=128,width=128
judge 'describe refuses millions of ranks' refuses_arguments '2097152 ranks'
run "$tools/classify" --describe --json --size 64 --grid depth=2
judge 'describe: classifier' is_json

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
refused_plan 'dilation, 2, is needed, not 2' --extent 10 --ranks 2 --kernel 3 --stride 2 --transposed --output-padding 2
refused_plan 'no outputs: the window covers 13 inputs, with padding there are 12' --extent 10 --ranks 2 --kernel 7 --dilation 2 \
  --padding 1
refused_plan 'no outputs' --extent 3 --ranks 2 --kernel 1 --padding 2 --transposed
refused_plan 'more than 10000000 messages' --extent 5001 --ranks 5001 --kernel 5001 --padding 2500
refused_plan 'expected' --extent 10 --ranks 2 --kernel 3 more

# ---- adjoint: values worked out by hand
# result_is OPTIONS: the document printed, with options y=... xbar=... error=small|null hessian=...; fields as on the command
# line, null for what is not finite.
result_is() {
  succeeds && python3 - "$work/out" "$@" <<'END'
import json, sys
path, *options = sys.argv[1:]
expected = {"error": "small", **dict(option.split("=", 1) for option in options)}
number = lambda word: None if word == "null" else float(word)
fields = lambda text: [[number(word) for word in field.split(",") if word] for field in text.split(";")]
def close(a, b):
    if isinstance(a, list): return isinstance(b, list) and len(a) == len(b) and all(map(close, a, b))
    if a is None or b is None: return a is b
    return abs(a - b) <= 1e-12 * max(1, abs(b))
found = json.load(open(path))
good = list(found) == ["op", "ranks", "y", "xbar", "adjoint_error"] + ["hessian"] * ("hessian" in expected)
good = good and found["ranks"] == len(found["y"]) == len(found["xbar"])
good = good and close(found["y"], fields(expected["y"])) and close(found["xbar"], fields(expected["xbar"]))
error = found["adjoint_error"]
good = good and (error is None if expected["error"] == "null" else error is not None and 0 <= error < 1e-12)
good = good and ("hessian" not in expected or close(found["hessian"], number(expected["hessian"])))
if not good: sys.exit(f"{found}\nis not\n{expected}")
END
}
# calculates 'EXPECTED...' OP OPTIONS...
calculates() {
  expected=$1
  shift
  run "$tools/adjoint" "$@" --json
  # shellcheck disable=SC2086  # several options of result_is
  judge "adjoint $*" result_is $expected
}
# three 'EXPECTED...' OP OPTIONS...: three ranks, two numbers each; the sum of the cotangents is 7,70.
three() {
  expected=$1
  shift
  calculates "$expected" "$@" --ranks 3 --x '2,-1;3,4;-5,4' --ybar '1,10;2,20;4,40'
}
third=2.3333333333333335
for op in allreduce iallreduce; do
  three 'y=0,7;0,7;0,7 xbar=7,70;7,70;7,70' $op
  three "y=0,$third;0,$third;0,$third xbar=$third,23.333333333333332;$third,23.333333333333332;$third,23.333333333333332" \
    $op --reduce avg
  three 'y=3,4;3,4;3,4 xbar=0,0;7,35;0,35 error=null' $op --reduce max
  three 'y=3,4;3,4;3,4 xbar=0,0;7,70;0,0 error=null' $op --reduce max --ties first
  three 'y=-5,-1;-5,-1;-5,-1 xbar=0,70;0,0;7,0' $op --reduce min
  three 'y=-30,-16;-30,-16;-30,-16 xbar=-105,1120;-70,-280;42,-280' $op --reduce prod
done
for op in reduce ireduce; do
  three 'y=0,0;0,7;0,0 xbar=2,20;2,20;2,20' $op --root 1
done
three "y=0,0;0,0;0,$third xbar=1.3333333333333333,13.333333333333334;1.3333333333333333,13.333333333333334;\
1.3333333333333333,13.333333333333334" reduce --root 2 --reduce avg
three 'y=0,0;3,4;0,0 xbar=0,0;2,10;0,10 error=null' reduce --root 1 --reduce max
three 'y=0,0;3,4;0,0 xbar=0,0;2,20;0,0 error=null' reduce --root 1 --reduce max --ties first
three 'y=-5,-1;0,0;0,0 xbar=0,10;0,0;1,0' reduce --reduce min
three 'y=-30,-16;0,0;0,0 xbar=-15,160;-10,-40;6,-40' reduce --reduce prod
for op in bcast ibcast; do
  three 'y=3,4;3,4;3,4 xbar=0,0;7,70;0,0' $op --root 1
done
calculates 'y=;;2,-1,3,4,-5,4 xbar=1,2;3,4;5,6' gather --root 2 --ranks 3 --x '2,-1;3,4;-5,4' --ybar ';;1,2,3,4,5,6'
calculates 'y=1,2,3;; xbar=5;;6,7' gather --counts 1,0,2 --ranks 3 --x '1;;2,3' --ybar '5,6,7;;'
calculates 'y=1,2;3,4 xbar=5,6,7,8;' scatter --ranks 2 --x '1,2,3,4;' --ybar '5,6;7,8'
calculates 'y=1;;2,3 xbar=;5,7,9;' scatter --root 1 --counts 1,0,2 --ranks 3 --x ';1,2,3;' --ybar '5;;7,9'
for op in allgather iallgather; do
  calculates 'y=1,2;1,2 xbar=11;22' $op --ranks 2 --x '1;2' --ybar '1,2;10,20'
  calculates 'y=1,2,3;1,2,3;1,2,3 xbar=111;;222,333' $op --counts 1,0,2 --ranks 3 --x '1;;2,3' \
    --ybar '1,2,3;10,20,30;100,200,300'
done
# blocks 'EXPECTED...' OP OPTIONS...: the same x in blocks of 1, 0 and 1.
blocks() {
  expected=$1
  shift
  calculates "$expected" "$@" --counts 1,0,1 --ranks 3 --x '2,-1;3,4;-5,4' --ybar '5;;9'
}
for op in reduce_scatter ireduce_scatter; do
  blocks 'y=0;;7 xbar=5,9;5,9;5,9' $op
  calculates 'y=4;6 xbar=5,9;5,9' $op --ranks 2 --x '1,2;3,4' --ybar '5;9'
done
blocks "y=0;;$third xbar=1.6666666666666667,3;1.6666666666666667,3;1.6666666666666667,3" reduce_scatter --reduce avg
blocks 'y=3;;4 xbar=0,0;5,4.5;0,4.5 error=null' reduce_scatter --reduce max
blocks 'y=3;;4 xbar=0,0;5,9;0,0 error=null' reduce_scatter --reduce max --ties first
blocks 'y=-5;;-1 xbar=0,9;0,0;5,0' reduce_scatter --reduce min
blocks 'y=-30;;-16 xbar=-75,144;-50,-36;30,-36' reduce_scatter --reduce prod
for op in alltoall ialltoall; do
  calculates 'y=1,3;2,4 xbar=10,30;20,40' $op --ranks 2 --x '1,2;3,4' --ybar '10,20;30,40'
  calculates 'y=1;2,3,4 xbar=10,20,30;40' $op --counts '1,2;0,1' --ranks 2 --x '1,2,3;4' --ybar '10;20,30,40'
done
three 'y=2,-1;5,3;0,7 xbar=7,70;6,60;4,40' scan
three 'y=2,-1;6,-4;-30,-16 xbar=-53,730;-36,-180;24,-160' scan --reduce prod
three 'y=2,-1;3,4;3,4 xbar=1,10;6,40;0,20 error=null' scan --reduce max
three 'y=2,-1;3,4;3,4 xbar=1,10;6,60;0,0 error=null' scan --reduce max --ties first
three 'y=2,-1;2,-1;-5,-1 xbar=3,70;0,0;4,0' scan --reduce min
three 'y=0,0;2,-1;5,3 xbar=6,60;4,40;0,0' exscan
three 'y=1,1;2,-1;6,-4 xbar=14,180;8,-40;0,0' exscan --reduce prod
three 'y=null,null;2,-1;3,4 xbar=2,20;4,40;0,0' exscan --reduce max
three 'y=null,null;2,-1;2,-1 xbar=6,60;0,0;0,0' exscan --reduce min
# The two who share the maximum of the prefix do not attain that of all.
calculates 'y=1;1;2 xbar=2;1;4 error=null' scan --reduce max --ranks 3 --x '1;1;2' --ybar '1;2;4'
calculates 'y=2;2;2 xbar=0;0;7' allreduce --reduce max --ranks 3 --x '1;1;2' --ybar '1;2;4'
calculates 'y=null;null xbar=3;3 error=null' allreduce --ranks 2 --x 'inf;1' --ybar '1;2'

for op in send recv isend irecv sendrecv; do
  calculates 'y=4,5,6;1,2; xbar=4,5;0;1,2,3' $op --dest 1,-1,0 --ranks 3 --x '1,2;3;4,5,6' --ybar '1,2,3;4,5;'
  calculates 'y=4,5,6;1,2;0,0,0 xbar=4,5;0;1,2,3' $op --source 2,0,-1 --dest 1,-1,0 --ranks 3 --x '1,2;3;4,5,6' \
    --ybar '1,2,3;4,5;7,8,9'
  calculates 'y=3 xbar=5' $op --source 0 --ranks 1 --x 3 --ybar 5
done
three 'y=-5,4;2,-1;3,4 xbar=2,20;4,40;1,10' sendrecv_replace --dest 1,2,0
three 'y=-5,4;2,-1;3,4 xbar=2,20;4,40;1,10' shift
three 'y=3,4;-5,4;2,-1 xbar=4,40;1,10;2,20' shift --by -4
calculates 'y=4;1,2,3; xbar=2,3,4;;1' shift --ranks 3 --x '1,2,3;;4' --ybar '1;2,3,4;'

calculates 'y=3,4;1,2;1,2 xbar=6,60;1,10;0,0' neighbor_allgather --graph '1,2;0;' --ranks 3 --x '1,2;3,4;5,6' \
  --ybar '1,10;2,20;4,40'
calculates 'y=2,3;1;2,3 xbar=5;;11,22' neighbor_allgather --graph '1;2;0,2' --counts 1,0,2 --ranks 3 --x '1;;2,3' \
  --ybar '10,20;5;1,2'
calculates 'y=3;1;2 xbar=6,7;5;' neighbor_alltoall --graph '1,2;0;' --ranks 3 --x '1,2;3;' --ybar '5;6;7'
calculates 'y=4;1,2;3 xbar=6,7,8;5;' neighbor_alltoall --graph '1,2;0;' --counts '2,1;1;' --ranks 3 --x '1,2,3;4;' \
  --ybar '5;6,7;8'
# A rank to which nobody sends.
calculates 'y=;1 xbar=5;0' neighbor_allgather --graph '1;' --ranks 2 --x '1;2' --ybar ';5'
calculates 'y=;1,2 xbar=5,6;' neighbor_alltoall --graph '1,1;' --ranks 2 --x '1,2;' --ybar ';5,6'
calculates 'y=3;3; xbar=0,0;12;0' get --target 1,1,-1 --ranks 3 --x '1,2;3;4' --ybar '5;7;'
calculates 'y=4,0;0;1,2 xbar=40,50;0;10' put --target 2,-1,0 --ranks 3 --x '1,2;3;4' --ybar '10,20;30;40,50'
three 'y=0,7;0,0;0,0 xbar=1,10;1,10;1,10' accumulate --target 0,0,0

calculates 'y=0,1,2;1,2,3;2,3,0 xbar=12;124;240' halo --ranks 3 --x '1;2;3' --ybar '1,10,100;2,20,200;4,40,400'
calculates 'y=3,1,2;1,2,3;2,3,1 xbar=412;124;241' halo --periodic --ranks 3 --x '1;2;3' --ybar '1,10,100;2,20,200;4,40,400'
calculates 'y=0,0,1,2,3;0,1,2,3;0,1,2,3,0,0 xbar=7;;10,13' halo --width 2 --ranks 3 --x '1;;2,3' \
  --ybar '1,2,3,4,5;1,2,3,4;1,2,3,4,5,6'
calculates 'y=2,1,2,1,2,1,2,1 xbar=170,85' halo --width 3 --periodic --ranks 1 --x '1,2' --ybar '1,2,4,8,16,32,64,128'
calculates 'y=2,1,2,1,2,1,2;1,2,1,2,1,2,1 xbar=172;136' halo --width 3 --periodic --ranks 2 --x '1;2' \
  --ybar '1,2,3,4,5,6,7;10,20,30,40,50,60,70'
calculates 'y=1;2 xbar=5;6' halo --width 0 --periodic --ranks 2 --x '1;2' --ybar '5;6'

calculates 'y=1,2;1,2;1,2 xbar=7,70;7,70;7,70' replicate --ranks 3 --x '1,2;1,2;1,2' --ybar '1,10;2,20;4,40'
calculates 'y=1;;2 xbar=5,7;5,7;5,7' shard --counts 1,0,1 --ranks 3 --x '1,2' --ybar '5;;7'
calculates 'y=1,2;3;4 xbar=5,6,7,8;5,6,7,8;5,6,7,8' shard --ranks 3 --x '1,2,3,4' --ybar '5,6;7;8'
calculates 'y=0,7;0,7;0,7 xbar=1,10;1,10;1,10' allreduce_invariant --ranks 3 --x '2,-1;3,4;-5,4' --ybar '1,10;1,10;1,10'
calculates 'y=1,2,3;1,2,3;1,2,3 xbar=5;;6,7' allgather_invariant --ranks 3 --x '1;;2,3' --ybar '5,6,7'

# Second derivatives of 3 x_0 x_1 x_2, and of what reduce and scan make of it.
product() {
  expected=$1
  shift
  calculates "$expected" "$@" --reduce prod --ranks 3
}
product 'y=0;0;0 xbar=18;0;0 hessian=9' allreduce --x '0;2;3' --ybar '1;1;1' --second 0,1
product 'y=0;0;0 xbar=18;0;0 hessian=0' allreduce --x '0;2;3' --ybar '1;1;1' --second 1,2
product 'y=0;0;0 xbar=18;0;0 hessian=0' allreduce --x '0;2;3' --ybar '1;1;1' --second 0,0
product 'y=0;0;0 xbar=0;0;0 hessian=9' allreduce --x '0;0;3' --ybar '1;1;1' --second 1,0
product 'y=0;0;0 xbar=0;0;0 hessian=0' iallreduce --x '0;0;0' --ybar '1;1;1' --second 1,0
product 'y=0;0;0 xbar=30;0;0 hessian=15' reduce --root 1 --x '0;2;3' --ybar '7;5;7' --second 0,1
product 'y=0;0;0 xbar=621;0;0 hessian=310' scan --x '0;2;3' --ybar '1;10;100' --second 0,1
product 'y=1;0;0 xbar=210;0;0 hessian=100' exscan --x '0;2;3' --ybar '1;10;100' --second 0,1
calculates 'y=2;2 xbar=0;3 hessian=0' allreduce --reduce max --ranks 2 --x '1;2' --ybar '1;2' --second 1,1
calculates 'y=3;3 xbar=4;4 hessian=0' allreduce_invariant --ranks 2 --x '1;2' --ybar '4' --second 0,1

adjoint() { run "$tools/adjoint" "$@"; }
adjoint gather --counts 1,0,2 --ranks 3 --x '1;;2,3' --ybar '5,6,7;;'
judge 'adjoint: a matrix' says '^  y_0 | 1   |     | \. \. |$'
judge 'adjoint: its transpose' says '^         | \. \. 1  |        |        |$'
judge 'adjoint: what the adjoint is' says '^The adjoint of gather is MPI_Scatter'
adjoint exscan --reduce max --ranks 2 --x '1;2' --ybar '1;2'
judge 'adjoint: infinities in the table' says '^0 *1 *null *1 *2$'
judge 'adjoint: no matrix of a maximum' says 'not linear'
adjoint allreduce --ranks 17 --x '1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1' --ybar '1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1'
judge 'adjoint: no large matrix' says 'not shown'
ranks 3 "$tools/adjoint" allreduce --reduce max --x '2,-1;3,4;-5,4' --ybar '1,10;2,20;4,40' --json
judge 'adjoint under the launcher: allreduce' result_is 'y=3,4;3,4;3,4' 'xbar=0,0;7,35;0,35' error=null
ranks 2 "$tools/adjoint" isend --transport mpi --ranks 2 --dest 1,0 --x '1,2;3' --ybar '5;6,7' --json
judge 'adjoint under the launcher: isend' result_is 'y=3;1,2' 'xbar=6,7;5'
ranks 2 "$tools/adjoint" halo --transport mpi --width 3 --periodic --x '1;2' --ybar '1,2,3,4,5,6,7;10,20,30,40,50,60,70' --json
judge 'adjoint under the launcher: halo' result_is 'y=2,1,2,1,2,1,2;1,2,1,2,1,2,1' 'xbar=172;136'

# refused_call WHAT OP OPTIONS...
refused_call() {
  what=$1
  shift
  adjoint "$@" --json
  judge "adjoint refuses $*" refuses_arguments "^adjoint: .*$what"
}
# refused_pair WHAT OP OPTIONS...: of two ranks, with two numbers each
refused_pair() {
  refused_call "$@" --ranks 2 --x '1,2;3,4' --ybar '1,2;3,4'
}
refused_call 'op is required' --ranks 2 --x '1;2' --ybar '1;2'
refused_call '--x is required' allreduce --ranks 2 --ybar '1;2'
refused_call '--ybar is required' allreduce --ranks 2 --x '1;2'
refused_pair "'allredce' is none of the operations allreduce, reduce" allredce
refused_pair 'allgather with --counts' allgatherv
refused_pair 'MPI_Allreduce' MPI_Allreduce
for bad in '1' '1;2;3' '1;two' '1;nan' '1;1e999' '1,;2' '1;2x' '1,,2;3' ''; do
  refused_call '--x' allreduce --ranks 2 --x "$bad" --ybar '1;2'
  refused_call '--ybar' allreduce --ranks 2 --x '1;2' --ybar "$bad"
done
refused_call 'as many numbers from every rank, not 1, 2' allreduce --ranks 2 --x '1;2,3' --ybar '1;2'
refused_call 'rank 1 has 2 numbers, but allreduce gives it 1' allreduce --ranks 2 --x '1;2' --ybar '1;2,3'
refused_pair '--reduce' allreduce --reduce median
refused_pair '--reduce' bcast --reduce max
refused_pair '--reduce' ireduce_scatter --reduce prod
refused_pair 'no average' scan --reduce avg
refused_pair '--ties' allreduce --reduce max --ties last
refused_pair '--ties' bcast --ties first
for bad in 2 -1 one 1.5 99999999999999999999; do
  refused_pair '--root' bcast --root "$bad"
done
refused_pair '--root' allreduce --root 1
refused_pair '--counts: bcast does not take it' bcast --counts 2,2
for bad in 2 2,1 2,2,0 2,-2 2,two '' 2,99999999999999999999; do
  refused_pair '--counts' allgather --counts "$bad"
  refused_pair '--counts' reduce_scatter --counts "$bad"
  refused_pair '--counts' alltoall --counts "$bad"
done
refused_pair '--counts' alltoall --counts '2,0;1'
refused_pair 'rank 1 sends 3 numbers in all, x has 2' alltoall --counts '1,1;1,2'
refused_call 'v form' alltoall --ranks 2 --x '1,2,3;1,2,3' --ybar '1,2,3;1,2,3'
refused_call 'v form' allgather --ranks 2 --x '1;1,2' --ybar '1,2,3;1,2,3'
refused_call '3 numbers in 2 equal blocks' scatter --ranks 2 --x '1,2,3;' --ybar '1,2;3'
refused_call 'empty field off the root' scatter --ranks 2 --x '1,2;3' --ybar '1;2'
refused_call '--width' halo --ranks 1 --x 1 --ybar 1,2,3 --width -1
refused_call '--width' halo --ranks 1 --x 1 --ybar 1,2,3 --width 1001
refused_call 'rank 0 has 1 numbers, but halo gives it 3' halo --ranks 1 --x 1 --ybar 1
refused_call '--periodic' halo --ranks 1 --x '' --ybar 1,2 --periodic
refused_pair '--width' shift --width 2
refused_pair '--periodic' allreduce --periodic
refused_pair '--by' shift --by two
refused_pair '--by' halo --by 2
refused_pair '--dest' send
refused_pair '--dest' allreduce --dest 1,0
refused_pair '--dest: 2 is not one of 2 ranks' send --dest 2,0
refused_pair '--dest' send --dest -2,0
refused_pair 'both name rank 1' send --dest 1,1
refused_pair '--source: rank 0 would receive from 0, but by --dest rank 1' sendrecv --dest 1,0 --source 0,1
refused_pair 'one rank for each of the 2 ranks' isend --dest 1
refused_call 'sizes may not differ' sendrecv_replace --dest 1,0 --ranks 2 --x '1;2,3' --ybar '1,2;3'
refused_pair '--graph' neighbor_allgather
refused_pair '--graph: 2 is not one of 2 ranks' neighbor_allgather --graph '2;0'
refused_pair '--graph: one field' neighbor_allgather --graph '1,0'
refused_call 'no equal blocks' neighbor_alltoall --graph '0,1;' --ranks 2 --x '1,2,3;' --ybar '1;2'
refused_pair '--counts: row 0 needs 1 numbers, not 2' neighbor_alltoall --graph '1;0' --counts '1,1;2'
refused_pair '--target' get
refused_pair '--target: 5 is not' get --target 5,0
refused_pair 'both put into the window of rank 0' put --target 0,0
refused_pair 'ranks 0 and 1 differ' replicate
refused_pair 'ranks 0 and 1 differ' allreduce_invariant
for bad in 0 0,2 0,1,1 a,b -1,0 ''; do
  refused_call '--second' allreduce --reduce prod --ranks 2 --x '1;2' --ybar '1;2' --second "$bad"
done
refused_pair '--second: for one number per rank' allreduce --second 0,1
refused_pair 'expected' allreduce more
refused_call '--ranks' allreduce --ranks 257 --x 1 --ybar 1
for bad in 0 -1 two ''; do
  adjoint allreduce --ranks "$bad" --x 1 --ybar 1
  judge "adjoint refuses --ranks $bad" refuses_arguments '--ranks'
done
adjoint allreduce --ranks 2 --transport pigeon --x '1;2' --ybar '1;2'
judge 'adjoint refuses an unknown transport' refuses_arguments '--transport'
ranks 2 "$tools/adjoint" allreduce --ranks 3 --x '1;2' --ybar '1;2'
judge 'adjoint refuses ranks that the launcher has not started' refuses_arguments '--ranks 3 was asked for'
ranks 2 "$tools/adjoint" allreduce --x '1;2,3' --ybar '1;2'
judge 'adjoint under the launcher refuses unequal lengths' refuses_arguments '^adjoint: --x'

# ---- universes
run "$tools/universe" power --json --k 0.1,1
judge 'universe power' is_json
universes=$work/universes
ranks 2 "$tools/universe" generate --out "$universes" --universes 12 --size 16 --cell 8 --seed 1 --spread --json
judge 'universe generate' is_json
ranks 2 "$tools/universe" generate --out "$universes" --universes 12 --size 16 --cell 8 --seed 1
judge 'universe generate overwrites nothing' refuses_once 'overwrite'
echo 'half a file' >"$work/half"
cp "$work/half" "$universes/universe_00000.hdf5.part"
run "$tools/universe" generate --out "$universes" --universes 1 --size 16 --cell 8 --seed 1 --overwrite
judge 'what an interrupted run left is replaced' no_file "$universes/universe_00000.hdf5.part"
ln -s "$work/half" "$universes/universe_00000.hdf5.part"
ranks 2 "$tools/universe" generate --out "$universes" --universes 1 --size 16 --cell 8 --seed 1 --overwrite
judge 'a link in the way is not followed' refuses_once 'not a regular file'
rm "$universes/universe_00000.hdf5.part"
ranks 2 "$tools/universe" generate --out "$work/half" --universes 2 --size 16 --spread
judge 'universe generate: a folder that cannot be made' refuses_once 'cannot be made'
reference=$shared/data/cosmo/monofonic/test_1lpt_sc_generic.hdf5
if [ -f "$reference" ]; then
  ranks 2 "$tools/universe" displace --delta "$reference:DM_delta" --box 100 --order 1 --out "$work/moved.hdf5"
  judge 'universe displace' test -s "$work/moved.hdf5"
  before=$(cksum <"$work/moved.hdf5")
  ln "$work/moved.hdf5" "$work/again.hdf5"
  ranks 2 "$tools/universe" displace --delta "$work/moved.hdf5:dx" --box 100 --out "$work/again.hdf5" --overwrite
  judge 'universe displace refuses its own input' refuses_arguments 'would be written over'
  judge 'the input stays' unchanged "$work/moved.hdf5" "$before"
  ranks 2 "$tools/universe" displace --delta "$work/moved.hdf5:dw" --box 100 --out "$work/new.hdf5"
  judge 'universe displace: no such field' refuses_once "no dataset 'dw'"
else
  skip 'the reference data is not on this machine (MPIGRAD_SHARED says where it is)'
fi

# ---- training: the same run on several grids
train() { # train TRANSPORT RANKS GRID OUT OPTIONS...
  transport=$1 p=$2 grid=$3 out=$4
  shift 4
  "$transport" "$p" "$tools/cosmoflow" --data "$universes" --grid "$grid" --batch-norm --batch 4 --flips --shifts \
    --schedule constant --dtype float64 --out "$work/$out" "$@"
}
train threads 1 sample=1 one --epochs 2 --json
judge 'cosmoflow trains on one rank' key parameters 9439652
for file in weights.h5 metrics.csv predictions.csv cosmoflow.png summary.json; do
  judge "cosmoflow writes $file" test -s "$work/one/$file"
done
train ranks 2 depth=2 two --epochs 1 --checkpoint-every 1
judge 'cosmoflow trains under the launcher' says '^sigma_8 '
judge 'two ranks in depth: the same loss' same_losses "$work/one/metrics.csv" 1 "$work/two/metrics.csv" 1
train threads 3 height=3 three --epochs 1
judge 'three ranks in height: the same loss' same_losses "$work/one/metrics.csv" 1 "$work/three/metrics.csv" 1
train threads 4 sample=2,width=2 four --epochs 1
judge 'samples and width: the same loss' same_losses "$work/one/metrics.csv" 1 "$work/four/metrics.csv" 1
train threads 2 width=2 resumed --epochs 2 --resume "$work/two/checkpoint.h5"
judge 'resumed on another grid: the same loss' same_losses "$work/one/metrics.csv" 2 "$work/resumed/metrics.csv" 2
cp -R "$work/two" "$work/on"
train threads 2 width=2 on --epochs 2 --resume "$work/on/checkpoint.h5" --overwrite
judge 'going on in the same folder keeps the first epoch' epochs "$work/on/metrics.csv" '1 2 '
judge 'the row kept is the same' test "$(sed -n 1,2p "$work/on/metrics.csv")" = "$(cat "$work/two/metrics.csv")"
train ranks 2 depth=2 refused --epochs 2 --resume "$work/two/checkpoint.h5" --test-fraction 0.4
judge 'going on with other test samples' refuses_once 'test fraction 0.15, now it is 0.4'
train ranks 2 depth=2 refused --epochs 2 --resume "$work/two/checkpoint.h5" --optimizer adamw
judge 'going on with another optimizer' refuses_once 'optimizer adam, now it is adamw'
mkdir "$work/fewer"
for file in "$universes"/*[0-8].hdf5; do ln -s "$file" "$work/fewer"; done
ranks 2 "$tools/cosmoflow" --data "$work/fewer" --grid depth=2 --batch-norm --batch 4 --dtype float64 --epochs 2 \
  --resume "$work/two/checkpoint.h5" --out "$work/refused"
judge 'going on with other data' refuses_once 'samples 12, now it is 11'
plain() { # plain OUT OPTIONS...: without what differs between parts of a batch
  out=$1
  shift
  threads 2 "$tools/cosmoflow" --data "$universes" --grid depth=2 --keep 1 --epochs 2 --batch 4 --dtype float64 \
    --out "$work/$out" "$@"
}
plain whole
plain parts --accumulate 2
judge 'a batch in parts: the same loss' same_losses "$work/whole/metrics.csv" 2 "$work/parts/metrics.csv" 2
train threads 2 sample=2 scored --epochs 0 --weights "$work/one/weights.h5" --json
judge 'weights are evaluated' is_json

volumes=$shared/data/3d/adrenalmnist3d/adrenal28.h5
if [ -f "$volumes" ]; then
  ranks 2 "$tools/classify" --data "$volumes" --grid depth=2 --flips --epochs 1 --batch 32 --filters 8 --json \
    --out "$work/classes"
  judge 'classify trains under the launcher' is_json
  judge 'classify writes its picture' test -s "$work/classes/classify.png"
else
  skip 'the reference data is not on this machine (MPIGRAD_SHARED says where it is)'
fi

# ---- what is refused; nothing is written
before=$(cksum <"$work/one/weights.h5")
train ranks 2 depth=2 one
judge 'existing output' refuses 'overwrite'
judge 'existing output stays' unchanged "$work/one/weights.h5" "$before"
train ranks 2 depth=3 refused
judge 'a grid of other ranks' refuses_arguments 'needs 3 ranks'
train ranks 2 time=2 refused
judge 'a grid axis that does not exist' refuses_arguments "no axis 'time'"
train threads 17 depth=17 refused
judge 'more ranks than planes' refuses '17 ranks along depth for 16 planes'
first=$universes/universe_00000.hdf5
mkdir "$work/late" "$work/late/checkpoint.h5"
cp "$work/half" "$work/late/metrics.csv"
before=$(cksum <"$work/half")
train ranks 2 depth=2 late --epochs 1 --overwrite --learning-rate 1e200 --optimizer sgd
judge 'a run that fails early' refuses 'the loss is'
judge 'a run that fails early leaves the table of an earlier one' unchanged "$work/late/metrics.csv" "$before"
train ranks 2 depth=2 late --epochs 1 --overwrite --checkpoint-every 1
judge 'a checkpoint that cannot be written' refuses_once 'a folder is in the way'
train threads 2 depth=2 "$(printf 'caf\351')" --epochs 1 --json
judge 'a folder whose name is not UTF-8' is_json
ranks 2 "$tools/cosmoflow" --data "$work/nowhere" --grid depth=2 --out "$work/refused"
judge 'missing data' refuses 'nowhere'
head -c 3000 "$first" >"$work/truncated.hdf5"
ranks 2 "$tools/cosmoflow" --data "$work/truncated.hdf5" --grid depth=2 --out "$work/refused"
judge 'truncated data' refuses 'truncated'
run "$tools/cosmoflow" --data "$work/one/weights.h5" --out "$work/refused"
judge 'data of another kind' refuses 'full'
mkdir "$work/bad" "$work/pipe" "$work/oblong"
cp "$universes"/*.hdf5 "$work/bad"
run "$tools/universe" generate --out "$work/numbers" --universes 1 --size 16 --cell 8 --seed 1 --json
values=$(python3 -c 'import json, sys; print(*json.load(sys.stdin)["universes"][0]["unit"])' <"$work/out")
# shellcheck disable=SC2086  # four numbers
patch "$work/bad/universe_00000.hdf5" f $values -- nan 0 0 0
ranks 2 "$tools/cosmoflow" --data "$work/bad" --grid depth=2 --batch 4 --out "$work/refused"
judge 'targets that are no numbers' refuses_once "universe_00000.hdf5: 'unitPar' holds nan"
mkfifo "$work/pipe/a.hdf5"
ranks 2 "$tools/cosmoflow" --data "$work/pipe" --grid depth=2 --out "$work/refused"
judge 'a pipe among the data' refuses_once 'not a regular file'
cp "$first" "$work/oblong/a.hdf5"
patch "$work/oblong/a.hdf5" q 16 16 16 4 -- 32 16 8 4
run "$tools/cosmoflow" --describe --data "$work/oblong"
judge 'describe refuses volumes that are no cubes' refuses_once 'takes cubes'
mkdir "$work/mixed"
cp "$first" "$work/mixed/a.hdf5"
run "$tools/universe" generate --out "$work/other" --universes 1 --size 32 --cell 8
cp "$work/other/universe_00000.hdf5" "$work/mixed/b.hdf5"
ranks 2 "$tools/cosmoflow" --data "$work/mixed" --grid depth=2 --batch 1 --out "$work/refused"
judge 'data of two shapes' refuses '32'
run "$tools/cosmoflow" --data "$universes" --variant mlperf --out "$work/refused"
judge 'volumes too small for the network' refuses 'power of two'
run "$tools/cosmoflow" --data "$universes" --batch 4 --weights "$work/one/weights.h5" --out "$work/refused"
judge 'weights of another network' refuses 'float64'
run "$tools/classify" --data "$first" --out "$work/refused"
judge 'classify: data of another kind' refuses 'train'
judge 'refused runs leave nothing behind' no_file "$work/refused"

summary
