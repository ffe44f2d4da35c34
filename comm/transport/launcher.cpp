#include "comm/transport/launcher.h"

#include <unistd.h>

#include "comm/transport/environment.h"
#include "framework/base/error.h"

namespace mpigrad {
namespace {

using Variables = std::function<std::optional<std::string>(const char*)>;

struct Numbers {
  const Variables& variable;
  int operator()(const char* name, int otherwise = 0) const {
    return parse_whole_number(variable(name).value_or("")).value_or(otherwise);
  }
};

// The number of processes of this step of Slurm; 1 if this process is not one of them. Processes inherit the variables of a step:
// all commands typed in a terminal have those of the terminal's shell. The shells of salloc and sbatch are not in a step of
// several processes, although SLURM_NTASKS is set there.
int processes_of_step(const Variables& variable) {
  const Numbers number{variable};
  const bool typed = variable("SLURM_PTY_PORT") && number("SLURM_TASK_PID") != getpid();
  return typed ? 1 : number("SLURM_STEP_NUM_TASKS", 1);
}

constexpr std::string_view by_mpiexec = "mpiexec", by_mpirun = "mpirun of Open MPI", by_pmi2 = "srun with PMI",
                           by_pmix = "srun --mpi=pmix", by_srun = "srun";

}  // namespace

Launcher launcher_of(const Variables& variable) {
  const Numbers number{variable};
  // MPICH's mpiexec starts its own processes by srun: only a process without variables of MPI was started by srun itself.
  if (variable("PMI_SIZE"))
    return {!variable("MPI_LOCALNRANKS") && variable("SLURM_STEP_ID") ? by_pmi2 : by_mpiexec, number("PMI_SIZE"),
            number("PMI_RANK")};
  if (variable("OMPI_COMM_WORLD_SIZE")) return {by_mpirun, number("OMPI_COMM_WORLD_SIZE"), number("OMPI_COMM_WORLD_RANK")};
  if (variable("MPI_LOCALNRANKS")) return {by_mpiexec, number("MPI_LOCALNRANKS"), number("PMI_RANK")};
  if (variable("PMIX_RANK")) {  // PMIx does not tell the number of processes, Slurm does
    const bool slurm = variable("PMIX_NAMESPACE").value_or("").starts_with("slurm");
    return {slurm ? by_pmix : by_mpiexec, slurm ? processes_of_step(variable) : 1, number("PMIX_RANK")};
  }
  if (const int processes = processes_of_step(variable); processes > 1) return {by_srun, processes, number("SLURM_PROCID")};
  return {};
}

Launcher launcher_of_environment() { return launcher_of(environment_variable); }

bool singletons_allowed() { return environment_variable("MPIGRAD_ALLOW_SINGLETONS") == "1"; }

std::string_view mpi_library() {
  static const auto name = mpi_library_of(mpi_library_version());
  return name;
}

std::string_view mpi_library_of(std::string_view library_version) {
  const auto has = [&](std::string_view word) { return library_version.find(word) != std::string_view::npos; };
  if (has("Open MPI")) return "Open MPI";
  if (has("Intel(R) MPI")) return "Intel MPI";
  return has("MPICH") || has("MVAPICH") ? "MPICH" : "";
}

std::string_view slurm_mpi_type(std::string_view library_version) {
  const auto has = [&](std::string_view word) { return library_version.find(word) != std::string_view::npos; };
  if (has("CRAY")) return {};  // "MPI VERSION    : CRAY MPICH version 8.1.28.16 (ANL base 3.4a2)"
  if (has("Open MPI") || has("--with-pmix")) return "pmix";
  return has("MPICH Version") || has("MVAPICH") || has("Intel(R) MPI") ? "pmi2" : "";
}

bool lacks_pmix(const Launcher& launcher, std::string_view library_version) {
  const auto has = [&](std::string_view word) { return library_version.find(word) != std::string_view::npos; };
  if (launcher.name == by_srun) return has("Open MPI");
  return (launcher.name == by_pmix || launcher.name == by_mpirun) && has("MPICH Version") && !has("pmix");
}

std::string copies_problem(const Launcher& launcher, int ranks) {
  if (ranks > 1 || launcher.processes <= 1) return {};
  const auto n = launcher.processes;
  std::string commands;
  const bool pmix = slurm_mpi_type(mpi_library_version()) == "pmix";  // as Ubuntu 24.04 builds MPICH
  if (mpi_library() == "Open MPI") commands = fmt::format("mpirun -n {0} of Open MPI, or srun --mpi=pmix -n {0}", n);
  else if (mpi_library().empty()) commands = fmt::format("mpiexec -n {} of that MPI", n);
  else if (pmix || launcher.name == by_mpiexec || launcher.name == by_pmi2)
    commands =
        fmt::format("the launcher for which this {1} was built, such as mpirun -n {0} of Open MPI or srun --mpi=pmix -n {0}", n,
                    mpi_library());
  else commands = fmt::format("mpiexec -n {0} of {1}, or srun --mpi=pmi2 -n {0}", n, mpi_library());
  return fmt::format(
      "[launch] {} started {} processes, but {} finds {} rank in each, which would be {} copies of one run: use {} "
      "(MPIGRAD_ALLOW_SINGLETONS=1 permits copies)",
      launcher.name, n, mpi_library().empty() ? "MPI" : mpi_library(), ranks, n, commands);
}

}  // namespace mpigrad
