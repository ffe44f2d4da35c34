#pragma once
// Starts the ranks of a program: selects the transport, the number of threads of each rank and the device, and ends the job after
// an error.

#include <functional>
#include <memory>
#include <string>

#include "comm/process/threads.h"
#include "comm/transport/transport.h"

namespace mpigrad {

struct LaunchOptions {
  std::string transport = "";  // "threads", "mpi", or empty: chosen by resolve_launch_options()
  int ranks = 0;               // 0: not given
  std::string device = "";     // "cpu", "cuda", or empty: cpu
};

// Removes `--transport NAME`, `--ranks P` and `--device NAME` (also written with `=`) from argc and argv, up to a `--`. Options
// that are not given are read from the environment (MPIGRAD_TRANSPORT, MPIGRAD_RANKS, MPIGRAD_DEVICE). Error: a value that is
// missing or invalid.
LaunchOptions take_launch_options(int& argc, char** argv);

// Fills in the options that were not given. The transport is mpi under mpiexec, and where this build has MPI and the number of
// ranks was not given; otherwise threads. Error: options that cannot work, such as `threads` under mpiexec, or a GPU on a machine
// without one.
LaunchOptions resolve_launch_options(LaunchOptions options);

// The GPU of this rank: the ranks of a node are assigned to the `gpus` visible GPUs in turn.
int gpu_of_rank(const Transport& transport, int gpus);

// True if this process is the first that its launcher started, according to its environment; true for a process started by hand.
// Used for messages that are printed once where no communicator is available.
bool first_of_launch();

// Runs body(world) on every rank, with the requested device as the current one (and the rank's GPU selected). Returns the exit
// code of the process: the value that body returned (threads: the first that is not 0). Launch options are removed from argc and
// argv first.
//
// An exception that leaves body on one rank is printed to standard error as `[rank r of P] message` (without the prefix if P =
// 1), ends the whole job and makes the exit code 1 on every rank. A process whose standard output could not be written reports
// that and returns 1 instead of 0. These errors are printed in one line, with exit code 2 on every rank: bad launch options;
// options or MPIGRAD_* variables that differ between processes and must not (comm/transport/environment.h); a launcher that MPI
// does not know, so that each of its processes would be a separate run (comm/transport/launcher.h), unless
// MPIGRAD_ALLOW_SINGLETONS is 1.
//
// `watchdog`: seconds of a watchdog (comm/checks.md) for a user whose MPIGRAD_CHECKS names none; 0: none. With an MPI library
// without MPI_THREAD_MULTIPLE nothing watches then, and one line says so.
int launch(int& argc, char** argv, const std::function<int(std::shared_ptr<Transport>)>& body, double watchdog = 0);

}  // namespace mpigrad
