#!/bin/sh
# `hpo`: trials that crash, diverge and hang, a search that is killed and goes on, halving from checkpoints, trials at a time. Prints
# `failed: NAME` for each failed test and ends with `N passed, M failed, K skipped`. tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher

tools=$build/examples
. "$root/tests/suite.sh"

hpo=$tools/hpo
[ ! -d "$hpo" ] || hpo=$hpo/hpo
needs 'hpo is' "$hpo"
cd "$work" || exit 1

# holds EXPRESSION: of `d`, the JSON that was printed.
holds() { succeeds && python3 -c "import json, sys; d = json.load(open(sys.argv[1])); sys.exit(not ($1))" "$work/out"; }
gives() { [ "$status" -eq "$1" ]; }
starts() { grep -c "^$1 " "$work/starts"; }

# A trainer whose loss is (x - 3)^2 + 1 / epoch, and which fails as --how says. It goes on from what it wrote.
cat >trainer <<'END'
#!/bin/sh
x=0 how=well epochs=1 seconds=0 out='' resume='' folder=$(dirname "$0")
while [ $# -gt 0 ]; do
  case $1 in
    --help) echo 'options: --x --how --epochs --seconds --out --resume --y-axis'; exit 0 ;;
    --x=*) x=${1#*=} ;;
    --resume) resume=1 ;;
    --*) eval "${1#--}=\$2"; shift ;;
  esac
  shift
done
name=$(basename "$out")
echo "$name threads=$OMP_NUM_THREADS pmi=${PMI_SIZE:-none}" >>"$folder/starts"
epoch=0
[ -z "$resume" ] || [ ! -e "$out/checkpoint" ] || epoch=$(cat "$out/checkpoint")
[ "$epoch" -gt 0 ] || echo 'epoch,loss' >"$out/metrics.csv"
case $how in
  crash) echo 'no memory left' >&2; exit 3 ;;
  kill) kill -SEGV $$ ;;
  nan) echo '[fit] the loss is nan in epoch 1' >&2; exit 1 ;;
  infinite) echo '1,inf' >>"$out/metrics.csv"; exit 0 ;;
  silent) exec sleep 60 ;;
  slow) while :; do echo 1; sleep 0.1; done ;;
  nothing) rm "$out/metrics.csv"; exit 0 ;;
esac
while [ "$epoch" -lt "$epochs" ]; do
  sleep "$seconds"
  epoch=$((epoch + 1))
  echo "$epoch,$(awk "BEGIN { print ($x - 3) ^ 2 + 1 / $epoch }")" >>"$out/metrics.csv"
  echo "$name $epoch" >>"$folder/epochs"  # before the checkpoint: a kill between them repeats an epoch
  echo "$epoch" >"$out/checkpoint.new" && mv "$out/checkpoint.new" "$out/checkpoint"
done
END
chmod +x trainer
fresh() {
  rm -rf search
  : >starts
  : >epochs
}
search() { run "$hpo" --cores 2 --out search "$@"; }

# ---- failures stay where they are

cat >failures.toml <<'END'
program = ["./trainer"]
metric = "loss"
[parameters]
how = ["well", "crash", "kill", "nan", "infinite", "silent", "nothing", "slow"]
x = [1, 2]
END
fresh
search --space failures.toml --slots 2 --stall 3 --limit 8 --json
# Silent ones end by --stall; slow ones, which print, by --limit.
judge 'a crash, a signal, NaN, a hang: the others go on' \
  holds "[d[k] for k in ('done', 'crashed', 'diverged', 'hung')] == [2, 6, 4, 4] and d['best']['value'] == 2 and d['best']['parameters'] == {'how': 'well', 'x': 2}"
judge 'their reasons' \
  holds "sorted({t['reason'] for t in d['trials'] if t['status'] != 'done'}) == ['exit code 1: [fit] the loss is nan in epoch 1', 'exit code 3: no memory left', 'it had not ended after 8 s', 'it printed and wrote nothing for 3 s', 'it wrote no metrics.csv', 'loss is inf', 'signal 11']"
