#!/bin/sh
# In a Slurm batch job: a training that outlives the job. When a limit or a signal has ended it, the job is queued again and
# resumes from the newest checkpoint. Ranks and nodes that die are left out by `elastic`, whose options come before the program.
#
#   exec sh "$MPIGRAD/share/mpigrad/jobs/chain.sh" --ranks-per-host 2 -- "$MPIGRAD/bin/cosmoflow" train --out run ...
#
#   MPIGRAD             prefix of an installation, or the folder of mpigrad, built in build/
#   MPIGRAD_CHAIN_MOST  most jobs of a chain; default: 20
#   MPIGRAD_RESUBMIT    command that submits the job, for a Slurm that does not requeue jobs; in words of a shell, such as
#                       sbatch --time=1:00:00 "my jobs/train.sh" --fast
#
# The job script needs `#SBATCH --signal=B:USR1@300`: this shell gets the signal 300 s before the limit and passes it on to the
# ranks, which write a checkpoint and end with 75.
set -u
: "${MPIGRAD:?the folder of mpigrad}" "${SLURM_JOB_ID:?this is for batch jobs}"

# The file `state` in --out has a line that says how the training ended (finished, interrupted, failed, or running if it was
# killed). state() prints it with the file's inode number, which is new each time.
out= last=
for word in "$@"; do
  case $word in --out=*) out=${word#--out=} ;; esac
  [ "$last" != --out ] || out=$word
  last=$word
done
state() { [ ! -e "$out/state" ] || { ls -i "$out/state" && head -n 1 "$out/state"; }; }
before=$(state)

asked=
program=$MPIGRAD/bin/elastic
[ -x "$program" ] || program=$MPIGRAD/build/examples/elastic
"$program" "$@" &
elastic=$!
for signal in USR1 USR2 TERM INT; do
  # shellcheck disable=SC2064  # expanded now
  trap "asked=$signal; kill -$signal $elastic 2>/dev/null" "$signal"
done
# A signal ends `wait`, but not the process that it waits for.
while :; do
  wait "$elastic"
  status=$?
  kill -0 "$elastic" 2>/dev/null || break
done
# elastic may have ended in between.
if [ "$status" -gt 128 ]; then wait "$elastic" && status=0 || status=$?; fi
# The file counts even if elastic itself was killed.
after=$(state)
if [ "$after" != "$before" ]; then
  case $after in
    *interrupted) status=75 ;;
    *finished) status=0 ;;
  esac
fi
# TERM and INT mean that a person wants to end it.
if [ "$status" -ne 75 ] || [ "$asked" = TERM ] || [ "$asked" = INT ]; then exit "$status"; fi

job=$((${MPIGRAD_CHAIN:-1} + ${SLURM_RESTART_COUNT:-0}))
if [ "$job" -ge "${MPIGRAD_CHAIN_MOST:-20}" ]; then
  echo "chain: ends after $job jobs (MPIGRAD_CHAIN_MOST)" >&2
  exit 75
fi
# Slurm keeps the script, its arguments and all that sbatch was told, and starts the same job once more.
scontrol requeue "$SLURM_JOB_ID" && exit 0
if [ -z "${MPIGRAD_RESUBMIT:-}" ]; then
  echo 'chain: Slurm does not requeue this job: submit it with sbatch --requeue, or set MPIGRAD_RESUBMIT to the whole command of sbatch' >&2
  exit 75
fi
MPIGRAD_CHAIN=$((job + 1))
export MPIGRAD_CHAIN
eval "$MPIGRAD_RESUBMIT" || exit 75
