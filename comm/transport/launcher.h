#pragma once
// The program that started this process, as its environment tells.

#include <string>
#include <string_view>

namespace mpigrad {

struct Launcher {
  std::string_view name;  // "mpiexec", "srun --mpi=pmix", ...; empty: this process was started by hand
  int processes = 0;      // that it started; 0: by hand, 1 where the launcher does not tell
  int rank = 0;           // of this process among them
};

// Slurm's srun counts where it started several processes, with or without an MPI of Slurm's. A shell of `srun --pty` and what is
// typed there were started by hand.
Launcher launcher_of_environment();

// Empty unless a launcher started several processes that MPI does not know, so that each is a world of its own: `ranks` is the
// size of MPI's world. All of them would do the same work and write the same files. One line, with the command that starts ranks.
std::string copies_problem(const Launcher& launcher, int ranks);

// "MPICH", "Open MPI", or empty for another MPI and for none. Defined in comm/transport/mpi, or in its absent.cpp.
std::string_view mpi_library();

}  // namespace mpigrad
