#!/bin/sh
# Any Slurm cluster, on its CPUs: sbatch slurm.sh. One rank per socket, two sockets per node, each rank with the socket's cores.
#
# Set for your site:
#   --account, --partition, --qos   as its sbatch asks for them: in a line of #SBATCH or before the script's name
#   --nodes, --ntasks-per-node, --cpus-per-task   its nodes: also in --ranks-per-host and in --grid, whose product is the number of
#                                   ranks
#   module load ...                 the MPI of the build, if it is a module: before the last command
#   MPIGRAD, DATA                   folder of mpigrad, built in build/, or the prefix of an installation, which its module sets;
#                                   samples
#SBATCH --job-name=cosmoflow
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=16
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

# srun gets the --mpi that the MPI of the build needs. It does not take the job's --cpus-per-task by itself.
export SRUN_CPUS_PER_TASK="${SLURM_CPUS_PER_TASK:-1}" SLURM_CPU_BIND=cores
exec sh "$jobs/chain.sh" --ranks-per-host 2 -- "$programs/cosmoflow" train --data "$DATA" --grid sample=2,depth=4 --set network.batch_norm --epochs 100 \
  --checkpoint-minutes 15 --out run
