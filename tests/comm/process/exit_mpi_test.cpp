// Ranks that end before others: run as `mpiexec -n 2 exit_mpi_test KIND`; tests/comm/process/exit_mpi.sh checks the results.
//
//   return   rank 1's body returns 7 while rank 0 waits for it
//   exit     rank 1 calls std::exit(3) meanwhile
//   throw    rank 1 throws
//   late     all end with 0, rank 1 a second after the others
//   signal   rank 1 gets SIGUSR1, like from a batch system at the time limit
//   stuck    MPI_Finalize never comes back; rank 1's exit code is 5, and it has printed without a newline
//   single   the program has started MPI for one thread only; all end with 0
//   pair     0 if there are two ranks, else 77: the launcher is not the library's
//   version  prints the text of the MPI library about itself
//   hosts    0 if the watchdog runs by default, else 3
//   thread   calls MPI on a thread of its own

#include <mpi.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "comm/launch.h"
#include "comm/transport/launcher.h"
#include "comm/transport/watch/call_board.h"

using namespace mpigrad;

namespace {
std::string kind;
}

// Replaces the library's function, through MPI's profiling interface.
extern "C" int MPI_Finalize() {
  while (kind == "stuck") std::this_thread::sleep_for(std::chrono::seconds(1));
  return PMPI_Finalize();
}

int main(int argc, char** argv) {
  kind = argc > 1 ? argv[1] : "";
  int threads = 0;
  if (kind == "single") MPI_Init_thread(&argc, &argv, MPI_THREAD_SINGLE, &threads);
  const int code = launch(argc, argv, [&](std::shared_ptr<Transport> world) {
    if (kind == "single") return 0;
    if (kind == "pair") return world->size() == 2 ? 0 : 77;
    if (kind == "version") return std::puts(mpi_library_version().c_str()), 0;
    if (kind == "hosts") return detail::board_of_this_thread() ? 0 : 3;
    if (kind == "thread") return std::thread([&] { world->barrier(); }).join(), 0;
    if (world->rank() == 1) {
      if (kind == "return") return 7;
      if (kind == "exit") std::exit(3);
      if (kind == "throw") fail("[test] this rank fails");
      if (kind == "signal") std::raise(SIGUSR1);
      if (kind == "stuck") return std::printf("%s", "kept until the end"), 5;
      if (kind == "late") std::this_thread::sleep_for(std::chrono::seconds(1));
    } else if (kind != "late" && kind != "stuck") {
      world->barrier();
    }
    return 0;
  });
  if (kind == "single") {
    // The library's own way to exit (comm/transport/mpi/world.cpp), without which MPI_Finalize may hang over TCP.
    MPI_Barrier(MPI_COMM_WORLD);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    MPI_Finalize();
  }
  return kind == "pair" && code == 2 ? 77 : code;  // refused: a launcher unknown to MPI
}
