#include "comm/transport/launcher.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "framework/error.h"

namespace mpigrad {
namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

int number_in(const char* name, int otherwise) {
  const auto text = variable(name);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() && value >= 0 ? value : otherwise;
}

// The processes of this step of Slurm; 1 where this process is none of them. Variables of a step are inherited: those of a
// terminal's shell by all that is typed there.
int processes_of_step() {
  const bool typed = !variable("SLURM_PTY_PORT").empty() && number_in("SLURM_TASK_PID", 0) != getpid();
  return typed ? 1 : number_in("SLURM_STEP_NUM_TASKS", 1);
}

constexpr std::string_view mpiexec = "mpiexec", mpirun = "mpirun of Open MPI", pmi2 = "srun with PMI", pmix = "srun --mpi=pmix";

}  // namespace

Launcher launcher_of_environment() {
  // MPICH's mpiexec starts its own processes by srun: only a process without variables of MPI was started by srun itself.
  if (!variable("PMI_SIZE").empty())
    return {variable("MPI_LOCALNRANKS").empty() && !variable("SLURM_STEP_ID").empty() ? pmi2 : mpiexec, number_in("PMI_SIZE", 0),
            number_in("PMI_RANK", 0)};
  if (!variable("OMPI_COMM_WORLD_SIZE").empty())
    return {mpirun, number_in("OMPI_COMM_WORLD_SIZE", 0), number_in("OMPI_COMM_WORLD_RANK", 0)};
  if (!variable("MPI_LOCALNRANKS").empty()) return {mpiexec, number_in("MPI_LOCALNRANKS", 0), number_in("PMI_RANK", 0)};
  if (!variable("PMIX_RANK").empty()) {  // PMIx does not tell the number of processes, Slurm does
    const bool slurm = variable("PMIX_NAMESPACE").starts_with("slurm");
    return {slurm ? pmix : mpiexec, slurm ? processes_of_step() : 1, number_in("PMIX_RANK", 0)};
  }
  if (const int processes = processes_of_step(); processes > 1) return {"srun", processes, number_in("SLURM_PROCID", 0)};
  return {};
}

std::string copies_problem(const Launcher& launcher, int ranks) {
  if (ranks > 1 || launcher.processes <= 1) return {};
  const auto n = launcher.processes;
  std::string commands;
  if (mpi_library() == "Open MPI") commands = fmt::format("mpirun -n {0} of Open MPI, or srun --mpi=pmix -n {0}", n);
  else if (mpi_library() != "MPICH") commands = fmt::format("mpiexec -n {} of that MPI", n);
  else if (launcher.name == mpiexec || launcher.name == pmi2)  // as Ubuntu 24.04 builds MPICH
    commands = fmt::format("what this MPICH was built for, such as mpirun -n {0} of Open MPI or srun --mpi=pmix -n {0}", n);
  else commands = fmt::format("mpiexec -n {0} of MPICH, or srun --mpi=pmi2 -n {0}", n);
  return fmt::format(
      "[launch] {} started {} processes, but {} finds {} rank in each, which would be {} copies of one run: use {}",
      launcher.name, n, mpi_library().empty() ? "MPI" : mpi_library(), ranks, n, commands);
}

}  // namespace mpigrad