judge 'threads of a rank' grep -q 'threads=1' starts
judge 'a picture' test -s search/hpo.png
judge 'the document' python3 -m json.tool search/hpo.json
judge 'every trial in the table' test "$(wc -l <search/results.csv)" -eq 17
search --space failures.toml --slots 2 --stall 3 --limit 8
judge 'a table for people' says '^trial 3 crashed (how=crash x=1): exit code 3: no memory left'
judge 'nothing is done twice' test "$(wc -l <starts)" -eq 16
sed 's/, "kill".*/]/' failures.toml >some.toml
fresh
search --space some.toml --quiet
search --space some.toml --retry-failed --quiet
judge '--retry-failed' test "$(starts 0001) $(starts 0003) $(starts 0004)" = '1 2 2'
sed 's/"well", //' some.toml >crash.toml
fresh
search --space crash.toml --quiet
judge 'all of them fail' gives 1

# ---- what was ended goes on

cat >long.toml <<'END'
program = ["./trainer", "--epochs", "3", "--seconds", "{pause}"]
metric = "loss"
resume = ["--resume"]
[variables]
pause = 0.15
[parameters]
x = [0, 1, 2, 3, 4, 5, 6, 7]
END
lines_of() { if [ -e "$1" ]; then wc -l <"$1"; else echo 0; fi; }
# wait_for FILE LINES, for 20 s at most.
wait_for() {
  tries=0
  while [ "$(lines_of "$1")" -lt "$2" ] && [ "$tries" -lt 400 ]; do
    sleep 0.05
    tries=$((tries + 1))
  done
}
# ended_by SIGNAL [first]: a search is ended when two trials have; its exit status is $status. With `first` its trials get the
# signal before it.
ended_by() {
  fresh
  timeout -k 5 60 "$hpo" --cores 2 --slots 2 --space long.toml --out "$work/search" >out 2>err &
  wait_for search/results.csv 3
  sleep 0.2
  # Of timeout the child: what is killed itself hands no signal on.
  process=$(pgrep -P $!)
  [ -z "${2:-}" ] || { pkill "-$1" -f "$work/search/trials" && sleep 0.2; }
  kill "-$1" "$process"
  wait $! 2>/dev/null
  status=$?
  cp search/results.csv before.csv
}
once_each() {
  tail -n +2 before.csv | cut -d , -f 1 >ended
  [ -s ended ] || return 1
  while read -r trial; do [ "$(starts "000$trial")" -eq 1 ] || return 1; done <ended
}
ended_by KILL
sleep 0.5
judge 'its trials are killed with it' test -z "$(pgrep -f "$work/search/trials")"
printf '3,0,0,0,2,do' >>search/results.csv
search --space long.toml --json
judge 'killed, it goes on' holds "d['done'] == 8 and d['best']['parameters'] == {'x': 3}"
judge 'what had ended is not repeated' once_each
judge 'trials go on with their epochs' test "$(sort -u epochs | wc -l)" -eq 24 -a "$(wc -l <epochs)" -le 26
ended_by TERM
judge 'SIGTERM: exit code 75' gives 75
search --space long.toml --json
judge 'and it goes on' holds "d['done'] == 8"
judge 'what had ended then is not repeated' once_each
ended_by TERM first
judge 'SIGTERM to trials and then to the search: exit code 75' gives 75
judge 'they are not taken for crashed' test -z "$(grep ,crashed, before.csv)"
sed 's/7\]/8]/' long.toml >other.toml
search --space other.toml
judge "another space's folder is refused" refuses_arguments 'is of another search: its parameters differ'
search --space long.toml --set pause=0
judge 'and another program' refuses_arguments 'is of another search: its program differs'
sed 's/^resume = .*/resume = ["--resume", "--seconds", "0"]/' long.toml >other.toml
search --space other.toml
judge 'and another way of going on' refuses_arguments 'is of another search: its resume differs'
search --space long.toml --set pause=0 --overwrite --quiet
judge '--overwrite' succeeds
mkdir theirs && : >theirs/file
run "$hpo" --space long.toml --out theirs --overwrite
judge 'a folder that is not its own' refuses_arguments 'has files, and they are of no search'
timeout -k 5 60 "$hpo" --cores 2 --space long.toml --out open --quiet >other.out 2>&1 &
wait_for open/results.csv 1
run "$hpo" --cores 2 --space long.toml --out open
judge 'two at once' refuses_arguments 'another process is at work in open: process [0-9]* on '
kill $!
wait $!

# ---- halving goes on from checkpoints

cat >rungs.toml <<'END'
program = ["./trainer"]
metric = "loss"
resume = ["--resume"]
[resource]
option = "epochs"
most = 9
[parameters]
x = {from = -10, to = 10}
END
fresh
search --space rungs.toml --strategy halving --json --quiet
judge 'halving' \
  holds "d['done'] == 9 and [[r['trials'], r['resource']] for r in d['brackets'][0]] == [[9, 1], [3, 3], [1, 9]] and d['best']['value'] == min(t['value'] for t in d['trials'])"
