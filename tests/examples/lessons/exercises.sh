#!/bin/sh
# The exercises of the lessons: every stub fails by the check that is meant, every solution passes on 1 to 5 ranks, every wrong solution
# is rejected. Prints `failed: NAME` for each failed test and ends with `N passed, M failed, K skipped`. tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher
. "$root/tests/suite.sh"

program=$build/tests/exercises
needs 'the exercises are' "$program"

# On a loaded machine a rank may stand still for longer than a student would wait.
export MPIGRAD_CHECKS=signatures,watchdog=20
solved() { succeeds && [ "$(grep -c ': right$' "$work/out")" -eq 5 ] && grep -q '^solved$' "$work/out"; }
# Rejected by the judge, not by a crash: an error of a rank, or the watchdog's report.
rejected() { [ "$status" -ge 1 ] && [ "$status" -le 2 ] && ! grep -q '^solved$' "$work/out" && grep -q -e "$1" "$work/err"; }
# Some wrong solution of these lessons is right on one rank: the reason why tests on one rank tell little.
one_rank=
"$program" >"$work/list"
while read -r exercise variant; do
  pattern=$(sed -n 's/^stub fails by: //p' "$root"/tests/examples/lessons/wrong/*/"$exercise.txt")
  run "$program" "$exercise" "$variant"
  case $variant in
    solution) judge "$exercise: the solution" solved ;;
    stub) judge "$exercise: the stub fails by its check" rejected "$pattern" ;;
    *)
      judge "$exercise: $variant is rejected" rejected .
      if grep -q '1 rank: right$' "$work/out"; then one_rank="$one_rank $exercise"; fi
      ;;
  esac
done <"$work/list"

# All but those of one process (lesson 0) and of a pure function have one that only several ranks find.
for source in "$root"/examples/lessons/exercises/*/[0-9]*.cpp; do
  exercise=$(basename "$source" .cpp)
  case $exercise in 00a_norm | 00b_two_readers | 05a_window) continue ;; esac
  status=0
  judge "$exercise: a wrong solution that is right on one rank" sh -c 'case " $1 " in *" $2 "*) ;; *) exit 1 ;; esac' sh "$one_rank" "$exercise"
done
# Stubs are short, and every exercise is in the program.
exercises=$root/examples/lessons/exercises
run python3 "$exercises/tasks.py" "$work/mine"
judge 'the tasks are written to a folder' says '^29 tasks in '
status=0
judge 'every exercise is judged' [ "$(ls "$work"/mine/*/[0-9]*.cpp | wc -l)" -eq "$(grep -c ' stub$' "$work/list")" ]
for source in "$work"/mine/solutions/*/[0-9]*.cpp; do
  judge "$(basename "$source" .cpp): at most 20 lines to write" [ "$(sed -n '/---- your lines$/,/\/\/ ----$/p' "$source" | wc -l)" -le 22 ]
done
# A student's work stays, what is missing comes back, and the sources are not what is worked on.
cp "$work/mine/solutions/messages/02a_handed_in.cpp" "$work/mine/messages/"
rm "$work/mine/messages/02b_penalty.cpp"
run python3 "$exercises/tasks.py" "$work/mine"
kept() { says "^not overwritten: [^ ]*$1\$" && cmp "$work/mine/messages/$1" "$work/mine/solutions/messages/$1"; }
judge 'tasks.py does not overwrite' kept 02a_handed_in.cpp
judge 'and writes what is missing' grep -q '^// Exercise 2b' "$work/mine/messages/02b_penalty.cpp"
run python3 "$exercises/tasks.py" "$exercises"
judge 'tasks.py does not write to the sources' refuses 'the folder of the sources'
cp -r "$exercises" "$work/sources"
for line in '---- your lines' '---- solution' '----'; do
  sed "/^ *\/\/ $line\$/d" "$exercises/messages/01a_shift.cpp" >"$work/sources/messages/01a_shift.cpp"
  run python3 "$work/sources/tasks.py" "$work/none"
  judge "a source without // $line" refuses '01a_shift.cpp: these lines are needed'
done

# The Makefile, beside a build that is not installed.
if have make; then
  run make -C "$exercises" BUILD="$build" 01a
  judge 'make in the sources says how to get the tasks' refuses 'python3 tasks.py FOLDER'
  run make -C "$work/mine" --no-print-directory BUILD="$build" 01a
  judge 'make, with a library that is built and not installed' rejected 'your_shift on 2 ranks: first order is off'
  run make -C "$work/mine" --no-print-directory BUILD="$build" FROM=solutions 01a
  judge 'and the solution' solved
fi

summary
