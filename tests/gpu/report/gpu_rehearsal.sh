#!/bin/sh
# Rehearses tests/gpu.sh on the GPU emulator, in a copy of the scripts: every step of the list, a command that is interrupted in a
# step and continued, and other events on machines that are lent for minutes. Prints `failed: NAME` for each failed test and ends
# with `N passed, M failed, K skipped`. tests/run.sh calls it; with MPIGRAD_TEST_ALL every step is interrupted once.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
. "$root/tests/suite.sh"
. "$root/tests/gpu/report/gpu_steps.sh"
. "$root/tests/gpu/report/gpu_rehearsal_stage.sh"

if [ ! -x "$build/tests/unit" ] || [ ! -x "$build/tests/gpu_step" ] || [ ! -f "$build/tests/emulation/libmpigrad.so" ]; then
  skip 'GPU steps are rehearsed where CUDA and cuDNN were found by the build'
  summary
  exit
fi
set_stage

# ---- every test has a step

every=$("$build/tests/unit" --list-test-cases '-tc=gpu*' | grep '^gpu' | sort)
in_steps=$(steps | while read -r _ _ _ command; do
  case $command in sanitize*) continue ;; esac
  filter=$(filter_of "$command")
  [ -z "$filter" ] || "$build/tests/unit" --list-test-cases "-tc=$filter" | grep '^gpu'
done | sort)
status=0
judge 'every test that needs a GPU is in one step, and in one only' [ "$every" = "$in_steps" ]
in_order() { [ "$(steps | awk '{ print $1 }' | sort -u | wc -l)" -eq "$(steps | wc -l)" ] && ! steps | awk '$2 > $3 || $3 > 590 { bad = 1 } END { exit !bad }'; }
judge 'steps have names of their own, and limits that are above what is expected and below ten minutes' in_order
run gpu --list
lists() { succeeds && [ "$(grep -c "^step-\|^ .* gpu: table\|^ .* gpu: optimizers$" "$work/out")" -ge 13 ] && grep -q '^views  *5  *60 ' "$work/out"; }
judge '--list has every step, its seconds, its limit and its tests' lists

# ---- what is refused

without_gpu() { PATH=$plain_path run sh "$tree/tests/gpu.sh" --report "$work/none"; }
without_gpu
judge 'without a GPU it says so in one line' refuses_in_a_line '^error: there is no NVIDIA GPU here'
run gpu no-such-step
judge 'a step that is not there is refused' refuses_in_a_line 'there is no step no-such-step'
run gpu --minutes soon
judge 'minutes are a number' refuses_in_a_line 'takes a number'

# ---- a command that has little time, and is ended in the middle of a step

run gpu --minutes 1.4 --report "$work/report" questions views build
short() {
  succeeds && begun views && ! begun build && ! begun questions && grep -q '^build would take 100 seconds, [0-9]* remain: not started$' "$work/err"
}
judge 'steps that do not fit in what remains are not started, and those that do are' short
named() { [ -f "$work/report/gpu-$today-$commit.md" ]; }
judge 'the report has the commit of this project in its name' named

: >"$journal"
run_interrupted elementwise --report "$work/report"
cut_off() { [ "$status" -eq 137 ] && begun elementwise && ! ended elementwise && ended there && ended plans; }
judge 'a command that is killed leaves the lines until then, and no end of its step' cut_off
before=$(sed -n '/^@begin elementwise/,$p' "$journal" | grep -c .)
judge 'the lines of the interrupted step are in the journal' [ "$before" -ge 3 ]

