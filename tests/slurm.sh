#!/bin/sh
# Runs examples/packaging/jobs/slurm.sh under a real Slurm, as an ordinary user does: the daemons of Debian's slurm-wlm, two nodes
# on this machine (tests/comm/process/slurm/cluster.sh), Slurm's defaults. Called by `sh tests/run.sh slurm`, which installs and
# builds; takes about 10 minutes.
#
#   sh tests/slurm.sh [--ports] [--no-page]
#
#   --ports     the nodes are two ports of this machine, as where namespaces are not permitted
#   --no-page   do not write the results to tests/bench/results/platforms.md
#
# Prints `failed: NAME` for each failed test and ends with `N passed, M failed, K skipped`. Needs root. All daemons and jobs end
# with the script. Where Slurm runs already, it does nothing: one skipped test.
# shellcheck disable=SC2016,SC2154  # texts with `words`; variables of suite.sh
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
. "$root/examples/packaging/packages.sh"
nodes=namespaces page=yes
for argument; do
  case $argument in
    --ports) nodes=ports ;;
    --no-page) page= ;;
    -h | --help) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) die "slurm.sh knows --ports and --no-page, got $argument" ;;
  esac
done
commit=$(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo unknown)
git -C "$root" diff --quiet HEAD -- . ':!tests/bench/results' ':!tests/long.md' 2>/dev/null || commit="$commit and changes"
. "$root/tests/suite.sh"
. "$root/tests/comm/process/slurm/cluster.sh"
. "$root/tests/comm/process/slurm/jobs.sh"
rows=$work/rows

without() {
  skip "Slurm: $*"
  summary
  exit
}
[ "$(id -u)" -eq 0 ] || without 'only root may start its daemons'
for program in slurmctld slurmd munged srun setpriv; do have "$program" || without "$program is not installed"; done
remove_remains
! pgrep -x slurmctld >/dev/null && ! pgrep -x slurmd >/dev/null || without 'it already runs on this machine'
needs 'the tools are' "$build/examples/elastic" "$build/examples/cosmoflow" "$build/examples/universe" "$build/examples/hpo"
choose_launcher
trap 'stop_cluster; rm -rf "$work"' EXIT

# shows NAME CONDITION...: one test and its row in the page. SEEN is what the row says about the run.
shows() {
  name=$1 failures=$failed seen=${seen:-}
  judge "$@"
  outcome=passed
  [ "$failed" -eq "$failures" ] || outcome=failed
  printf '| %s | %s | %s | %s |\n' "$name" "$outcome" "$(($(date +%s) - began))" "$seen" >>"$rows"
  say "$outcome: $name ($(($(date +%s) - began)) s) $seen"
  seen='' began=$(date +%s)
}
omits() {
  skip "$1: $2"
  printf '| %s | not tried | | %s |\n' "$1" "$2" >>"$rows"
  began=$(date +%s)
}
as_user_for() {  # SECONDS COMMAND...
  as_user timeout -k 5 "$@" >"$work/out" 2>"$work/err" </dev/null
  status=$?
}
# After a job: what it printed, for a test that fails. Ends a job that is still there.
look_at() {
  status=0
  { tail -n 12 "$home/$1.out"; as_admin squeue -h; } >"$work/err" 2>&1
  if ! no_job; then
    as_admin scancel --user="$user"
    release "$1"
    ended 120
  fi
}

began=$(date +%s)
mkdir "$home" && chown "$user" "$home"
start_cluster || {
  cluster_log >&2
  stop_cluster
  without "it does not start: $problem"
}
as_user test -x "$build/examples/cosmoflow" || without "the user $user may not read $build"
prepare_home || die "no universes: $(cat "$work/err")"

# ---- launchers

