#include "comm/transport/launcher.h"

#include <unistd.h>

#include "comm/transport/environment.h"
#include "framework/base/error.h"

namespace mpigrad {
namespace {

int launcher_number(const char* variable, int otherwise) {
  return parse_whole_number(environment_variable(variable).value_or("")).value_or(otherwise);
}

// The number of processes of this step of Slurm; 1 if this process is not one of them. Processes inherit the variables of a step:
// all commands typed in a terminal have those of the terminal's shell.
int processes_of_step() {
  const bool typed = environment_variable("SLURM_PTY_PORT") && launcher_number("SLURM_TASK_PID", 0) != getpid();
  return typed ? 1 : launcher_number("SLURM_STEP_NUM_TASKS", 1);
}

constexpr std::string_view by_mpiexec = "mpiexec", by_mpirun = "mpirun of Open MPI", by_pmi2 = "srun with PMI",
                           by_pmix = "srun --mpi=pmix";

}  // namespace

Launcher launcher_of_environment() {
  // MPICH's mpiexec starts its own processes by srun: only a process without variables of MPI was started by srun itself.
  if (environment_variable("PMI_SIZE"))
    return {!environment_variable("MPI_LOCALNRANKS") && environment_variable("SLURM_STEP_ID") ? by_pmi2 : by_mpiexec,
            launcher_number("PMI_SIZE", 0), launcher_number("PMI_RANK", 0)};
  if (environment_variable("OMPI_COMM_WORLD_SIZE"))
    return {by_mpirun, launcher_number("OMPI_COMM_WORLD_SIZE", 0), launcher_number("OMPI_COMM_WORLD_RANK", 0)};
  if (environment_variable("MPI_LOCALNRANKS"))
    return {by_mpiexec, launcher_number("MPI_LOCALNRANKS", 0), launcher_number("PMI_RANK", 0)};
  if (environment_variable("PMIX_RANK")) {  // PMIx does not tell the number of processes, Slurm does
    const bool slurm = environment_variable("PMIX_NAMESPACE").value_or("").starts_with("slurm");
    return {slurm ? by_pmix : by_mpiexec, slurm ? processes_of_step() : 1, launcher_number("PMIX_RANK", 0)};
  }
  if (const int processes = processes_of_step(); processes > 1) return {"srun", processes, launcher_number("SLURM_PROCID", 0)};
  return {};
}

std::string copies_problem(const Launcher& launcher, int ranks) {
  if (ranks > 1 || launcher.processes <= 1) return {};
  const auto n = launcher.processes;
  std::string commands;
  if (mpi_library() == "Open MPI") commands = fmt::format("mpirun -n {0} of Open MPI, or srun --mpi=pmix -n {0}", n);
  else if (mpi_library() != "MPICH") commands = fmt::format("mpiexec -n {} of that MPI", n);
  else if (launcher.name == by_mpiexec || launcher.name == by_pmi2)  // as Ubuntu 24.04 builds MPICH
    commands = fmt::format(
        "the launcher for which this MPICH was built, such as mpirun -n {0} of Open MPI or srun --mpi=pmix -n {0}", n);
  else commands = fmt::format("mpiexec -n {0} of MPICH, or srun --mpi=pmi2 -n {0}", n);
  return fmt::format(
      "[launch] {} started {} processes, but {} finds {} rank in each, which would be {} copies of one run: use {}",
      launcher.name, n, mpi_library().empty() ? "MPI" : mpi_library(), ranks, n, commands);
}

}  // namespace mpigrad