started=$(date +%s)
run gpu --report "$work/report"
whole() { steps | while read -r name _; do ended "$name" || { echo "no end of $name"; exit 1; }; done; }
judge 'the next command goes on: no step is lost' whole
judge 'and no step has failed' succeeds
once() { [ "$(begins there)" -eq 1 ] && [ "$(begins elementwise)" -eq 2 ] && [ "$(begins views)" -eq 1 ]; }
judge 'steps that had ended are not repeated, the interrupted one is' once
page=$work/report/gpu-$today-$commit.md
kept() { grep -q '^| elementwise | passed |' "$page" && grep -q '^the line before the end$' "$page" && grep -q '^(interrupted; begun again)$' "$page"; }
judge 'the report has the lines of the interrupted step, and its result' kept
mkdir "$work/nothing"
run env MPIGRAD_GPU_PROGRAMS="$work/nothing" sh "$tree/tests/gpu.sh" --report "$work/nothing-report" questions kernels
missing() { succeeds && [ "$(grep -c '^skipped: gpu_[a-z]* has not been built$' "$work/nothing-report/journal.txt")" -eq 2 ]; }
judge 'programs that are not there are steps that are skipped' missing
measured() { grep -q '^| CosmoFlow (hybrid) 128^3 batch 8.*| samples-128-8-bfloat16: [0-9.]* samples/s |$' "$page"; }
judge 'what was measured stands beside what is hoped for' measured
[ -z "${MPIGRAD_SHOW_SKIPS:-}" ] || printf 'the list took %s seconds\n' "$(($(date +%s) - started))"
begins_before=$(grep -c '^@begin' "$journal")
run gpu --report "$work/report"
no_more() { succeeds && [ "$(grep '^@begin' "$journal" | tail -n +"$((begins_before + 1))" | grep -vc 'plans\|questions\|kernels\|ncu\|split\|processor')" -eq 0 ]; }
judge 'a list that has been run is not run again, but for what was skipped' no_more

# ---- going on elsewhere

mkdir "$work/brought"
grep -v '^@end trainers' "$journal" >"$work/brought/journal.txt"
rm -rf "$tree/build-gpu/report"
run gpu --minutes 10 --report "$work/elsewhere" --from "$work/brought"
went_on() { succeeds && [ "$(grep -c '^@begin views' "$work/elsewhere/journal.txt")" -eq 1 ] && [ "$(grep -c '^@begin trainers' "$work/elsewhere/journal.txt")" -eq 2 ]; }
judge 'another machine goes on from files brought back' went_on

# ---- steps that fail

stage_says fails views
run gpu --report "$work/report" views
fails_named_as() { [ "$status" -eq 1 ] && grep -q "^failed: $1$" "$work/out" && grep -q ' 1 failed, ' "$work/out"; }
fails_named() { fails_named_as views; }
judge 'a step that fails is named, and the exit status says so' fails_named
stage_says
run gpu --report "$work/report"
judge 'it still says so when the rest has passed' fails_named
run gpu --report "$work/report" views
judge 'a step is repeated by its name' succeeds
stage_says empty views
run gpu --report "$work/report" views
judge 'a step in which no test ran has failed' fails_named
stage_says skips views
run gpu --report "$work/report" views
only_skips() { [ "$(grep '^@end views' "$journal" | tail -n 1 | cut -d' ' -f3,5-)" = 'skipped 0 0 2' ]; }
judge 'a step whose tests have all been skipped has not passed' only_skips
stage_says hangs views
sed -i 's/^views 5 60 /views 1 2 /' "$tree/tests/gpu/report/gpu_steps.sh"
run gpu --report "$work/report" views
ended_by_limit() { fails_named && grep -q '^ended after its limit of 2 seconds$' "$journal"; }
judge 'a step that hangs is ended after its own limit' ended_by_limit
sed -i 's/^views 1 2 /views 0 60 /' "$tree/tests/gpu/report/gpu_steps.sh"
run gpu --report "$work/report" --minutes 0.1 views
cut_short() { grep -q '^@cut views ' "$journal" && ! grep -q '^failed: views$' "$work/out"; }
judge 'a step that the end of the time cuts short has not failed' cut_short
run_terminated views 1
nothing_stays() {
  [ "$status" -eq 143 ] || return 1
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    kill -0 "$(cat "$work/stage.child")" 2>/dev/null || return 0
    sleep 1
  done
  return 1
}
judge 'a command that is asked to end ends its step' nothing_stays
: >"$journal"
rm -rf "$tree/build-gpu/report"
run_terminated views 2
kept_its_lines() { nothing_stays && begun views && ! ended views && grep -q '^begun$' "$journal"; }
judge 'and also one of several side by side, whose lines it keeps' kept_its_lines
: >"$journal"
rm -rf "$tree/build-gpu/report"
run_interrupted views --report "$work/report" --jobs 2 views
run gpu --report "$work/report" --jobs 2 views
counted() { succeeds && [ "$(begins views)" -eq 2 ] && grep -q '^the line before the end$' "$journal"; }
judge 'one that is killed side by side has its lines from the next command' counted
: >"$journal"
rm -rf "$tree/build-gpu/report"
git -C "$tree" checkout --quiet tests/gpu/report/gpu_steps.sh
run_interrupted views --report "$work/report" views
run_interrupted views --report "$work/report" views
run gpu --report "$work/report" --minutes 0.1
not_again() { [ "$(begins views)" -eq 3 ] && grep -q 'ended in the middle twice' "$journal" && fails_named; }
judge 'what has ended two commands is not tried by a third' not_again

