#!/bin/sh
# `elastic`, which keeps a training alive: ranks, a host and the wrapper itself are killed. Prints `failed: NAME` for each failed
# test and ends with `N passed, M failed, K skipped`. tests/run.sh calls it. Two hosts with a link between them: tests/comm/process/hosts.sh.
#
#   sh tests/examples/tools/elastic.sh                    what is quick, 8 kills among it
#   sh tests/examples/tools/elastic.sh kills 100 [SEED]   so many kills, with a line for each and a table
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher

tools=$build/examples
. "$root/tests/suite.sh"

if [ ! -x "$tools/elastic" ] || ! python3 -c 'import struct' 2>/dev/null; then
  printf 'skipped: 1 the tools are not built\n0 passed, 0 failed, 1 skipped\n'
  exit 0
fi
moments=8 seed=20261124
[ -z "${MPIGRAD_TEST_ALL:-}" ] || moments=100
if [ "${1:-}" = kills ]; then moments=${2:-100} seed=${3:-$seed}; fi
elastic=$tools/elastic
gives() { [ "$status" -eq "$1" ]; }
refuses_with_2() { [ "$status" -eq 2 ] && grep -q -e "$1" "$work/err"; }
said() { [ "$status" -eq "$1" ] && grep -q -e "$2" "$work/err"; }

# ---- what makes no sense
run "$elastic" --help
judge 'elastic --help' says 'Keeps a training alive'
run "$elastic" --hosts a
judge 'no program' refuses_with_2 '^elastic: no program to run'
run "$elastic" --hosts a -- true
judge 'no --out' refuses_with_2 '^elastic: the program needs --out'
run "$elastic" --hosts a -- true --out x
judge 'no number of ranks' refuses_with_2 '^elastic: --ranks-per-host is needed'
run "$elastic" --hosts a -- true --out x --grid depth=2 --overwrite
judge '--overwrite' refuses_with_2 '^elastic: --overwrite of the program'
run "$elastic" --hosts a,a -- true --out x --grid depth=2
judge 'a host twice' refuses_with_2 '^elastic: --hosts are names'
for name in "-oProxyCommand=touch $work/taken" '-w' 'a;b' 'a b' 'user@-a' '@a' 'a@b@c' '$(x)' '../a' '[::1' '::1]' '[[::1]]' ''; do
  run "$elastic" --hosts="$name" --ranks-per-host 1 -- true --out x
  judge "a host '$name'" refuses_with_2 "^elastic: --hosts are names, not '"
done
judge 'none of them was run' test ! -e "$work/taken"
# An ssh that tells what it was asked; names that end in .invalid are nowhere.
mkdir "$work/path"
printf '%s\n' '#!/bin/sh' "echo \"\$*\" >>'$work/asked-ssh'" 'case " $* " in *known*) exit 0 ;; esac' 'exit 255' >"$work/path/ssh"
chmod +x "$work/path/ssh"
run env PATH="$work/path:$PATH" "$elastic" --hosts user@node9.invalid,localhost --ranks-per-host 1 --retries 0 -- true --out x
judge 'an unknown host is named' refuses_with_2 '^elastic: --hosts user@node9.invalid: there is no host of that name'
judge 'and asked for behind --' grep -q -e '-- user@node9.invalid true$' "$work/asked-ssh"
printf '%s\n' '#!/bin/sh' 'printf "node1\nnode2\n"' >"$work/path/scontrol"
chmod +x "$work/path/scontrol"
run env PATH="$work/path:$PATH" SLURM_JOB_ID=1 SLURM_JOB_NODELIST='node[1-2]' "$elastic" --hosts node1,node3 --ranks-per-host 1 -- true --out x
judge 'nor one that the allocation has' refuses_with_2 '^elastic: --hosts node3: the allocation has no host of that name, but node1,node2'
# A srun of the default launcher, which tells its types and what it was asked.
printf '%s\n' '#!/bin/sh' "[ \"\$*\" != --mpi=list ] || { printf 'MPI plugin types are...\\n\\tnone\\n%s' \"\$TYPES\"; exit 0; }" \
  "echo \"\$*\" >>'$work/asked-srun'" >"$work/path/srun"