train() { echo "mpigrad/build/examples/cosmoflow train --data universes --grid depth=2 --epochs $1 $small --out $2"; }
refused() { [ "$status" -eq 2 ] && [ "$(grep -c '^\[launch\]' "$work/err")" -eq 1 ] && grep -q '^\[launch\] .*srun.*--mpi=pmi2' "$work/err"; }
# shellcheck disable=SC2046  # several words
{
  as_user_for 120 srun --ntasks=2 --nodes=2 $(train 5 copies)
  seen=$(grep '^\[launch\]' "$work/err" | head -n 1)
  shows 'plain `srun`: refused in one line, exit code 2' refused
  as_user_for 120 srun --mpi=pmix --ntasks=2 --nodes=2 $(train 5 copies)
  if grep -q 'Invalid MPI type' "$work/err"; then
    omits '`srun --mpi=pmix` with MPICH: refused in one line' 'Slurm has no PMIx here'
  else
    seen=$(grep '^\[launch\]' "$work/err" | head -n 1)
    shows '`srun --mpi=pmix` with MPICH: refused in one line' refused
  fi
  as_user_for 120 srun --mpi=pmi2 --ntasks=2 --nodes=2 $(train 200 pmi2)
  shows '`srun --mpi=pmi2`: two nodes, one world' epochs_of pmi2 200
  as_user_for 120 salloc --nodes=2 --ntasks-per-node=1 "$MPIEXEC" -n 2 $(train 200 mpiexec)
  shows "\`$MPIEXEC\` in \`salloc\`: the same losses" near_losses "$home/pmi2/metrics.csv" "$home/mpiexec/metrics.csv"
  as_user_for 240 sbatch --wait --nodes=2 --ntasks-per-node=1 --output=default.out --wrap \
    "exec mpigrad/build/examples/elastic --ranks-per-host 1 -- $(train 200 default)"
  cat "$home/default.out" >>"$work/err"
  one_start() { ! starts default 2 && near_losses "$home/pmi2/metrics.csv" "$home/default/metrics.csv"; }
  shows '`elastic` with its default launcher: the same losses' one_start
  as_user_for 240 sbatch --wait --nodes=2 --ntasks-per-node=1 --output=speed.out --wrap \
    "exec mpigrad/build/examples/scaling speed --grids 'sample=1 sample=2' --repeats 1 --out speed -- mpigrad/build/examples/cosmoflow train --data universes --epochs 20 --filters 2 --batch 4"
  cat "$home/speed.out" >>"$work/err"
  two_grids() { [ "$status" -eq 0 ] && grep -q '^sample=2  *2 ' "$home/speed.out"; }
  shows '`scaling speed` with its default launcher: one rank and two' two_grids
}

# Slurm's PMIx starts Open MPI's ranks.
tested='`mpigrad-selftest`, built with Open MPI, by `srun --mpi=pmix` on two nodes' selftest=$build/mpis/with-tools-openmpi-4/examples/mpigrad-selftest
if [ -x "$selftest" ]; then
  as_user_for 300 srun --mpi=pmix --ntasks=4 --nodes=2 "$selftest" --folder .
  seen=$(grep -ah -e '^MPI ' -e '^ranks ' -e ' passed, ' "$work/out" | paste -s -d ';' | sed 's/;/; /g')
  self_tested() { [ "$status" -eq 0 ] && grep -aq 'passed, 0 failed' "$work/out"; }
  shows "$tested" self_tested
  as_user_for 60 srun --mpi=none --ntasks=2 --nodes=2 "$selftest" --folder .
  refused_open() { [ "$status" -eq 2 ] && grep -q '^\[launch\] .*srun --mpi=pmix -n 2' "$work/err"; }
  shows 'the same by plain `srun`: refused' refused_open
else
  omits "$tested" '`sh tests/run.sh mpis openmpi-4` builds it'
fi

# ---- jobs

near() {  # 1e-6, relative: rounding errors of other grids
  awk -F, 'FNR == 1 { file++; next } file == 1 { a[FNR] = $2 } file == 2 { d = $2 - a[FNR]; n++; if (d < 0) d = -d; if (d > 1e-6 * a[FNR]) bad = 1 }
    END { exit bad || n < 100 }' "$1" "$2"
}
finished() {
  is_in_state "$1" finished && [ -s "$home/$1/weights.h5" ] && epochs_of "$1" "$epochs" && near "$home/unbroken/metrics.csv" "$home/$1/metrics.csv"
}

