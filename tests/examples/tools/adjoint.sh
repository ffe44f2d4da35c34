#!/bin/sh
# Runs the adjoint calculator as a user does, on values worked out by hand. Prints `failed: NAME` for each failed test and ends
# with `N passed, M failed, K skipped`. tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher

tools=$build/examples
. "$root/tests/suite.sh"

needs 'the tools are' "$tools/adjoint"

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
for op in Allreduce MPI_Allreduce mpi_allreduce MPI_Iallreduce; do
  three 'y=0,7;0,7;0,7 xbar=7,70;7,70;7,70' $op
done
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
calculates 'y=3;1;2 xbar=6,7;5;' ineighbor_alltoall --graph '1,2;0;' --ranks 3 --x '1,2;3;' --ybar '5;6;7'
calculates 'y=4;1,2;3 xbar=6,7,8;5;' neighbor_alltoall --graph '1,2;0;' --counts '2,1;1;' --ranks 3 --x '1,2,3;4;' \
  --ybar '5;6,7;8'
# A rank to which no rank sends.
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
refused_call "'allredce' is none of the operations allreduce, reduce" allredce --ranks 2
refused_pair "'allredce' is none of the operations allreduce, reduce" allredce
refused_pair 'allgather with --counts' allgatherv
refused_pair 'MPI_Allgatherv is allgather with --counts' MPI_Allgatherv
refused_pair "'MPI_Allredce' is none" MPI_Allredce
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
refused_call '3 numbers into 2 equal blocks' scatter --ranks 2 --x '1,2,3;' --ybar '1,2;3'
refused_call 'empty fields on all ranks except the root' scatter --ranks 2 --x '1,2;3' --ybar '1;2'
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

# What did not arrive was not printed.
for option in --json --periodic; do
  full "$tools/adjoint" halo --ranks 3 --x '1;2;3' --ybar '1,2,3;1,2,3;1,2,3' $option
  judge "adjoint $option to a full device fails" refuses_full
done
full "$tools/adjoint" --help
judge 'adjoint --help to a full device fails' refuses_full
# shellcheck disable=SC2016
ranks 2 sh -c 'exec "$@" >/dev/full' sh "$tools/adjoint" allreduce --x '1;2' --ybar '1;2'
judge 'adjoint to a full device fails under the launcher' refuses_full

summary
