#!/bin/sh
# A machine like Frontier (64 cores per node, 8 of them reserved for the system, GPUs not from NVIDIA; docs.olcf.ornl.gov), using
# only the CPUs: sbatch -A PROJECT frontier_like.sh. Eight ranks per node, each with the seven cores of one part of the cache. Not
# run there.
# Set MPIGRAD (folder of mpigrad, built in build/, or the prefix of an installation) and DATA (samples); before the last command
# load the modules of the build. To change the ranks, cores or GPUs of a node, edit the lines of #SBATCH, --ranks-per-host and
# --launcher, and make the product of --grid the number of ranks.
#SBATCH --job-name=cosmoflow
#SBATCH --nodes=16
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=7
#SBATCH --time=02:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --open-mode=append
#SBATCH --no-kill
#SBATCH --requeue
#SBATCH --output=%x.out
set -u
MPIGRAD=${MPIGRAD:-$HOME/mpigrad} DATA=${DATA:-universes}
export MPIGRAD
jobs=$MPIGRAD/share/mpigrad/jobs programs=$MPIGRAD/bin
[ -d "$jobs" ] || jobs=$MPIGRAD/examples/packaging/jobs programs=$MPIGRAD/build/examples

exec sh "$jobs/chain.sh" --ranks-per-host 8 \
  --launcher 'srun --nodes={nodes} --ntasks={ranks} --nodelist={hosts} --cpus-per-task=7 --threads-per-core=1 --cpu-bind=cores --overlap --kill-on-bad-exit=1' \
  -- "$programs/cosmoflow" train --data "$DATA" --grid sample=16,depth=8 --batch 32 --set network.batch_norm --epochs 100 \
  --checkpoint-minutes 15 --out run