best_go_on() {
  python3 - <<'END'
import csv
rows = list(csv.DictReader(open('search/results.csv')))
first = sorted((r for r in rows if r['rung'] == '0'), key=lambda r: float(r['value']))
assert {r['trial'] for r in rows if r['rung'] == '1'} == {r['trial'] for r in first[:3]}
assert {r['trial'] for r in rows if r['rung'] == '2'} == {first[0]['trial']}
END
}
judge 'the best go on' best_go_on
judge 'from their checkpoints: no epoch twice' test "$(wc -l <epochs)" -eq 21 -a -z "$(sort epochs | uniq -d)"
run "$hpo" --space rungs.toml --strategy hyperband --most 81 --dry-run
judge "hyperband's brackets" says '143 trials, 1581 epochs in all'
fresh
search --space rungs.toml --strategy hyperband --quiet --json
judge 'hyperband' holds "len(d['trials']) == 17 and d['best']['value'] < 4"
fresh
search --space rungs.toml --strategy random --trials 3 --most 2 --quiet
search --space rungs.toml --strategy random --trials 5 --most 2 --quiet --json
judge 'a random search of more trials goes on' holds "d['done'] == 5"
judge 'with those it has' test "$(sort -u starts | wc -l) $(wc -l <starts)" = '5 5'

# ---- trials at a time

cat >pause.toml <<'END'
program = ["./trainer", "--seconds", "0.8"]
metric = "loss"
[parameters]
x = [1, 2, 3, 4, 5, 6]
END
fresh
search --space pause.toml --compare 1x1,1x2 --quiet --json
# Of trials that sleep, so that cores that are busy matter little; 2 on an idle machine.
judge 'two trials at a time are faster' holds "d[1]['speedup'] > 1.2 and d[1]['trials_at_a_time'] == 2"
fresh
ranks 1 "$hpo" --cores 2 --space pause.toml --trials 1 --out search --quiet
judge 'under mpiexec -n 1' succeeds
judge 'trials know nothing of it' grep -q 'pmi=none' starts
ranks 2 "$hpo" --cores 2 --space pause.toml --trials 1 --out search --quiet
judge 'under mpiexec -n 2' refuses 'hpo is one process'

# ---- a trainer of ours

