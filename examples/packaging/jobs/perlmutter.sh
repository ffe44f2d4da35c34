#!/bin/sh
# Perlmutter (four A100 per node, 64 cores; docs.nersc.gov): sbatch -A PROJECT perlmutter.sh. One rank per GPU. Build with Cray
# MPICH (module load cray-mpich cudatoolkit cudnn nccl), which is an MPICH; plain srun starts its ranks. Not run there.
# Set MPIGRAD (folder of mpigrad, built in build/, or the prefix of an installation) and DATA (samples); before the last command
# load the modules of the build. To change the ranks, cores or GPUs of a node, edit the lines of #SBATCH, --ranks-per-host and
# --launcher, and make the product of --grid the number of ranks.
#SBATCH --job-name=cosmoflow
#SBATCH --constraint=gpu
#SBATCH --qos=regular
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --gpus-per-node=4
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

# 32 logical cores are 16 physical cores. HDF5 must not lock files on Lustre.
export HDF5_USE_FILE_LOCKING=FALSE
exec sh "$jobs/chain.sh" --ranks-per-host 4 \
  --launcher 'srun --nodes={nodes} --ntasks={ranks} --nodelist={hosts} --gpus-per-node=4 --gpu-bind=none --cpus-per-task=32 --cpu-bind=cores --overlap --kill-on-bad-exit=1' \
  -- "$programs/cosmoflow" train --device cuda --data "$DATA" --grid sample=8,depth=4 --set network.batch_norm --epochs 100 \
  --precision bfloat16 --set data.store=40 --checkpoint-minutes 15 --out run
