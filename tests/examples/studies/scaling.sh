#!/bin/sh
# `scaling`: how fast grids train, and how fast more workers learn. Prints `failed: NAME` for each failed test and ends with
# `N passed, M failed, K skipped`. tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher

tools=$build/examples
. "$root/tests/suite.sh"

scaling=$tools/scaling
needs 'scaling is' "$scaling"
study=$work/study
# holds EXPRESSION: of `d`, the JSON that was printed.
holds() { python3 -c "import json, sys; d = json.load(open(sys.argv[1])); sys.exit(not ($1))" "$work/out"; }
holds_all() { succeeds && holds "$1"; }
# Exit 1, some runs failed, and what was printed matches.
tells_failure() { [ "$status" -eq 1 ] && grep -q -e "$1" "$work/out"; }
fails_but() { [ "$status" -eq 1 ] && holds "$1"; }

# ---- speed

speed() { run "$scaling" speed --launcher "$MPIEXEC -n {ranks}" --out "$study" "$@"; }
trainer=$tools/cosmoflow
run "$tools/universe" generate --universes 6 --out "$work/universes" --size 16
if succeeds; then
  speed --grids "sample=1 sample=2 depth=2" --repeats 1 --json -- "$trainer" train --filters 4 --data "$work/universes" --epochs 1 --batch 2
  judge 'three grids' holds_all "[r['ranks'] for r in d['results']] == [1, 2, 2] and all(r['samples_per_second'] > 0 and r['batch'] == 2 for r in d['results'])"
  judge 'their speed-ups follow from their rates' holds_all "all(abs(r['parallel_speed_up'] * d['results'][0]['samples_per_second'] / r['samples_per_second'] - 1) < 1e-9 and abs(r['efficiency'] * r['ranks'] - r['parallel_speed_up']) < 1e-9 for r in d['results'])"
  judge 'communication, of two ranks' holds_all "d['results'][0]['exposed_communication'] == 0 and all(abs(r['exposed_communication'] - max(0, 1 - r['samples_per_second'] / r['runs_without_communication'][0])) < 1e-9 for r in d['results'][1:])"
  judge 'waiting and memory' holds_all "all(0 <= r['waiting_for_data'] < 1 and r['peak_bytes_per_rank'] > 0 for r in d['results'])"
  judge 'a table for the report' holds_all "d['kind'] == 'speed' and len(d['table']['rows']) == 3 and all(len(r) == len(d['table']['header']) for r in d['table']['rows'])"
  judge 'its picture' test -s "$study/speed-cosmoflow-strong.png"
  judge 'its table' test "$(wc -l <"$study/speed-cosmoflow-strong.csv")" -eq 4
  judge 'the report has the picture' grep -q 'data:image/png' "$study/report.html"
  run "$scaling" report "$study"
  judge 'the report again' succeeds
  speed --grids sample=1 -- "$trainer" train --filters 4 --data "$work/universes" --batch 2
  judge 'no results are overwritten' refuses_arguments 'speed-cosmoflow-strong.json exists'
  speed --grids depth=2 --mode weak --name grown --repeats 2 -- "$trainer" train --filters 4 --data "$work/universes" --epochs 1 --batch=1
  judge 'a batch that grows, speed-ups against two ranks' says '^depth=2 *2 *2 .* 2.00 *1.000 '
  speed --grids 'sample=1 sample=2' --mode weak --name wide --repeats 1 --json -- "$trainer" train --filters 4 --data "$work/universes" --epochs 1 --batch 3
  judge 'a batch that there are no samples for' fails_but "d['results'][0]['samples_per_second'] > 0 and d['results'][1]['failure'].startswith('exit code 2: cosmoflow: --batch 6 is more than the 5 samples') and d['table']['rows'][1][-1] == d['results'][1]['failure']"
  speed --grids sample=1 --name late --limit 1 -- "$trainer" train --filters 4 --data "$work/universes" --epochs 100000 --batch 2
  judge 'a run that does not end' tells_failure 'had not ended after 1 s'
  speed --grids 'sample=2 sample=1' --name nothing --repeats 1 -- "$trainer" train --data "$work/none" --epochs 1 --batch 2
  judge 'without data' tells_failure 'exit code .*none: no such file'
  judge 'nothing measured, no picture' no_file "$study/speed-nothing-strong.png"
  noisy() { ranks 2 "$trainer" train --filters 4 --data "$work/universes" --epochs 2 --batch 2 --set report.noise_scale "$@"; }
  noisy --grid sample=2 --out "$work/noisy" --json
  judge 'a trainer measures the noise scale' holds_all "d['noise_steps'] == 4 and 'noise_scale' in d and 'critical_batch' in d"
  noisy --grid sample=2 --out "$work/noisy" --overwrite
  judge 'and says it' says '^gradient noise scale, of 4 steps: .* at the end, .* over the training'
  noisy --grid depth=2 --out "$work/shared"
  judge 'but not where ranks share samples' refuses_arguments 'sample=RANKS'
else
  skip 'no universes to train on'