python3 - <<'END'
import random, struct
random.seed(1)
images, labels = b"", b""
for i in range(96):
    labels += bytes([i % 2])
    images += bytes(min(255, max(0, int(random.gauss(90 + 80 * (i % 2) * (p // 16 < 8), 30)))) for p in range(256))
open("tiny-images-idx3-ubyte", "wb").write(struct.pack(">IIII", 2051, 96, 16, 16) + images)
open("tiny-labels-idx1-ubyte", "wb").write(struct.pack(">II", 2049, 96) + labels)
END
sed "s|build/examples|$tools|; s|\"--quiet\"|\"--filters\", \"4\"|; s|^epochs = .*|epochs = [1, 2]|; s|^batch.*|batch = [16]|" \
  "$root/examples/studies/hpo/mnist.toml" >tiny.toml
run "$hpo" --cores 2 --space tiny.toml --set data=tiny-images-idx3-ubyte --out digits --quiet
judge 'classify' says '^6 trials: 6 done'
sed -n '/^To train the best again/{n;p;}' out >best.sh
value=$(awk '$1 == "1" { print $3; exit }' out)
run sh best.sh
judge 'the command for the best runs' succeeds
judge 'and trains the same' \
  python3 -c "import csv, sys; assert abs(float(list(csv.DictReader(open('digits/best/metrics.csv')))[-1]['validation_loss']) / float(sys.argv[1]) - 1) < 1e-4" "$value"
cat >two.toml <<END
program = ["$tools/classify", "train", "--data", "tiny-images-idx3-ubyte", "--set", "data.validation_fraction=0.2", "--filters", "4",
           "--set", "schedule.shape=constant"]
metric = "validation_loss"
resume = ["--set", "checkpoint.epochs=1", "--resume"]
[resource]
option = "epochs"
most = 2
[parameters]
learning-rate = {from = 1e-3, to = 1e-2, scale = "log"}
END
run "$hpo" --cores 2 --space two.toml --strategy halving --eta 2 --ranks-per-trial 2 --launcher "$MPIEXEC -n {ranks}" --out two --quiet --json
judge 'two ranks for a trial, halving' holds "d['done'] == 2 and d['best']['command'].count(' -n 2 ') == 1"
judge 'the better one went on' grep -q 'going on from' two/trials/*/output-2.txt
sed 's/^learning-rate = .*/learning-rate = [1e-3, 1e20]/; s/^most.*/most = 2/' two.toml >nan.toml
run "$hpo" --cores 2 --space nan.toml --out nan --quiet --json
judge 'a learning rate with which it diverges' holds "d['done'] == 1 and d['diverged'] == 1"

# ---- what makes no sense

refused() {
  what=$1 how=$2
  shift 2
  fresh
  search "$@"
  judge "$what" refuses_arguments "$how"
  judge "$what: nothing was made" no_file search
}
space() { printf 'program = ["./trainer"]\nmetric = "loss"\n%s\n' "$1" >bad.toml; }
space '[parameters]
x = []'
refused 'an empty list' '^hpo: bad.toml:4: x of \[parameters\] is empty' --space bad.toml
space '[parameters]
x = {from = 0, to = 1, scale = "log"}'
refused 'a log scale from 0' '^hpo: bad.toml:4: from of the range x is 0' --space bad.toml
space 'speed = 1'
refused 'an unknown key' '^hpo: bad.toml:3: the file has no key "speed"' --space bad.toml
space '[parameters]
y = [1]'
refused 'an option that the program does not have' '^hpo: bad.toml: ./trainer has no option --y ' --space bad.toml
space '[parameters]
x = {from = 0, to = 1}'
refused 'a grid over a range without points' 'a grid needs points = N for the range x' --space bad.toml
refused 'halving without a resource' 'needs \[resource\]' --space bad.toml --strategy halving
refused 'random without a number' 'needs --trials' --space bad.toml --strategy random
refused 'a strategy that there is not' 'annealing' --space bad.toml --strategy annealing
refused 'more ranks than cores' 'do not fit: 1 host of 2 cores' --space long.toml --ranks-per-trial 3
refused 'more trials than cores' 'do not fit: 1 host of 2 cores' --space long.toml --slots 3
# Names that end in .invalid are nowhere; an ssh of ours knows one of them.
mkdir path
printf '%s\n' '#!/bin/sh' 'case " $* " in *known*) exit 0 ;; esac' 'exit 255' >path/ssh
printf '%s\n' '#!/bin/sh' 'printf "node1\nnode2\n"' >path/scontrol
chmod +x path/ssh path/scontrol
before=$PATH PATH=$PWD/path:$PATH
refused 'an unknown host, and no other' '^hpo: --hosts node9.invalid: there is no host of that name' --space long.toml --hosts node9.invalid,known.invalid
refused 'also with a launcher that gets it' '^hpo: --hosts node9.invalid: there is no host' --space long.toml --hosts node9.invalid --launcher 'echo {hosts}'
SLURM_JOB_ID=1 SLURM_JOB_NODELIST='node[1-2]'
export SLURM_JOB_ID SLURM_JOB_NODELIST
refused 'a host that the allocation does not have' '^hpo: --hosts node3: the allocation has no host of that name, but node1,node2' --space long.toml --hosts node1,node3
unset SLURM_JOB_ID SLURM_JOB_NODELIST
PATH=$before
refused 'a comparison that does not fit' 'do not fit' --space long.toml --compare 1x2,2x2
refused 'no comparison' "not '1x2,2'" --space long.toml --compare 1x2,2
refused 'a variable that there is not' 'does not name it' --space long.toml --set data=x
refused 'a launcher that is not there' 'no program /no/such/launcher' --space long.toml --launcher '/no/such/launcher -n {ranks}'
printf 'program = ["./no-trainer"]\nmetric = "loss"\n[parameters]\nx = [1]\n' >bad.toml
refused 'a program that is not there' '^hpo: there is no program ./no-trainer' --space bad.toml
printf 'program = ["false"]\nmetric = "loss"\n[parameters]\nx = [1]\n' >bad.toml
refused 'a program without --help' 'does not tell its options' --space bad.toml
refused 'a space file that is not there' 'no such space file' --space none.toml
run "$hpo" --help
judge 'help' says '--space'
for file in "$root"/examples/studies/hpo/*.toml; do
  run "$hpo" --space "$file" --set data=x --dry-run
  judge "$(basename "$file")" succeeds
done
summary
