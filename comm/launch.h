#pragma once
// How a program becomes ranks: which transport, how many threads each rank may use, and how errors end the job.

#include <functional>
#include <memory>
#include <string>

#include "comm/process/threads.h"
#include "comm/transport/transport.h"

namespace mpigrad {

struct LaunchOptions {
  std::string transport = "";  // "threads", "mpi", or empty: see resolve_launch_options
  int ranks = 0;               // 0: not given
  std::string device = "";     // "cpu", "cuda", or empty: cpu
};

// Takes `--transport NAME`, `--ranks P` and `--device NAME` (also with `=`) out of argc and argv, up to a `--`; what is not given
// comes from the environment (MPIGRAD_TRANSPORT, MPIGRAD_RANKS, MPIGRAD_DEVICE). An Error if a value is missing or makes no
// sense.
LaunchOptions take_launch_options(int& argc, char** argv);

// Fills in what was not given: mpi if this build has it and the number of ranks was not asked for, or under mpiexec; else
// threads. An Error for what cannot work, such as `threads` under mpiexec, or a GPU where there is none.
LaunchOptions resolve_launch_options(LaunchOptions options);

// The GPU of this rank: the ranks of a node take the GPUs that they see in turn.
int gpu_of_rank(const Transport& transport, int gpus);

// Whether this process is the first that its launcher started, as far as its environment tells; true for one started by hand. For
// what is said once where no communicator is at hand.
bool first_of_launch();

// Runs body(world) on every rank, with the device asked for as the current one (and the rank's GPU selected), and returns the
// process's exit code: what body returned (threads: the first that is not 0). Launch options are taken out of argc and argv
// first. An exception that leaves body on one rank is printed to standard error as `[rank r of P] message` (without the prefix if
// P = 1), ends the whole job and makes the exit code 1 on every rank. A process whose standard output could not be written says
// so and returns 1 instead of 0. Bad launch options, options or MPIGRAD_* variables that differ between processes and must not
// (comm/transport/environment.h), and a launcher that MPI does not know, so that each of its processes would be a run of its own
// (comm/transport/launcher.h): one line, exit code 2 on every rank.
int launch(int& argc, char** argv, const std::function<int(std::shared_ptr<Transport>)>& body);

}  // namespace mpigrad
