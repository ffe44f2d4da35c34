// The ranks that a launcher has started: MPI's initialisation, and how they end.

#include <fmt/format.h>
#include <sched.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "comm/transport/launcher.h"
#include "comm/transport/mpi/call.h"
#include "comm/transport/mpi/mpi_comm.h"

namespace mpigrad {
namespace mpi {
namespace {

MPI_Comm farewell = MPI_COMM_NULL;  // for nothing but the barriers below
bool several_hosts = false;

// UCX closes a connection over TCP when the other side has acknowledged all that was sent. A rank acknowledges while it is in a
// call that makes progress; in MPICH's MPI_Finalize it does so until its own connections are closed, and then waits for the
// process manager alone. So a rank that still polled here while another was in MPI_Finalize already gave that one what it needed
// to go on and got nothing itself: both waited for ever. Nobody may make progress between the first rank's MPI_Finalize and his
// own. So all leave a barrier as closely as they can, and then wait without progress until the last one has left it, too.
void leave_together() {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Status status;
  if (MPI_Ibarrier(farewell, &request) == MPI_SUCCESS) wait(request, status, 0);
  MPI_Comm_free(&farewell);
  if (several_hosts) std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

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
      abort_job(status);
    }
    if (waited > silence && !told) {
      fmt::print(stderr, "[rank {} of {}] [mpi] this rank has ended and waits for the others to end\n", rank, size);
      told = true;
    }
    if (waited < milliseconds(10)) sched_yield();
    else std::this_thread::sleep_for(milliseconds(5));
  }
  // All have ended, and nobody waits for anything but MPI_Finalize: if that does not come back, each ends with its own exit code.
  // Ranks that have failed go first, because a launcher may take the first code that it hears.
  end_process_in(
      status != 0 ? 30 : 31, status,
      fmt::format("[rank {} of {}] [mpi] all ranks have ended, but MPI_Finalize has not for 30 s; leaving it with exit "
                  "code {}\n",
                  rank, size, status));
  leave_together();
  MPI_Finalize();
}

}  // namespace
}  // namespace mpi

bool mpi_available() { return true; }

std::string_view mpi_library() {
#if defined(MPICH_VERSION)
  return "MPICH";
#elif defined(OPEN_MPI)
  return "Open MPI";
#else
  return {};
#endif
}

std::shared_ptr<Transport> mpi_world(int* argc, char*** argv) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (!initialized) {
    int provided = 0;
    // MPICH counts failures by SIGUSR1: a rank that got it from a batch system or a person would go on without a word. It does
    // what it did before, which is to end the rank and with it the job.
    struct sigaction before = {};
    const bool known = sigaction(SIGUSR1, nullptr, &before) == 0;
    mpi::check(MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided), "mpi_world");
    if (known) sigaction(SIGUSR1, &before, nullptr);
    // Errors of waiting meet the handlers of these two, not that of our communicator. Where the program runs MPI itself its
    // own choice stays.
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    mpi::check(MPI_Comm_dup(MPI_COMM_WORLD, &mpi::farewell), "mpi_world");
    MPI_Comm node = MPI_COMM_NULL;
    mpi::check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node), "mpi_world");
    int here = 0, all = 0;
    MPI_Comm_size(node, &here), MPI_Comm_size(MPI_COMM_WORLD, &all), MPI_Comm_free(&node);
    mpi::several_hosts = here < all;
    // Static objects made later are destroyed earlier: communicators they hold are freed before this runs.
    on_exit(mpi::finalize_at_exit, nullptr);
  }
  return mpi_transport(MPI_COMM_WORLD);
}

}  // namespace mpigrad
