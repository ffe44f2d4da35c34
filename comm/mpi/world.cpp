// The ranks that a launcher has started: MPI's initialisation, and how they end.

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "comm/mpi/call.h"
#include "comm/mpi/mpi_comm.h"

namespace mpigrad {
namespace mpi {
namespace {

MPI_Comm farewell = MPI_COMM_NULL;  // for nothing but the barrier below

// Ranks that end wait for each other here. One that fails by its exit code alone, while others go on, would leave them waiting
// for its messages, and itself in MPI_Finalize, for ever.
void finalize_at_exit(int status, void*) {
  using namespace std::chrono;
  constexpr auto patience = seconds(5), silence = seconds(60);
  if (finalized()) return;
  MPI_Request request = MPI_REQUEST_NULL;
  int done = 0, rank = 0, size = 1;
  MPI_Comm_rank(farewell, &rank);
  MPI_Comm_size(farewell, &size);
  if (MPI_Ibarrier(farewell, &request) != MPI_SUCCESS) done = 1;
  bool told = false;
  for (const auto start = steady_clock::now(); !done;) {
    if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done) break;
    const auto waited = steady_clock::now() - start;
    if (status != 0 && waited > patience) {
      fmt::print(stderr, "[rank {} of {}] [mpi] this rank has ended with exit code {} while others go on; ending them, too\n",
                 rank, size, status);
      MPI_Abort(MPI_COMM_WORLD, status);
    }
    if (waited > silence && !told) {
      fmt::print(stderr, "[rank {} of {}] [mpi] this rank has ended and waits for the others to end\n", rank, size);
      told = true;
    }
    std::this_thread::sleep_for(milliseconds(waited < milliseconds(10) ? 0 : 5));
  }
  MPI_Comm_free(&farewell);
  MPI_Finalize();
}

}  // namespace
}  // namespace mpi

bool mpi_available() { return true; }

std::shared_ptr<Transport> mpi_world(int* argc, char*** argv) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (!initialized) {
    int provided = 0;
    mpi::check(MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided), "mpi_world");
    // Errors of waiting meet the handlers of these two, not that of our communicator. Where the program runs MPI itself its
    // own choice stays.
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    mpi::check(MPI_Comm_dup(MPI_COMM_WORLD, &mpi::farewell), "mpi_world");
    // Static objects made later are destroyed earlier: communicators they hold are freed before this runs.
    on_exit(mpi::finalize_at_exit, nullptr);
  }
  return mpi_transport(MPI_COMM_WORLD);
}

}  // namespace mpigrad
