#!/bin/sh
# In a Slurm batch job: a training that outlives the job. When a limit or a signal has ended it, the job is submitted again and
# resumes from the newest checkpoint. Ranks and nodes that die are left out by `elastic`, whose options come before the program.
#
#   exec sh "$MPIGRAD/examples/packaging/jobs/chain.sh" --launcher 'srun ...' -- "$MPIGRAD/build/examples/cosmoflow" train --out run ...
#
#   MPIGRAD             folder of mpigrad, built in build/
#   MPIGRAD_CHAIN_MOST  most jobs of a chain; default: 20
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
"$MPIGRAD/build/examples/elastic" "$@" &
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

chain=$((${MPIGRAD_CHAIN:-1} + 1))
if [ "$chain" -gt "${MPIGRAD_CHAIN_MOST:-20}" ]; then
  echo "chain: ends after ${MPIGRAD_CHAIN_MOST:-20} jobs" >&2
  exit 75
fi
script=$(scontrol show job -o "$SLURM_JOB_ID" | sed -n 's/.* Command=\([^ ]*\).*/\1/p')
[ -n "$script" ] || { echo 'chain: Slurm does not name the job script' >&2; exit 75; }
MPIGRAD_CHAIN=$chain sbatch --export=ALL ${SLURM_JOB_ACCOUNT:+"--account=$SLURM_JOB_ACCOUNT"} \
  ${SLURM_JOB_PARTITION:+"--partition=$SLURM_JOB_PARTITION"} ${SLURM_JOB_QOS:+"--qos=$SLURM_JOB_QOS"} "$script" || exit 75
