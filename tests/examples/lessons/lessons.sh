#!/bin/sh
# Runs the lessons as a student does. Each checks its own claims and exits with 1 where one fails; the numbers looked for here are
# those that the texts speak of. Prints `failed: NAME` for each failed test and ends with `N passed, M failed, K skipped`.
# tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher
. "$root/tests/suite.sh"

lessons=$build/examples/lessons
needs 'the lessons are' "$lessons/01_allgather"

# lesson NAME DEFAULT PATTERN: on DEFAULT ranks without any option, and on 1, 2 and 5 threads, says PATTERN, in which P stands for
# the number of ranks.
lesson() {
  lesson=$1 pattern=$3
  run "$lessons/$lesson"
  judge "$lesson" says "$(printf '%s' "$pattern" | sed "s/P/$2/")"
  for size in 1 2 5; do
    threads "$size" "$lessons/$lesson"
    judge "$lesson on $size threads" says "$(printf '%s' "$pattern" | sed "s/P/$size/")"
  done
}
# under_launcher NAME RANKS PATTERN
under_launcher() {
  ranks "$2" "$lessons/$1"
  judge "$1 under the launcher, $2 ranks" says "$3"
}

lesson 00_reverse_mode 1 '^holds: without a derivative h, with the gradient h^2, with the Hessian h^3'
lesson 01_allgather 3 '^holds: the adjoint is the transpose, element by element'
lesson 02_sum_over_ranks 4 '^square(allreduce(x)) on every rank .* = P x 2 s'
lesson 03_data_parallel 4 '^rank 0: .* through replicate |dL/dw| 4\.203363'
lesson 04_heat 3 '^holds: the initial state is recovered, to [012]\.[0-9] %'
lesson 05_split_convolution 4 '^holds: the shares add up to the loss, 4167\.601313493'
lesson 06_overlap 3 '^holds: backwards: isend irecv wait wait'
lesson 07_unused_message 4 '^holds: every rank took its part in the backward pass'
lesson 08_contrastive 4 '^full, plain  *P\.000000  1\.000000'
lesson 09_hessian_vector 4 '^holds: H v is P\.000000 times too large'
lesson 10_wrong_gradients 4 '^full matrix, gradients summed  *P\.000000  1\.000000'
lesson 11_matrices 3 '^holds: the adjoint of exscan is its transpose'
lesson 12_not_linear 3 '^holds: where nobody ties the adjoint passes, to second order'
lesson 13_wave 4 '^holds: both gradients are those of one rank, at edges and corners, too'
lesson 14_pipeline 4 '^holds: both schedules have the gradient of one process'
lesson coming_from_programs 4 '^2\. square(allreduce(x)) from every rank  *P\.000000'

# What the exercises say.
threads 7 "$lessons/02_sum_over_ranks"
judge '02_sum_over_ranks: the exercise' says '^square(allreduce(x)) on every rank .* gradient  392 '
run "$lessons/03_data_parallel"
judge '03_data_parallel: averages of averages' says '|dL/dw| 4\.506082'
run "$lessons/04_heat"
judge '04_heat counts copies' says '^E^T 1   1111111111111112|2111111111111112|2111111111111111$'
threads 48 "$lessons/04_heat"
judge '04_heat: the exercise' says '^E^T 1   2|3|3|.*|3|2$'
threads 20 "$lessons/05_split_convolution"
judge '05_split_convolution with more ranks than planes' says '^holds: the shares add up to the loss, 4167\.601313493'
run "$lessons/07_unused_message"
judge '07_unused_message: the last rank' says '^rank 3: .* gradient 20 (by hand 20); backwards: .*isend.* wait wait$'
threads 8 "$lessons/08_contrastive"
judge '08_contrastive: the exercise' says '^gather, no grad  *0\.581132  0\.903541'
judge '08_contrastive: local negatives' says '^local negatives  *0\.513545'
threads 8 "$lessons/09_hessian_vector"
judge '09_hessian_vector: the exercise' says '^vjp by a plain allreduce .* 19\.38104460'

threads 8 "$lessons/10_wrong_gradients"
judge '10_wrong_gradients: own columns put back' says '^the same, own columns put back  *0\.907411  0\.965140'
threads 2 "$lessons/10_wrong_training" --steps 2 --seeds 1 --batch 16 --only 'InfoNCE, exact'
judge '10_wrong_training' says '^| InfoNCE, exact | [0-9.]* (0\.0) |'
threads 2 "$lessons/10_wrong_training" --steps 2 --batch 16 --only 'put back'
baseline() { says '^| untrained |' && says '^| InfoNCE, exact |' && says '^| the same, own columns put back |' && [ "$(grep -c '^| ' "$work/out")" -eq 4 ]; }
judge '10_wrong_training prints what a row is to be compared with' baseline
run "$lessons/10_wrong_training" --batch 1
judge '10_wrong_training: a batch of one' refuses_arguments '--batch is 2 or more'

under_launcher 04_heat 2 '^E^T 1   111111111111111111111112|211111111111111111111111$'
under_launcher 06_overlap 2 '^holds: backwards: isend irecv wait wait'
under_launcher 13_wave 2 '^rank 1: a cell in a corner of its block has 2 copies'
under_launcher 14_pipeline 2 '^holds: rank s holds at most P - s tapes'
under_launcher 11_matrices 2 '^holds: the adjoint of scatter is its transpose'
under_launcher 08_contrastive 2 '^full, plain  *2\.000000  1\.000000'
ranks 2 "$lessons/07_unused_message" --no-such-option
judge 'an unknown option under the launcher' refuses_arguments '^07_unused_message: '
run "$lessons/01_allgather" --no-such-option
judge 'an unknown option' refuses_arguments '^01_allgather: '
run "$lessons/01_allgather" --ranks none
judge 'a number of ranks that is none' refuses_arguments '--ranks'
run "$lessons/01_allgather" --help
judge '--help' says '^Usage: '


# What did not arrive was not printed.
for each in 01_allgather 02_sum_over_ranks 03_data_parallel 04_heat 05_split_convolution 06_overlap 07_unused_message \
  08_contrastive 09_hessian_vector 10_wrong_gradients 00_reverse_mode 11_matrices 12_not_linear 13_wave 14_pipeline; do
  full "$lessons/$each" --transport threads --ranks 1
  judge "$each to a full device fails" refuses_full
done
full "$lessons/01_allgather" --help
judge 'a lesson'"'"'s --help to a full device fails' refuses_full
# shellcheck disable=SC2016
ranks 2 sh -c 'exec "$@" >/dev/full' sh "$lessons/07_unused_message"
judge 'a lesson to a full device fails under the launcher' refuses 'No space left on device'

summary
