#!/bin/sh
# JUWELS Booster (four A100 per node, 48 cores; apps.fz-juelich.de/jsc/hps/juwels): sbatch -A PROJECT juwels_booster.sh. One rank per GPU. Not run there.
# Set MPIGRAD (folder of mpigrad, built in build/, or the prefix of an installation) and DATA (samples); before the last command
# load the modules of the build. To change the ranks, cores or GPUs of a node, edit the lines of #SBATCH, --ranks-per-host and
# --launcher, and make the product of --grid the number of ranks.
#SBATCH --job-name=cosmoflow
#SBATCH --partition=booster
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=12
#SBATCH --gres=gpu:4
#SBATCH --time=04:00:00
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

# All ranks of a node see its four GPUs and take one each in turn, so that NCCL may use NVLink between them.
exec sh "$jobs/chain.sh" --ranks-per-host 4 \
  --launcher 'srun --mpi=pmi2 --nodes={nodes} --ntasks={ranks} --nodelist={hosts} --gres=gpu:4 --cpus-per-task=12 --cpu-bind=cores --overlap --kill-on-bad-exit=1' \
  -- "$programs/cosmoflow" train --device cuda --data "$DATA" --grid sample=8,depth=4 --set network.batch_norm --epochs 100 \
  --precision bfloat16 --set data.store=40 --checkpoint-minutes 15 --out run
