#!/bin/sh
# Runs the commands of README's figures again and compares: trainings with several seeds, printed numbers to the digit, and times
# (measured but not judged, because they depend on the processor). Exits with 1 if a figure differs from README.
# Writes all figures to tests/bench/results/figures-DATE.md, each with its command.
#
#   sh tests/bench/figures.sh [NAME...]     NAME: programs, quickstart, half, volumes, views; all by default, in some 15 minutes
#
# Longer ones have scripts of their own: run.sh (steps, bare primitives, PyTorch), contrastive_training.sh, contrastive.sh.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
. "$root/examples/packaging/packages.sh"
names='programs quickstart half volumes views'
case "${1:-}" in
  -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
esac
for name; do
  case " $names " in
    *" $name "*) ;;
    *) die "figures.sh knows $names, got $name" ;;
  esac
done
[ $# -eq 0 ] || names=$*

# shellcheck disable=SC2086,SC2154  # several names, from packages.sh
install_packages $test_packages
configure_tests
build_targets
choose_launcher
shared=${MPIGRAD_SHARED:-$root/../shared}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
page=$work/page.md
readme=$(cat "$root/README.md" "$root"/examples/trainers/*/README.md "$root/ops/precision.md" | tr '\n' ' ')
wrong=0

# stated PHRASE: the compared figure must appear in README.md, a page of a trainer or ops/precision.md in these words (lines joined).
stated() {
  case $readme in
    *"$1"*) ;;
    *) wrong=$((wrong + 1)); say "README does not say: $1" ;;
  esac
}

# read_number FILE PATH: a number of a JSON document, such as test.sigma_8.ratio or epochs.-1.auc.
read_number() {
  python3 -c '
import json, sys
value = json.load(open(sys.argv[1]))
for key in sys.argv[2].split("."):
    value = value[int(key)] if isinstance(value, list) else value[key]
print(value)' "$1" "$2"
}

# row WHAT STATED ALLOWED UNIT VALUE...: a line of the table, judged by the mean of the values; ALLOWED `-` judges nothing.
row() {
  python3 - "$@" <<'END' >"$work/row" || wrong=$((wrong + 1))
import sys
what, stated, allowed, unit, *values = sys.argv[1:]
values = [float(value) for value in values]
mean = sum(values) / len(values)
digits = ".12g" if len(values) == 1 else ".4g"
spread = f"{min(values):.4g} to {max(values):.4g}" if len(values) > 1 else ""
good = allowed == "-" or abs(mean - float(stated)) <= float(allowed)
print(f"| {what} | {stated}{unit} | {mean:{digits}}{unit} | {spread} | {len(values)} | {'not judged' if allowed == '-' else 'yes' if good else '**no**'} |")
sys.exit(not good)
END
  cat "$work/row" >>"$page"
  cat "$work/row" >&2
}

# section TITLE COMMAND...
section() {
  say "$1 ..."
  {
    printf '\n## %s\n\n```\n' "$1"
    shift
    printf '%s\n' "$@"
    printf '```\n\n| figure | README | here | spread | runs | agrees |\n|---|--:|--:|--:|--:|---|\n'
  } >>"$page"
}

programs() {
  section 'A program for any number of ranks' 'mpiexec -n 2 build/examples/two_ranks'
  for ranks in 1 2; do
    run_ranks "$ranks" "$build/examples/two_ranks" >"$work/two_ranks"
    row "loss on $ranks ranks" 15174.644020683 1e-9 '' "$(sed -n '1s/.* loss \([0-9.]*\),.*/\1/p' "$work/two_ranks")"
    row "gradient on $ranks ranks" 4837.428430701 1e-9 '' "$(sed -n '1s/.*|gradient| \([0-9.]*\)$/\1/p' "$work/two_ranks")"
  done
  stated 'loss 15174.644020683, |gradient| 4837.428430701'
}

recipes=examples/trainers/recipes
# trainings NAME PROGRAM RECIPE OPTIONS...: seeds 1 to 3 on two ranks; summaries go to $work/NAME-SEED.json.
trainings() {
  name=$1 program=$2 recipe=$root/$recipes/$3
  shift 3
  for seed in 1 2 3; do
    say "  $name, seed $seed"
    run_ranks 2 "$build/examples/$program" train "$recipe" "$@" --seed "$seed" --out "$work/out" --overwrite --quiet --json >"$work/$name-$seed.json"
  done
}
# of_seeds NAME PATH: a number of the three summaries.
of_seeds() { for seed in 1 2 3; do read_number "$work/$1-$seed.json" "$2"; done; }

universes=$build/quickstart/universes
make_universes() {
  [ ! -d "$universes" ] || return 0
  say 'simulating the universes of the quickstart'
  rm -rf "$universes.part"
  mkdir -p "$build/quickstart"
  run_ranks 2 "$build/examples/universe" generate --out "$universes.part" --universes 384 --size 32 --cell 4 --seed 1 --spread >&2
  mv "$universes.part" "$universes"
}

quickstart() {
  make_universes
  trainings quickstart cosmoflow quickstart.toml --data "$universes"
  section 'The quickstart, seeds 1 to 3' "mpiexec -n 2 build/examples/cosmoflow train $recipes/quickstart.toml --data build/quickstart/universes --seed SEED --out run"
  # shellcheck disable=SC2046
  for of in Omega_m,0.29,0.75 sigma_8,0.15,0.95 N_spec,0.55,0.99; do
    parameter=${of%%,*} numbers=${of#*,}
    row "error of $parameter, in units of predicting the mean" "${numbers%,*}" 0.03 '' $(of_seeds quickstart "test.$parameter.ratio")
    row "error of $parameter, in units of the regression's" "${numbers#*,}" 0.1 '' $(of_seeds quickstart "test.$parameter.spectrum_ratio")
  done
  stated '0.29 of predicting the mean for Omega_m, 0.15 for sigma_8 and 0.55 for N_spec'
  # shellcheck disable=SC2046
  row 'training takes (stated: 30 to 60)' 45 - ' s' $(of_seeds quickstart training_seconds)
}

half() {
  make_universes
  for precision in float32 bfloat16 float16; do
    trainings "$precision" cosmoflow cosmoflow_hybrid.toml --data "$universes" --precision "$precision"
  done
  section 'Sixteen bits, seeds 1 to 3' "mpiexec -n 2 build/examples/cosmoflow train $recipes/cosmoflow_hybrid.toml --data build/quickstart/universes --precision PRECISION --seed SEED --out run"
  stated 'are, for training, 0.275 in float32 (0.272 to 0.279), 0.275 in bfloat16'
  for precision in float32 bfloat16 float16; do
    # shellcheck disable=SC2046
    row "$precision: training loss" 0.275 0.01 '' $(of_seeds "$precision" epochs.-1.train_loss)
    # shellcheck disable=SC2046
    row "$precision: test loss" 0.267 0.02 '' $(of_seeds "$precision" epochs.-1.test_loss)
  done
}

volumes() {
  data=$shared/data/3d/adrenalmnist3d/adrenal64.h5
  [ -f "$data" ] || { say "skipped: there is no $data"; return 0; }
  trainings volumes classify adrenal.toml --data "$data"
  section 'Adrenal volumes at 64^3, seeds 1 to 3' "mpiexec -n 2 build/examples/classify train $recipes/adrenal.toml --data adrenal64.h5 --seed SEED --out run"
  # shellcheck disable=SC2046
  row 'area under the curve after ten epochs' 0.858 0.03 '' $(of_seeds volumes validation.auc)
  stated 'reach a validation AUC of 0.858 (0.852 to 0.867)'
  # shellcheck disable=SC2046
  row 'takes' 90 - ' s' $(of_seeds volumes seconds)
}

views() {
  "$build/tests/views_rate" >"$work/views"
  section 'Views of letters' 'build/tests/views_rate'
  row 'pairs' 20000 - ' a second' "$(sed -n 's/.* one core: \([0-9]*\) pairs.*/\1/p' "$work/views")"
  row 'only resized' 2.7 - ' times as many' "$(sed -n 's/.* resized: \([0-9.]*\) times.*/\1/p' "$work/views")"
}

for name in $names; do "$name"; done

results=$root/tests/bench/results/figures-$(date +%F).md
{
  printf '# Figures of README, run again, %s, commit %s\n\n' "$(date +%F)" "$(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo unknown)"
  # shellcheck disable=SC2016  # backquotes of Markdown
  printf '`sh tests/bench/figures.sh %s` on %s; %s. The mean of the runs is judged.\n' "$names" "$(processor)" "$(system_name)"
  cat "$page"
} >"$work/whole.md"
if [ $# -eq 0 ]; then
  mkdir -p "$root/tests/bench/results"
  mv "$work/whole.md" "$results"
  chmod 644 "$results"
  say "written to $results"
fi
[ "$wrong" -eq 0 ] || die "$wrong figures are not what README says"
