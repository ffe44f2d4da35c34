#!/bin/sh
# Any Slurm cluster, on its CPUs: sbatch slurm.sh. One rank per socket, two sockets per node, each rank with the socket's cores.
#
# Set for your site:
#   --account, --partition, --qos   as its sbatch asks for them: in a line of #SBATCH or before the script's name
#   --nodes, --ntasks-per-node, --cpus-per-task   its nodes: also in --ranks-per-host, in the launcher and in --grid, whose product
#                                   is the number of ranks
#   module load ...                 the MPICH of the build, if it is a module: before the last command
#   MPIGRAD, DATA                   folder of mpigrad; samples
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

# --mpi must be the type that your MPICH was built for: `srun --mpi=list` lists Slurm's types.
exec sh "$MPIGRAD/examples/packaging/jobs/chain.sh" --ranks-per-host 2 \
  --launcher 'srun --mpi=pmi2 --nodes={nodes} --ntasks={ranks} --nodelist={hosts} --cpus-per-task=16 --cpu-bind=cores --overlap --kill-on-bad-exit=1' \
  -- "$MPIGRAD/build/examples/cosmoflow" train --data "$DATA" --grid sample=2,depth=4 --set network.batch_norm --epochs 100 \
  --checkpoint-minutes 15 --out run