# ---- steps side by side

run gpu --jobs none
judge 'a number of steps is a number' refuses_in_a_line 'takes a number of steps'
rm -rf "$tree/build-gpu/report"
stage_says fails nan
run gpu --report "$work/together" --jobs 3 there views optimizers nan graphs memcheck
# Between each beginning and the end of the same step: lines of different steps are not mixed.
apart() { awk '$1 == "@begin" { if (open != "") bad = 1; open = $2; n++ } $1 == "@end" { if (open != $2) bad = 1; open = "" } END { exit bad || n != 6 }' "$1"; }
together() { fails_named_as nan && [ "$(grep -c '^@end [a-z]* passed' "$work/together/journal.txt")" -eq 5 ] && apart "$work/together/journal.txt"; }
judge 'steps run side by side, each with its lines and its result' together
stage_says

# ---- no network

if [ "$(id -u)" -eq 0 ] && grep -qE '^ID=(debian|ubuntu)' /etc/os-release; then
  without_network
  run env PATH="$work/no-network:$PATH" MPIGRAD_GPU_RUNNER= MPIGRAD_GPU_PROGRAMS="$work/none" MPIGRAD_GPU_BUILD="$work/none" \
    sh "$tree/tests/gpu/report/gpu_step.sh" build
  goes_on() { grep -q '^building with what is here$' "$work/out" && grep -q '^meson setup .*-Dgpu_archs=90' "$work/out" && [ "$status" -eq 1 ]; }
  judge 'where nothing can be installed it builds with what is there' goes_on
fi

# ---- whose commit

