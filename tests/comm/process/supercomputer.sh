#!/bin/sh
# Runs the commands of README's section "On a supercomputer" and of examples/packaging/jobs/README.md line by line on two hosts,
# which are network namespaces (tests/comm/process/two_hosts.sh). The lines are read from the two pages: a line that no longer
# works fails, and so does a new line that this script does not know. Differences from a cluster: Slurm's commands are scripts;
# names of hosts; numbers of ranks and epochs; ninja's results are copied in compiled form. Prints `failed: NAME` for each failed
# test and ends with `N passed, M failed, K skipped`. tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"

ranks_on() {  # on a, on b or on both
  for host; do
    for process in $(ip netns pids "$TWO_HOSTS-$host"); do
      if [ "$(cat "/proc/$process/comm" 2>/dev/null)" = cosmoflow ]; then echo "$process"; fi
    done
  done
}
# await COMMAND...: retries until it succeeds, for a minute at most and only while the job lives.
await() {
  tries=600
  until "$@" >/dev/null 2>&1; do
    tries=$((tries - 1))
    if [ "$tries" -eq 0 ] || ! kill -0 "$job" 2>/dev/null; then echo "never: $*" && exit 98; fi
    sleep 0.1
  done
}
# Each rank has a part of the optimizer's state; the first host keeps the second one's part, too.
copied() { ls "$DISK-a"/*/part-*-1-of-2.h5; }
went_on() { sed '1,/^going on from/d' "$1" | grep -q '^epoch'; }
trained() { [ "$(wc -l <run/metrics.csv)" -ge 2 ]; }

# on-hosts MODE FOLDER LINE: runs on the two hosts, in mpigrad's folder; output of the line goes to FOLDER/said.
if [ "${1:-}" = on-hosts ]; then
  if [ "$2" = batch ]; then
    # The job is told of its limit, and its second start finishes the training.
    sh -c "exec $4" >"$3/said" 2>&1 &
    job=$!
    await trained
    kill -USR1 "$job"
    wait "$job"
    exit
  fi
  # Runs the line as typed. Asks a rank which ranks keep the others waiting; stops the second host's rank, which is a hang; and
  # kills the process that started the training after it has continued.
  sh -c "exec $4" >"$3/said" 2>&1 &
  job=$!
  await trained
  kill -USR2 "$(ranks_on b | head -n 1)"
  await grep -q 'computes longest' "$3/said"
  await copied
  kill -STOP "$(ranks_on b)"
  await grep -q '^elastic: start 2' "$3/said"
  await went_on "$3/said"
  kill -KILL "$job"
  wait "$job"
  for _ in $(seq 100); do
    [ -n "$(ranks_on a b)" ] || exit 0
    sleep 0.1
  done
  echo 'ranks live 10 s after elastic' && exit 99
fi

. "$root/tests/suite.sh"

HOME=$work/home
export HOME
mkdir "$HOME" "$HOME/mpigrad" "$work/commands"
for name in meson.build meson_options.txt framework ops comm models examples tests; do cp -R "$root/$name" "$HOME/mpigrad/$name"; done
cd "$HOME/mpigrad" || exit 1

# ---- the lines of the two pages

# commands FILE HEADING: the commands in the first shell block below the heading, one per line, without comments.
commands() {
  awk -v heading="$2" '$0 == heading { in_section = 1; next } in_section && /^```sh$/ { in_block = 1; next }
    in_block && /^```$/ { exit } in_block { sub(/ +# .*/, ""); if (sub(/ *\\$/, "")) printf "%s ", $0; else print }' "$1" | tr -s ' '
}
# The commands of the section's text.
typed() {
  awk '/^## / { inside = $0 == "## On a supercomputer" } inside' README.md | sed '/^```/,/^```/d; s/\](/] (/g' | tr '\n' ' ' |
    grep -o '`[^`]*`' | tr -d '`'
}
cp "$root/README.md" .
commands README.md '## On a supercomputer' >"$work/readme"
commands examples/packaging/jobs/README.md '# Jobs on clusters' >"$work/jobs"
typed >"$work/sentences"
building=$(sed -n 1p "$work/readme") submitting=$(sed -n 2p "$work/readme") starting=$(sed -n 3p "$work/readme")
page() { [ "$(wc -l <"$1")" -eq 3 ]; }
status=0 && : >"$work/err"
judge "README's section has three commands, which are followed here" page "$work/readme"
is_known() {
  while IFS= read -r line; do
    case $line in
      "$building" | "$submitting" | "$starting" | 'kill -USR2 PID-OF-ANY-RANK' | 'kill -USR2') ;;
      elastic | '--set checkpoint.local_folder=/tmp --set checkpoint.local_steps=100' | 'MPIGRAD_CHECKS=watchdog=60') ;;
      *) echo "nothing follows: $line" && return 1 ;;
    esac
  done <"$1"
}
judge 'examples/packaging/jobs: nothing else is to be typed' is_known "$work/jobs"
judge "README's sentences: nothing else is to be typed" is_known "$work/sentences"
given() { grep -qx -e "$1" "$work/sentences"; }
for words in 'MPIGRAD_CHECKS=watchdog=60' '--set checkpoint.local_folder=/tmp --set checkpoint.local_steps=100' 'kill -USR2'; do
  judge "README's sentences: $words" given "$words"
