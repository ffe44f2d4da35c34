#!/bin/sh
# Ranks end together, with the exit code of the failed rank, and refuse unequal starts in one line.
# Prints `failed: NAME` for each failed test and ends with `N passed, M failed, K skipped`.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher
. "$root/tests/suite.sh"
program=$build/tests/exit_mpi

ends_with() { [ "$status" -eq "$1" ]; }
for kind in return:7 exit:3 throw:1 late:0; do
  ranks 2 "$program" "${kind%:*}"
  judge "exit_mpi ${kind%:*}" ends_with "${kind#*:}"
done
# MPICH's own handler would let the rank continue.
ended() { [ "$status" -ne 0 ] && [ "$status" -ne 124 ]; }
ranks 2 "$program" signal
judge 'exit_mpi, a rank that gets SIGUSR1 ends the job' ended

# told STATUS TIMES REGEX: the output consists of TIMES lines that match.
told() {
  cat "$work/out" "$work/err" >"$work/all"
  [ "$status" -eq "$1" ] && [ "$(wc -l <"$work/all")" -eq "$2" ] && [ "$(grep -c "$3" "$work/all")" -eq "$2" ]
}
# with_setting VARIABLE: sets it on rank 1 only.
with_setting() {
  # shellcheck disable=SC2086  # MPIEXEC may hold options
  run $MPIEXEC -n 1 "$program" late : -n 1 env "$1" "$program" late
}
# If a setting must be equal on all ranks, all print the same line and no rank waits.
for setting in MPIGRAD_CHECKS=signatures MPIGRAD_CHECKS=same=10 MPIGRAD_CHECKS=watchdog=60 MPIGRAD_REDUCTIONS=fixed MPIGRAD_MPI_WAITS=blocking; do
  with_setting "$setting"
  judge "exit_mpi, $setting on one rank only" told 2 1 \
    "^\[launch\] ${setting%%=*} must be the same on all ranks: rank 0 without; rank 1 \"${setting#*=}\"\$"
done
for setting in MPIGRAD_THREADS=1 MPIGRAD_TRANSPORT=mpi MPIGRAD_CHECKS=trace; do
  with_setting "$setting"
  judge "exit_mpi, $setting on one rank only" told 0 0 .
done
# shellcheck disable=SC2086  # MPIEXEC may hold options
run $MPIEXEC -n 2 env MPIGRAD_MPI_WAITS=spinning "$program" late
judge 'exit_mpi, a way of waiting that there is not' told 2 1 "MPIGRAD_MPI_WAITS is yielding or blocking, got 'spinning'"
# If one rank refuses a setting before MPI starts, the other must not wait for it.
with_setting MPIGRAD_DEVICE=none
judge 'exit_mpi, a device that one rank refuses' told 2 1 '^\[rank 1 of 2\] \[launch\] MPIGRAD_DEVICE is cpu or cuda'

# Without the server that PMIx's variables name, Open MPI 5.0.11 ends any program by a segmentation fault in PMIx_Finalize.
open_mpi_5=$("$program" version 2>/dev/null | grep 'Open MPI v5')
no_server() { [ -n "$open_mpi_5" ] && [ "$status" -eq 139 ]; }
judge_pmix() {
  if no_server; then skip 'Open MPI 5 does not end without the server of PMIx'; else judge "$@"; fi
}

# ---- launchers unknown to MPI: every process is a world of its own. The variables are those of Slurm 22.05 and Open MPI 4.1.
slurm='SLURM_JOB_ID=5 SLURM_STEP_ID=0 SLURM_NTASKS=2 SLURM_STEP_NUM_TASKS=2'
started() { # started VARIABLES ARGUMENTS: starts one of the processes
  # shellcheck disable=SC2086  # several variables
  run env $1 "$program" late $2
}
for launcher in "srun:$slurm SLURM_PROCID" "srun --mpi=pmix:$slurm PMIX_NAMESPACE=slurm.pmix.5.0 SLURM_PROCID=1 PMIX_RANK" \
  'mpirun of Open MPI:OMPI_COMM_WORLD_SIZE=2 PMIX_RANK=0 PMIX_NAMESPACE=71 OMPI_COMM_WORLD_RANK'; do
  started "${launcher#*:}=0" ''
  judge_pmix "exit_mpi, ${launcher%%:*}" told 2 1 "^\[launch\] ${launcher%%:*} started 2 processes, but .* finds 1 rank in each.* -n 2"