edit_script unbroken
submit unbroken && ended 900
look_at unbroken
seen="$epochs epochs"
shows '`slurm.sh` on two nodes, unbroken' finished unbroken

edit_script four -e 's/--ntasks-per-node=1/--ntasks-per-node=2/; s/--ranks-per-host 1/--ranks-per-host 2/; s/--grid depth=2/--grid sample=2,depth=2/'
submit four && ended 900
look_at four
shows '`slurm.sh` on two nodes, two ranks on each: the same losses' finished four

tested='`slurm.sh` with a build for Open MPI: the same losses'
if [ -x "$selftest" ]; then
  mkdir "$home/other" && ln -s "$root/examples" "$home/other/examples" && ln -s "${selftest%/examples/*}" "$home/other/build"
  edit_script open -e "s|^MPIGRAD=.*|MPIGRAD=$home/other DATA=universes|"
  submit open && ended 900
  look_at open
  shows "$tested" finished open
else
  omits "$tested" '`sh tests/run.sh mpis openmpi-4` builds it'
fi

edit_script limit -e 's/--time=00:30:00/--time=00:01:00/; s/B:USR1@300/B:USR1@15/'
submit limit && hold limit && wait_for 90 signalled limit && release limit && ended 900
look_at limit
seen="$(grep -c '^elastic: start ' "$home/limit.out") starts; $(grep -o 'SIGUSR1 came after [0-9]* steps' "$home/limit.out" | head -n 1)"
limited() { starts limit 2 && said limit 'SIGUSR1 came after' && finished limit; }
shows 'a limit of one minute: signal, checkpoint, the next job finishes with the losses of the unbroken run' limited

# The second job must be told what sbatch was told for the first.
kept() {  # NAME WORDS
  [ "$(grep -cx "arguments: $2" "$home/$1.out")" -eq 2 ] && has TimeLimit 00:20:00 && has ReqNodeList 'node[1-2]' && starts "$1" 2 && finished "$1"
}
again() { as_user scancel --signal=USR1 --batch "$job" && wait_for 90 signalled "$1" && release "$1" && ended 900; }
mkdir "$home/my jobs"
edit_script told -e 's/^set -u$/set -u; echo "arguments: $*"/'
mv "$home/told.sh" "$home/my jobs/told.sh"
job=$(as_user sbatch --parsable --time=00:20:00 --nodelist=node1,node2 'my jobs/told.sh' fast 'a b') && hold told && again told
look_at told
seen="$(grep -m 1 '^arguments: ' "$home/told.out"), --time=$(field TimeLimit), --nodelist=$(field ReqNodeList)"
shows 'SIGUSR1, a path with a blank, arguments and options of `sbatch`: the next job has them' kept told 'fast a b'

edit_script piped -e 's/^set -u$/set -u; echo "arguments: $*"/'
job=$(as_user sbatch --parsable --time=00:20:00 --nodelist=node1,node2 <"$home/piped.sh") && hold piped && again piped
look_at piped
shows 'the same of `sbatch < script`' kept piped ''

edit_script requeue
submit requeue && hold requeue && as_user scontrol requeue "$job" && release requeue && ended 900
look_at requeue
seen="restarts: $(field Restarts)"
requeued() { has Restarts 1 && starts requeue 2 && finished requeue; }
shows '`scontrol requeue`: the same' requeued

edit_script preempted
submit preempted && hold preempted &&
  as_user sbatch --partition=urgent --nodes=2 --exclusive --output=urgent.out --wrap 'sleep 2; hostname' >"$work/out" 2>"$work/err" &&
  wait_for 120 test -s "$home/urgent.out" && ended 900
look_at preempted
seen="restarts: $(field Restarts)"
preempted() { [ -s "$home/urgent.out" ] && has Restarts 1 && starts preempted 2 && finished preempted; }
shows 'preemption by an urgent job: the same' preempted

edit_script killed
submit killed && hold killed && kill -KILL "$(rank_on_second killed | head -n 1)" && killed_at=$(date +%s) && release killed &&
  wait_for 120 starts killed 2 && seen="ranks start again after $(($(date +%s) - killed_at)) s" && ended 900