fi
cat >"$work/sleeper" <<'END'
#!/bin/sh
echo $$ >"$0.pid"
exec sleep 60
END
chmod +x "$work/sleeper"
(
  while [ ! -s "$work/sleeper.pid" ]; do sleep 0.1; done
  kill -TERM "$(cat "$work/pid")"
) &
# shellcheck disable=SC2016  # of that shell
run sh -c 'echo $$ >"$1"; shift; exec "$@"' sh "$work/pid" "$scaling" speed --grids sample=1 --launcher "$MPIEXEC -n {ranks}" --out "$work/ended" -- "$work/sleeper" --batch 1
judge 'a signal ends it' test "$status" -eq 143
gone() {
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    kill -0 "$(cat "$work/sleeper.pid")" || return 0
    sleep 1
  done
  return 1
}
judge 'and its run' gone

speed --grids sample=1
judge 'no program' refuses_arguments 'no program to run'
speed --grids sample=1 -- "$work/none" train --batch 2
judge 'a program that is not there' refuses_arguments 'no program .*none'
speed -- "$trainer" train --batch 2
judge 'no grids' refuses_arguments '--grids names no grid'
speed --grids 'sample=1 deep=2' -- "$trainer" train --batch 2
judge 'an axis that does not exist' refuses_arguments "no axis 'deep'"
speed --grids 'depth=2 depth=2,sample=1' -- "$trainer" train --batch 2
judge 'a grid twice' refuses_arguments 'depth=2 twice'
for option in --grid=depth=2 '--out run' --json --resume '--set grid.communication=none'; do
  # shellcheck disable=SC2086  # an option and its value
  speed --grids sample=1 -- "$trainer" train --batch 2 $option
  judge "an argument that is not the program's: $option" refuses_arguments "is not among the program's arguments"
done
speed --grids sample=1 -- "$trainer" train
judge 'no batch' refuses_arguments 'needs --batch'
speed --grids sample=1 --mode both -- "$trainer" train --batch 2
judge 'a mode that does not exist' refuses_arguments 'both not in'
run "$scaling" speed --grids sample=1 --launcher 'mpiexec -n {rank}' -- "$trainer" train --batch 2
judge 'a launcher without ranks' refuses_arguments 'no {rank}'
run env PMI_SIZE=2 PMI_RANK=0 "$scaling" speed --grids sample=1 -- "$trainer" train --batch 2
judge 'speed on ranks' refuses_arguments 'speed is one process'
run "$scaling" report "$work/none"
judge 'a report of nothing' refuses 'has no results'

# ---- learn

learn() { run "$scaling" learn --out "$work/learn" --quiet "$@"; }
learn --task quadratic --workers 1,2,4,8,64 --seeds 2 --json
judge 'a noisy quadratic follows the law within 5 %' holds_all "[r['reached'] for r in d['results']] == [2] * 5 and all(abs(r['statistical_efficiency'] / r['predicted_efficiency'] - 1) < 0.05 for r in d['results'])"
judge 'and has the noise scale that was put into it' holds_all "abs(d['critical_batch'] / 32 - 1) < 0.1 and abs(d['most_learning_speed_up'] / 9 - 1) < 0.1"
judge 'learning speed-up is parallel speed-up times efficiency' holds_all "all(abs(r['learning_speed_up'] - r['parallel_speed_up'] * r['statistical_efficiency']) < 1e-9 for r in d['results'])"
judge 'one copy of the network serves 64 workers' holds_all "d['results'][-1]['copies_per_rank'] == 1 and d['results'][-1]['copy_bytes_per_rank'] > 0"
cp "$work/out" "$work/alone"
judge 'its picture and the report' test -s "$work/learn/learn-quadratic-gradients.png" -a -s "$work/learn/report.html"
judge 'its table as CSV' [ "$(grep -c '^[0-9]*,1,.*,ideal$' "$work/learn/learn-quadratic-gradients.csv")" -eq 5 ]
run "$scaling" learn --out "$work/learn" --task quadratic --workers 1,2,4,8,64 --seeds 2
judge 'what is there is not trained again' silent
run "$scaling" learn --task quadratic --workers 1,2,3,4,8,64 --seeds 2 --json --quiet --out "$work/two" --transport threads --ranks 2
judge 'the same on two ranks, of which one has a worker alone or three' holds_all "all(abs(a['samples'] / b['samples'] - 1) < 1e-3 for a, b in zip([r for r in d['results'] if r['workers'] != 3], json.load(open('$work/alone'))['results']))"
run "$scaling" learn --task quadratic --workers 1,2 --seeds 1 --json --quiet --out "$work/timed" --transport threads --ranks 2
judge 'where each worker has a rank its time is measured, and one worker has one' holds_all "all(r['rate_is'] == 'measured' and abs(r['seconds'] * r['samples_per_second'] / r['samples'] - 1) < 1e-9 for r in d['results'])"
# Processes find what one does, with weights that are averaged in pairs, too.
for how in '' '--sync-every 2 --gossip'; do
  # shellcheck disable=SC2086  # several words, or none
  run "$scaling" learn --task quadratic --workers 1,2,4 --seeds 1 $how --json --quiet --out "$work/one$how"
  cp "$work/out" "$work/one.json"
  # shellcheck disable=SC2086
  ranks 2 "$scaling" learn --task quadratic --workers 1,2,4 --seeds 1 $how --json --quiet --out "$work/processes$how"
  judge "learn under the launcher $how" holds_all "all(abs(a['samples'] / b['samples'] - 1) < 1e-9 for a, b in zip(d['results'], json.load(open('$work/one.json'))['results']))"
