#pragma once
// The program that started this process, according to the environment.

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace mpigrad {

struct Launcher {
  std::string_view name;  // "mpiexec", "srun --mpi=pmix", ...; empty: this process was started by hand
  int processes = 0;      // number of processes that it started; 0: by hand, 1: not known
  int rank = 0;           // rank of this process among them
};

// Slurm's srun counts as a launcher where it started several processes, with or without an MPI of Slurm's. A shell of `srun
// --pty` and the programs started from it were started by hand.
Launcher launcher_of_environment();
// The same for any variables; a variable that is not set or empty has no value.
Launcher launcher_of(const std::function<std::optional<std::string>(const char*)>& variable);

// True if MPIGRAD_ALLOW_SINGLETONS is 1: processes of one launcher may be runs of one rank each.
bool singletons_allowed();

// Empty unless a launcher started several processes that MPI does not know, so that each is a world by itself: `ranks` is the
// size of MPI's world. All of them would do the same work and write the same files. One line, with the command that starts ranks.
std::string copies_problem(const Launcher& launcher, int ranks);

// True if this launcher and an MPI library with this text about itself do not speak to each other. MPICH 4 under PMIx finds one
// rank in each process; MPICH 5 under PMIx, and Open MPI under plain srun, end the process in MPI_Init with errors that name no
// launcher that would do.
bool lacks_pmix(const Launcher& launcher, std::string_view library_version);

// The MPI library's own text about itself, MPI_Get_library_version(); empty without MPI and with two MPI libraries. MPI need not
// be initialised. Defined in comm/transport/mpi, or in its absent.cpp.
std::string mpi_library_version();
// "MPICH" (also those made from it), "Intel MPI", "Open MPI", or empty for another MPI and for none: the library that runs.
std::string_view mpi_library();
// The same for a library with this text about itself.
std::string_view mpi_library_of(std::string_view library_version);

// The value of srun's --mpi that an MPI library with this text about itself needs: "pmi2", "pmix", or empty for Slurm's default,
// which is right for Cray MPICH, for an unknown library and without MPI.
std::string_view slurm_mpi_type(std::string_view library_version);

}  // namespace mpigrad