rm -rf "$tree/build-gpu/report"
commit_named() { succeeds && ls "$work/commits/gpu-$today-$1.md" >/dev/null; }
run gpu --report "$work/commits" optimizers
judge 'a tree without changes is its commit' commit_named "$commit"
echo more >>"$tree/tests/emulated.sh"
run gpu --report "$work/commits" optimizers
judge 'a changed tree is no commit, and what another had done is put aside' commit_named "$commit-modified"
judge 'what another had done is kept' [ -f "$work/commits/journal-$commit.txt" ]
git -C "$tree" checkout --quiet tests/emulated.sh
mkdir "$work/kept"
(
  root=$tree
  . "$root/tests/gpu/report/gpu_report.sh"
  keep_commit "$work/kept"
)
mv "$tree/.git" "$work/inner.git"
rm -rf "$tree/build-gpu/report"
run gpu --report "$work/commits" optimizers
judge 'a tree inside another repository has not its commit' commit_named unknown
mkdir -p "$tree/.gpu-bundle"
cp "$work/kept"/* "$tree/.gpu-bundle/"
rm -rf "$tree/build-gpu/report" "$work/commits"
run gpu --report "$work/commits" optimizers
judge 'but that which the bundle was made of' commit_named "$commit"
git -C "$tree" init --quiet
rm -rf "$tree/build-gpu/report" "$work/commits"
run gpu --report "$work/commits" optimizers
judge 'also where it lies in a repository that knows it as changed' commit_named "$commit"
rm -rf "$tree/.git"
echo more >>"$tree/tests/emulated.sh"
rm -rf "$tree/build-gpu/report" "$work/commits"
run gpu --report "$work/commits" optimizers
judge 'unless the tree has changed since' commit_named "$commit-modified"
rm -rf "$tree/build-gpu/report"
run env MPIGRAD_COMMIT=1234567 sh "$tree/tests/gpu.sh" --report "$work/commits" optimizers
judge 'and MPIGRAD_COMMIT knows better' commit_named 1234567
rm -rf "$tree/.gpu-bundle"
mv "$work/inner.git" "$tree/.git"
git -C "$tree" checkout --quiet tests/emulated.sh

# ---- what has run on which GPU

cp "$tree/tests/gpu/README.md" "$work/readme"
run gpu --report "$work/elsewhere" report
untouched() { succeeds && cmp -s "$tree/tests/gpu/README.md" "$work/readme" && [ ! -e "$tree/tests/bench" ] && grep -q 'no GPU of this report is real' "$work/err"; }
judge 'GPUs that the CPU plays are not written into the table' untouched
sed -i "s/^@run \([0-9]*\) emulated/@run \1 real/" "$work/elsewhere/journal.txt"
for _ in 1 2; do run gpu --report "$work/elsewhere" report; done
row="^| Pretended GPU, 1.2.3 | \[$commit, $today\](../bench/results/gpu-$today-$commit.md) | [1-9][0-9]* | none | [0-9]* | [1-9][0-9]* |$"
filled() {
  succeeds && [ "$(grep -c "$row" "$tree/tests/gpu/README.md")" -eq 1 ] && [ -s "$tree/tests/bench/results/gpu-$today-$commit.md" ] &&
    [ "$(diff "$work/readme" "$tree/tests/gpu/README.md" | grep -c '^<')" -eq 1 ] && [ "$(diff "$work/readme" "$tree/tests/gpu/README.md" | grep -c '^>')" -eq 1 ]
}
judge 'what a real GPU did is, once, between the markers' filled
sed -i "s/gpu-$today-$commit/gpu-2020-01-01-0000000/; s/\[$commit, $today\]/[0000000, 2020-01-01]/" "$tree/tests/gpu/README.md"
run gpu --report "$work/elsewhere" report
others_stay() { succeeds && grep -q '0000000' "$tree/tests/gpu/README.md" && [ "$(grep -c "$row" "$tree/tests/gpu/README.md")" -eq 1 ] && [ "$(grep -c '^| GPU, driver' "$tree/tests/gpu/README.md")" -eq 1 ]; }
judge 'rows of other reports stay' others_stay

# ---- every interruption, and machines that lack things

if [ -n "$every_interruption" ]; then
  git -C "$tree" checkout --quiet .
  rm -rf "$tree/build-gpu/report"
  # Uses programs for every step; the last step's program is skipped here.
  play_programs
  for middle in $(steps | awk '$1 != "processor" { print $1 }'); do
    run_interrupted "$middle" --report "$work/each"
    journal=$work/each/journal.txt
    broken() { [ "$status" -eq 137 ] && begun "$middle" && ! ended "$middle"; }
    judge "ended in the middle of $middle" broken
  done
  run gpu --report "$work/each"
  judge 'every step ended in the middle, and all of them went on' succeeds
  judge 'none is lost' whole
  at_most_twice() { ! steps | while read -r name _; do ! grep -q "^@end $name passed" "$journal" || [ "$(begins "$name")" -le 2 ] || echo "$name"; done | grep .; }
  judge 'and none was run a third time' at_most_twice
  MPIGRAD_GPU_PROGRAMS=$build/tests
  # No MPI, HDF5 or oneDNN: programs that need them are missing.
  rm -rf "$tree/build-gpu/report"
  mkdir "$work/lean"
  for program in unit gpu_step; do ln -s "$build/tests/$program" "$work/lean/$program"; done
  run env MPIGRAD_GPU_PROGRAMS="$work/lean" sh "$tree/tests/gpu.sh" --report "$work/lean-report" nccl trainers views
  lean() { succeeds && [ "$(grep -c '^@end [a-z]* skipped' "$work/lean-report/journal.txt")" -eq 2 ] && grep -q '^@end views passed' "$work/lean-report/journal.txt"; }
  judge 'a machine without MPI and HDF5 skips what needs them' lean
  # A missing library.
  stage_says libraries views
  run gpu --report "$work/missing-report" views
  judge 'a program whose library is missing is a step that failed, with the name of the library in the report' \
    grep -q 'libmissing.so' "$work/missing-report/journal.txt"
  stage_says
fi

summary