done
few="--seeds 1 --tuning-seeds 1 --learning-rates 0.05"
# shellcheck disable=SC2086  # several words
learn --task lattice-norm --workers 1,2 --goal 0.6 --budget 8000 $few --machine "$root/examples/machines/summit.toml" --more-workers 15000 --json
judge 'time is simulated, samples of more workers are the law' holds_all "[(r['rate_is'], r['samples_are']) for r in d['results']] == [('simulated', 'measured')] * 2 + [('simulated', 'law')] and d['results'][2]['workers'] == 15000 and d['results'][2]['learning_speed_up'] < d['most_learning_speed_up']"
# shellcheck disable=SC2086
learn --task folding --workers 1,2 --goal 0.07 --budget 8000 $few --sync-every 4 --gossip --json
judge 'gossip, each worker with a copy' holds_all "d['synchronisation'] == 'gossip' and d['every'] == 4 and [r['copies_per_rank'] for r in d['results']] == [2, 3] and d['critical_batch'] is None"
# shellcheck disable=SC2086
learn --task contrastive --workers 1,2 --goal 0.65 --budget 8000 $few
judge 'no noise scale of a contrastive loss' says 'noise scale: undefined, because the loss of a batch is no mean'
run "$scaling" report "$work/learn"
judge 'all of it on one page' test "$(grep -c 'data:image/png' "$work/learn/report.html")" -eq 4
learn --task lattice --workers 1,2 --goal 1e-9 --budget 64 --seeds 1 --learning-rates 0.01
judge 'no quality reached' refuses_arguments 'goal 1e-09: 0 of 1 trainings of 1 worker reached it within 64 samples'
learn --task lattice --workers 1,2 --goal 0.99 --seeds 1 --learning-rates 0.01
judge 'a goal that needs no training' refuses_arguments 'before the first step'
# shellcheck disable=SC2086
learn --task lattice-norm --workers 1,64 --goal 0.6 --budget 1500 --seeds 1 --learning-rates 0.05 --json
judge 'too many workers for the budget: no number, and not 0' holds_all "d['results'][0]['samples'] > 0 and all(d['results'][1][k] is None for k in ('samples', 'statistical_efficiency', 'learning_speed_up')) and d['results'][1]['reached'] == 0"
judge 'a goal of its own in the files names' test -s "$work/learn/learn-lattice-norm-gradients-goal0.6.json"
cp "$work/learn/runs.csv" "$work/runs.csv"
sed -i '1s/.*/task,samples/' "$work/learn/runs.csv"
learn --task quadratic --workers 1
judge 'runs of another version' refuses_arguments 'of this version'
cp "$work/runs.csv" "$work/learn/runs.csv"
summit=$root/examples/machines/summit.toml
learn --task lattice --workers 1,2 --more-workers 128
judge 'more workers without a machine' refuses_arguments 'needs --machine'
learn --task lattice --workers 1,2 --more-workers 128 --machine "$summit" --sync-every 4
judge 'more workers without a law' refuses_arguments 'gradients that are averaged in every step'
learn --task lattice --workers 1,2 --more-workers 2 --machine "$summit"
judge 'more workers that are no more' refuses_arguments 'the samples are measured'
learn --task lattice --workers 1,2 --more-workers 65536 --machine "$summit"
judge 'more workers than the machine has' refuses_arguments 'ranks'
learn --task quadratic --workers 2,4
judge 'nothing to compare with' refuses_arguments 'workers needs 1'
learn --task quadratic --machine "$work/none.toml"
judge 'no such machine' refuses_arguments 'none.toml'
learn --task images
judge 'images without a folder' refuses_arguments 'images FOLDER'
learn --task lattice --workers 1,4096
judge 'more workers than samples' refuses_arguments 'too few'
learn --task nothing
judge 'no such task' refuses_arguments 'task'
run "$scaling" report "$work/empty"
judge 'nothing to report' refuses 'no results'
ranks 2 "$scaling" report "$work/learn"
judge 'a report on ranks' refuses 'one process'
(
  flock 9
  : >"$work/held"
  sleep 60
) 9>"$work/learn/.lock" &
holder=$!
while [ ! -e "$work/held" ]; do sleep 0.1; done
learn --task quadratic --workers 1
judge 'two in a folder at once' refuses 'another process is at work'
kill "$holder"

run "$scaling" --help
judge 'help' says 'speed'
summary