chmod +x "$work/path/srun"
in_job() { # in_job VARIABLE...: two nodes of a job
  run env PATH="$work/path:$PATH" SLURM_JOB_ID=1 SLURM_JOB_NODELIST='node[1-2]' "$@" "$elastic" --ranks-per-host 1 --retries 0 --probe 'true {host}' -- true --out "$work/x"
}
in_job TYPES='pmi2 pmix'
judge 'srun is told which MPI the program has' grep -q -e '^--mpi=pmi[2x] --nodes=2 --ntasks=2 --nodelist=node1,node2 ' "$work/asked-srun"
in_job TYPES=
judge 'a type that Slurm lacks' refuses_with_2 'srun --mpi=list has no pmi[2x], by which'
in_job TYPES= SLURM_MPI_TYPE=own
judge 'a type that the user has chosen' succeeds
rm "$work/path/srun"
run env PATH="$work/path:$PATH" "$elastic" --hosts localhost,known.invalid --ranks-per-host 1 --retries 0 --launcher 'sh -c' -- 'exit 0' --out "$work/x"
judge 'names of a --launcher are its own' gives 0
in_list() { # in_list HOSTS: a launcher that uses {hosts}, and does not start anything
  run env PATH="$work/path:$PATH" "$elastic" --hosts "$1" --ranks-per-host 1 --retries 0 --launcher 'sh -c "exit 0" {hosts}' -- true --out "$work/x"
}
in_list node9.invalid,known.invalid
judge 'unless it gets them' refuses_with_2 '^elastic: --hosts node9.invalid: there is no host of that name'
in_list known.invalid
judge 'a name that ssh alone knows' gives 0
in_list localhost:2,127.0.0.1:2
judge 'HOST:RANKS of mpiexec' said 0 'start 1: 2 ranks on localhost:2,127.0.0.1:2'
judge 'ssh is asked for the host' grep -q -e '-- 127.0.0.1 true$' "$work/asked-ssh"
printf '%s\n' '#!/bin/sh' 'exit 1' >"$work/path/getent"
chmod +x "$work/path/getent"
in_list node9.invalid
judge 'a name service that fails says nothing of a name' gives 0
rm "$work/path/getent"
ln -s "$(command -v sh)" "$work/path/sh"
run "$(command -v env)" PATH="$work/path" "$elastic" --hosts node9.invalid --ranks-per-host 1 --retries 0 --launcher 'sh -c "exit 0" {hosts}' -- true --out "$work/x"
judge 'nor does a system without getent' gives 0
run "$elastic" --hosts a --ranks-per-host 2 -- true --out x --grid depth=3
judge 'a grid that is too large' refuses_with_2 '^elastic: --grid depth=3 has 3 ranks'
run "$elastic" --hosts localhost --ranks-per-host 1 --launcher 'env {rank}' -- true --out x
judge 'a template with another name' refuses_with_2 'has no {rank}'
run "$elastic" --hosts localhost --ranks-per-host 1 --launcher '/no/such/launcher' -- true --out x
judge 'a launcher that is not there' said 1 '/no/such/launcher cannot be started'
run env SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0 "$elastic" --hosts localhost --ranks-per-host 1 --launcher 'sh -c' -- 'exit 0' --out "$work/x"
judge 'two of it' refuses_with_2 '^elastic: elastic is one process, which starts ranks itself, and srun started 2'

# ---- exit codes; the launcher is a shell, the ranks are one
shell() {
  p=$1
  shift
  run "$elastic" --ranks-per-host "$p" --launcher 'sh -c' "$@"
}
one_rank() { shell 1 --hosts localhost "$@"; }
one_rank -- 'exit 0' --out "$work/x"
judge 'a training that ends' gives 0
one_rank -- 'exit 2' --out "$work/x"
judge 'wrong arguments are not tried again' gives 2
one_rank -- 'echo "srun: error: node1: task 0: Exited with exit code 2" >&2; kill -TERM $$' --out "$work/x"
judge 'nor if srun has ended the other ranks' gives 2
one_rank --retries 3 -- "[ -e $work/once ] && exit 2; : >$work/once; exit 9" --out "$work/x"
again() { gives 2 && grep -q 'start 2: ' "$work/err" && ! grep -q 'start 3: ' "$work/err"; }
judge 'nor after a restart, on the same hosts' again
one_rank -- 'exit 75' --out "$work/x"
judge 'a training that a limit ended' gives 75
mkdir "$work/said"
one_rank -- "echo interrupted >$work/said/state; exit 0" --out "$work/said"
judge 'a state of interrupted counts where a launcher returns 0' gives 75
one_rank --retries 0 -- 'exit 0' --out "$work/said"
judge 'but not one of an earlier job' gives 0
one_rank -- "echo finished >$work/said/state; exit 9" --out "$work/said"
judge 'a state of finished counts, too' gives 0
one_rank --retries 1 -- "echo running >$work/said/state; exit 0" --out "$work/said"
judge 'one that was left running was killed, and is started again' said 1 'start 2: 1 ranks'
tries() { said 1 'gives up after 3 failures' && [ "$(grep -c 'start [0-9]*: 1 ranks' "$work/err")" -eq 3 ]; }
one_rank --retries 2 -- 'exit 9' --out "$work/x"
judge 'it gives up' tries
mkdir "$work/forward"
one_rank --retries 1 -- "i=\$(ls $work/forward | wc -l); [ \$i -lt 4 ] || exit 0; touch -d \"2030-01-0\$((i + 1))\" $work/forward/\$i.h5; exit 9" \
  --out "$work/forward"