done

# ---- a login node

# Only called to find out what it knows: the result is what the tests have built. (-n stops where modules of Fortran are scanned.)
cat >"$work/commands/ninja" <<END
#!/bin/sh
exec $(command -v ninja || command -v ninja-build || echo ninja) "\$@" -t targets all
END
chmod +x "$work/commands/ninja"
run env PATH="$work/commands:$PATH" sh -c "$building"
would_build() { succeeds && grep -q "^examples/$1: .*LINKER" "$work/out"; }
for program in elastic cosmoflow; do
  judge "$building: $program" would_build "$program"
  mkdir -p build/examples
  ln -s "$build/examples/$program" "build/examples/$program"
done
rm "$work/commands/ninja"

# ---- chain.sh: the next job. A program in elastic's place ends with 75.

mkdir -p "$work/m/build/examples" "$work/slurm"
printf '#!/bin/sh\nexit 75\n' >"$work/m/build/examples/elastic"
printf '#!/bin/sh\necho "scontrol $*" >>"%s/asked"\nexit "$REQUEUES"\n' "$work" >"$work/slurm/scontrol"
# shellcheck disable=SC2016  # expanded by the script
printf '#!/bin/sh\nfor word; do echo "$word"; done >"%s/submitted"\necho "$MPIGRAD_CHAIN" >>"%s/submitted"\n' "$work" "$work" >"$work/slurm/sbatch"
chmod +x "$work/m/build/examples/elastic" "$work/slurm"/*
next_job() { # next_job VARIABLE...
  rm -f "$work/asked" "$work/submitted"
  run env PATH="$work/slurm:$PATH" MPIGRAD="$work/m" SLURM_JOB_ID=7 "$@" sh "$root/examples/packaging/jobs/chain.sh" -- x --out "$work/none"
}
asked_for() { succeeds && [ "$(cat "$work/asked")" = "scontrol requeue 7" ] && [ ! -e "$work/submitted" ]; }
ended_saying() { [ "$status" -eq 75 ] && grep -q -e "$1" "$work/err" && [ ! -e "$work/submitted" ]; }
submitted() { succeeds && printf '%s\n' "$@" | cmp -s - "$work/submitted"; }
next_job REQUEUES=0
judge 'chain.sh: the same job again' asked_for
next_job REQUEUES=0 SLURM_RESTART_COUNT=2 MPIGRAD_CHAIN_MOST=4
judge 'chain.sh: the last but one' asked_for
next_job REQUEUES=0 SLURM_RESTART_COUNT=3 MPIGRAD_CHAIN_MOST=4
judge 'chain.sh: the last job of a chain' ended_saying 'ends after 4 jobs'
next_job REQUEUES=1
judge 'chain.sh: a Slurm that does not requeue' ended_saying 'set MPIGRAD_RESUBMIT'
next_job REQUEUES=1 SLURM_RESTART_COUNT=2 MPIGRAD_RESUBMIT='sbatch --time=1:00 "my jobs/a.sh" --fast "a  b"'
judge 'chain.sh: a command with blanks' submitted --time=1:00 'my jobs/a.sh' --fast 'a  b' 4

# ---- the hosts

if [ ! -x "$build/examples/elastic" ] || [ ! -x "$build/examples/universe" ]; then skip 'the tools are not built' && summary && exit; fi
on_hosts() { run sh "$root/tests/comm/process/two_hosts.sh" --limit 250 sh "$root/tests/comm/process/supercomputer.sh" on-hosts "$@"; }
run sh "$root/tests/comm/process/two_hosts.sh" sh -c '"$MPIEXEC" -n 2 "$1" pair' sh "$build/tests/exit_mpi"
if [ "$status" -ne 0 ]; then
  why=$(tail -n 1 "$work/err")
  skip "${why:-"no two hosts: the launcher's ranks do not find each other"}"
  summary
  exit
fi
cat >"$work/commands/srun" <<'END'
#!/bin/sh
for word; do
  case $word in
    --ntasks=*) ranks=${word#*=} ;;
    --nodelist=*) hosts=${word#*=} ;;
    -*) ;;
    *) break ;;
  esac
  shift
done
# Signals reach all ranks, as with srun; MPICH's launcher may fail on them with several hosts.
"$HYDRA" -n "$ranks" -hosts "$hosts" "$@" &
job=$!
trap 'for p in $(ip netns pids "$TWO_HOSTS-a") $(ip netns pids "$TWO_HOSTS-b"); do
  [ "$(cat "/proc/$p/comm" 2>/dev/null)" != cosmoflow ] || kill -USR1 "$p"
done' USR1
while :; do
  wait "$job"
  status=$?
  kill -0 "$job" 2>/dev/null || exit "$status"
done
END
cat >"$work/commands/scontrol" <<'END'
#!/bin/sh
case $2 in
  hostnames) echo "$HOSTS" | tr , '\n' ;;
esac
# The next start of the job ends before `scontrol requeue` does.
if [ "$1" = requeue ]; then
  SLURM_RESTART_COUNT=$((${SLURM_RESTART_COUNT:-0} + 1))
  echo "start $((SLURM_RESTART_COUNT + 1)) of job $2"
  export SLURM_RESTART_COUNT
  sh "$SCRIPT"
fi
END
# This process is the job.
cat >"$work/commands/sbatch" <<'END'
#!/bin/sh
while [ $# -gt 1 ]; do shift; done
SCRIPT=$1 SLURM_JOB_ID=7 SLURM_JOB_NODELIST=both exec sh "$1"
END
printf '#!/bin/sh\nexec "$HYDRA" "$@"\n' >"$work/commands/mpiexec"
printf '#!/bin/sh\nexec "$(dirname "$HYDRA")/remote-shell" "$@"\n' >"$work/commands/ssh"
chmod +x "$work/commands/"*
# two_hosts.sh still needs the launcher of this system.
MPIEXEC=${MPIEXEC:-$(command -v mpiexec.mpich || command -v mpiexec.hydra || command -v mpiexec)}
PATH=$work/commands:$PATH
export MPIEXEC PATH
run "$build/examples/universe" generate --out universes --universes 6 --size 16 --cell 8 --seed 1 --spread
judge 'universes' succeeds

smaller() { sed 's/--ranks-per-host [24]/--ranks-per-host 1/; s/--grid sample=2,depth=4/--grid depth=2/; s/--epochs 100/--filters 4 --batch 2 --epochs 200/'; }
said() { succeeds && grep -q -e "$1" "$work/said"; }
tell() { cat "$work/out" "$work/said" >>"$work/err"; }

smaller <examples/packaging/jobs/slurm.sh >"$work/slurm.sh" && cp "$work/slurm.sh" examples/packaging/jobs/slurm.sh
on_hosts batch "$work" "$submitting"
tell
judge "$submitting: the training ends, and prints which rank keeps the other waiting" said '^rank [01].* computes longest'
judge "$submitting: Slurm has started the job once more" said '^start 2 of job 7'
judge "$submitting: to its end" test -s run/weights.h5

# The only checkpoints are on the hosts' own disks, in place of /tmp.
rm -rf run
starting=$(printf '%s\n' "$starting" | smaller | sed 's/node1,node2/$HOSTS/')
# shellcheck disable=SC2016  # expanded on the host
copies='--set checkpoint.local_folder=$DISK --set checkpoint.local_steps=5'
MPIGRAD_CHECKS=watchdog=15 on_hosts start "$work" "$starting --filters 4 --batch 2 --epochs 1000 $copies"
tell
judge "$starting: goes on although a rank hangs, and leaves no rank behind" succeeds
judge 'kill -USR2: which rank computes longest' said '^rank [01].* computes longest'
judge 'MPIGRAD_CHECKS=watchdog: who is missing' said '^\[watchdog\] rank 0 of 2: .*missing: rank 1: no answer'
judge "checkpoint.local_folder: from a node's disk" said '^going on from .*/disk/mpigrad-'
summary