look_at killed
killed() { starts killed 2 && has ExitCode 0:0 && finished killed; }
shows 'a rank is killed: all start again in the same job, the same losses' killed

edit_script down
submit down && hold down && as_admin scontrol update nodename=node2 state=down reason=test && down_at=$(date +%s) && release down &&
  wait_for 200 starts down 2 && seen="ranks start again after $(($(date +%s) - down_at)) s" && ended 900
look_at down
went_down() { starts down 2 && said down 'ranks on node1,' && finished down; }
shows '`scontrol update state=down` for a node: continues on the other node, the same losses' went_down
as_admin scontrol update nodename=node2 state=resume >"$work/out" 2>&1
wait_for 60 idle 2 || say 'note: node2 does not come back'

began=$(date +%s)
edit_script cancelled
submit cancelled && hold cancelled && as_user scancel "$job" && release cancelled && ended 120
look_at cancelled
seen="exit code $(field ExitCode)"
was_cancelled() { has JobState CANCELLED && has ExitCode 75:0 && is_in_state cancelled interrupted && [ -z "$(ranks_of cancelled)" ] && ! starts cancelled 2; }
shows '`scancel`: checkpoint, no further job' was_cancelled
submit cancelled && ended 900
look_at cancelled
shows 'the same script submitted again: the same losses' finished cancelled

# ---- job arrays

cat >"$home/space.toml" <<END
program = ["mpigrad/build/examples/cosmoflow", "train", "--data", "universes", "--filters", "2", "--batch", "4", "--epochs", "3", "--quiet"]
metric = "train_loss"

[parameters]
learning-rate = [1e-3, 1e-2]
END
as_user_for 300 sbatch --wait --array=1-2 --nodes=1 --ntasks=2 --output=hpo-%a.out --wrap \
  'exec mpigrad/build/examples/hpo --space space.toml --strategy grid --ranks-per-trial 2 --slots 1 --out hpo-$SLURM_ARRAY_TASK_ID'
searched() { for task in 1 2; do grep -q '^2 trials: 2 done' "$home/hpo-$task.out" || return 1; done; }
cat "$home"/hpo-?.out >>"$work/err" 2>/dev/null
shows 'a job array of `hpo`, trials of two ranks' searched

# ---- a dead node

dying='a node dies: continues on the other node, the same losses'
if [ "$kind" = ports ]; then
  omits "$dying" 'the nodes are ports of one host'
else
  edit_script dead
  submit dead && hold dead && kill_node node2 && dead_at=$(date +%s) && release dead && wait_for 400 starts dead 2 &&
    seen="ranks start again after $(($(date +%s) - dead_at)) s" && ended 900
  look_at dead
  died() { said dead 'ranks on node1,' && finished dead; }
  shows "$dying" died
fi

# ---- the page

kind_was=$kind
stop_cluster
if [ -n "$page" ]; then
  . "$root/tests/bench/platforms.sh"
  {
    printf '`sh tests/run.sh slurm`, %s, commit %s: %s of %s with MPICH %s. ' "$(date +%Y-%m-%d)" "$commit" "$(slurmctld -V)" \
      "$(system_name)" "$("$MPIEXEC" -info 2>/dev/null | sed -n 's/^ *Version: *//p' | head -n 1)"
    printf 'Two nodes are %s of one machine of %s cores (ProctrackType=%s); the user has no rights. ' \
      "$([ "$kind_was" = ports ] && echo ports || echo 'network namespaces')" "$(nproc)" "$track"
    printf 'Other than by default: SelectType=select/cons_tres, preemption by partitions, shorter waits of Slurm (`cluster.sh`). '
    printf 'Not shown: accounting (slurmdbd), GPUs, a file system and a network between hosts, other versions of Slurm.\n\n'
    printf '| case | outcome | seconds | seen |\n|---|---|--:|---|\n'
    cat "$rows"
    [ -z "$notes" ] || printf '\n%s' "$notes"
  } | write_section Slurm
fi
summary