judge 'but not while there are newer checkpoints' gives 0
mkdir "$work/less"
shell 3 --hosts localhost --retries 9 --forgive 0 -- \
  'case "$0 $*" in *depth=3*) echo "=   PID 7 RUNNING AT localhost" >&2; exit 9 ;; esac; exit 0' --out "$work/less" --grid depth=3
judge 'the next grid has a rank less' said 0 'start 2: 2 ranks on localhost, --grid depth=2$'
touch "$work/alive"
shell 2 --hosts localhost,gone --probe "test -e $work/alive -o {host} = here" -- \
  'case "$0 $*" in *depth=4*) rm '"$work/alive"'; exit 9 ;; esac; exit 0' --out "$work/less" --grid depth=4
judge 'a host that does not answer is dropped' said 0 'gone is dead: continuing without it'
judge 'and the next grid fits the others' said 0 'start 2: 2 ranks on localhost, --grid depth=2$'

shell 2 --hosts localhost,deaf --probe 'false {host}' --retries 1 -- 'exit 9' --out "$work/less" --grid depth=4
judge 'a host that never answered is not dropped' said 1 'start 2: 4 ranks on localhost,deaf'
shell 3 --hosts localhost --retries 2 -- 'exit 2' --out "$work/less"
judge 'wrong arguments end it' gives 2

# ---- a training whose ranks are killed
python3 "$root/tests/examples/trainers/scans.py" "$work/scans"
run "$tools/pack" --data "$work/scans" --validation-fraction 0.3 --out "$work/scans.h5"
judge 'data' succeeds
classify=$tools/classify
# Of a moment in two: a training outlives about so many of them.
training="train --data $work/scans.h5 --filters 4 --batch 4 --epochs 1200 --set network.norm_momentum=0.5 --precision float64 --grid depth=2"
# shellcheck disable=SC2086  # several options
{
  ranks 2 "$classify" $training --out "$work/spared"
  judge 'a training of two ranks' succeeds
  # $MPIEXEC may hold options.
  survive() {
    exec "$elastic" --hosts localhost --forgive 1000 --watch-ranks --launcher "$MPIEXEC -n {ranks}" -- "$classify" $training \
      --set checkpoint.steps=1 --out "$work/$1" >"$work/out" 2>"$work/err" </dev/null
  }

  # Ranks die, one or all of them, the wrapper's node, and the wrapper alone, at random moments.
  limit=3600
  run python3 "$root/tests/examples/tools/kills.py" "$moments" "$seed" "$work" "$work/spared/metrics.csv" "$classify" -- "$elastic" \
    --hosts localhost --forgive 1000 --retries 1000 --watch-ranks --launcher "$MPIEXEC -n {ranks}" -- "$classify" $training \
    --set checkpoint.steps=1 --out '{out}'
  unset limit
  [ "$#" -eq 0 ] || cat "$work/out"
  [ "$status" -eq 0 ] || cp "$work/out" "$work/err"
  judge "$moments kills: each dead rank is named, all checkpoints are readable, nothing hangs, the losses are those of a training that was spared" succeeds

  # So early that no checkpoint that was asked for is there, but an epoch's losses.
  cat >"$work/dies" <<END
"\$@" & child=\$!
if [ ! -e "$work/early/metrics.csv" ]; then
  while [ ! -e "$work/early/metrics.csv" ] && kill -0 \$child; do sleep 0.05; done
  kill -9 \$child
fi
wait \$child
END
  run "$elastic" --hosts localhost --ranks-per-host 1 --retries 1 --launcher "sh $work/dies" -- "$classify" train --data "$work/scans.h5" \
    --filters 4 --batch 4 --epochs 300 --out "$work/early"
  judge 'a job that dies before its first checkpoint is begun anew' said 0 'start 2: 1 ranks'
  judge 'and has all epochs' test "$(wc -l <"$work/early/metrics.csv")" -eq 301

  # A signal is handed on.
  survive asked &
  wrapper=$!
  while [ ! -e "$work/asked/metrics.csv" ] && kill -0 "$wrapper" 2>/dev/null; do sleep 0.05; done
  kill -USR1 "$wrapper"
  wait "$wrapper"
  judge 'a signal ends it with a checkpoint' test $? -eq 75
  judge 'which is there' test -s "$work/asked/checkpoint.h5"
}

summary