done
# The launcher of another MPI itself, if there is one that cannot start ranks of this MPI. Only the first process says it.
other=
for launcher in mpirun.openmpi mpiexec.mpich; do
  command -v "$launcher" >"$work/found" || continue
  foreign() { run env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "$launcher" -n 2 "$program" "$1"; }
  foreign pair
  [ "$status" -ne 0 ] || continue
  foreign late
  refused() { [ "$status" -eq 2 ] && [ "$(grep -c '^\[launch\] mpi.* started 2 processes, but .* finds 1 rank in each' "$work/err")" -le 1 ]; }
  judge "exit_mpi, $launcher" refused
  other=yes
done
[ -n "$other" ] || skip 'exit_mpi: no launcher of another MPI is installed'
started "$slurm SLURM_PROCID=0" '--transport threads --ranks 2'
judge 'exit_mpi, srun and ranks that are threads' told 2 1 '^\[launch\] srun started 2 processes'
started "$slurm SLURM_PROCID=0 MPIGRAD_ALLOW_SINGLETONS=1" ''
judge 'exit_mpi, copies that are permitted' told 0 0 .
started "$slurm SLURM_PROCID=0 MPIGRAD_ALLOW_SINGLETONS=1" '--transport threads --ranks 2'
judge 'exit_mpi, copies whose ranks are threads' told 0 0 .
started MPIGRAD_ALLOW_SINGLETONS=yes ''
judge 'exit_mpi, a permission that is none' told 2 1 "MPIGRAD_ALLOW_SINGLETONS is 0 or 1, got 'yes'"
started "$slurm SLURM_PROCID=1" ''
judge 'exit_mpi, the second process of srun: the first has said it' told 2 0 .
# No such launcher: one process; a command typed in a terminal that srun has opened; MPI's launcher in a job of Slurm, whose own
# processes are a step with one process per node.
for variables in "$slurm SLURM_STEP_NUM_TASKS=1" 'SLURM_JOB_ID=5 SLURM_NTASKS=2 SLURM_PROCID=0' "$slurm SLURM_PROCID=0 SLURM_TASK_PID=1 SLURM_PTY_PORT=9" \
  'OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0' "$slurm SLURM_NTASKS=1 SLURM_STEP_NUM_TASKS=1 PMIX_NAMESPACE=slurm.pmix.5.0 PMIX_RANK=0"; do
  started "$variables" ''
  if grep -q 'unsupported PMI version PMIx' "$work/err"; then skip 'MPICH 5 without PMIx refuses a single process of PMIx, too'
  else judge_pmix "exit_mpi, $variables" told 0 0 .
  fi
done
# shellcheck disable=SC2086  # several variables, and MPIEXEC may hold options
run env $slurm SLURM_STEP_NUM_TASKS=3 SLURM_PROCID=1 $MPIEXEC -n 2 "$program" late
judge "exit_mpi, MPI's launcher in a step of Slurm" told 0 0 .

# Loaded with a second MPI, which another library of the program may bring: refused before MPI starts, which would crash.
second=
for library in libmpi.so.40 libmpich.so.12; do
  ldd "$program" | grep -q "$library" || second=$(ldconfig -p | sed -n "s/^\t$library .*=> //p" | head -n 1)
  [ -z "$second" ] || break
done
if [ -n "$second" ]; then
  run env LD_PRELOAD="$second" "$program" late
  if grep -q 'symbol lookup error' "$work/err"; then skip 'the loader itself refuses two MPI libraries, whose UCX differ'
  else judge 'exit_mpi, two MPI libraries' told 2 1 '^\[mpi\] this program has two MPI libraries, .*, but libmpigrad was built with'
  fi
else
  skip 'exit_mpi: no second MPI library is installed'
fi

if [ -n "${MPIGRAD_TEST_ALL:-}" ]; then
  left() { [ "$status" -eq 5 ] && grep -q 'kept until the end' "$work/out" "$work/err" && grep -q 'leaving it with exit code 5' "$work/out" "$work/err"; }
  ranks 2 "$program" stuck
  judge 'exit_mpi, an MPI_Finalize that does not come back' left
fi

summary
