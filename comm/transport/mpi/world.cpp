// The world of the ranks that a launcher has started: MPI's initialisation and finalisation.

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "comm/transport/environment.h"
#include "comm/transport/launcher.h"
#include "comm/transport/mpi/call.h"
#include "comm/transport/mpi/mpi_comm.h"

namespace mpigrad {
namespace mpi {
namespace {

MPI_Comm farewell = MPI_COMM_NULL;  // used only for the barriers below
bool several_hosts = false;

// UCX closes a connection over TCP when the other side has acknowledged all that was sent. A rank acknowledges while it is in a
// call that makes progress. In MPICH's MPI_Finalize it does so until its own connections are closed, and then waits only for the
// process manager. Therefore a rank that still polled here while another rank was in MPI_Finalize already gave the other rank the
// acknowledgements it needed, and got none itself: both waited for ever. Hence no rank may make progress between the first rank's
// MPI_Finalize and its own. All ranks leave a barrier as closely together as they can, and then wait without progress until the
// last one has left it, too.
void leave_together() {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Status status;
  if (MPI_Ibarrier(farewell, &request) == MPI_SUCCESS) wait(request, status, 0);
  MPI_Comm_free(&farewell);
  if (several_hosts) std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

// Ranks that end wait for each other here. A rank that fails only by its exit code, while others continue, would otherwise leave
// the others waiting for its messages, and itself in MPI_Finalize, for ever.
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
      fmt::print(stderr, "[rank {} of {}] [mpi] this rank has ended with exit code {} while others continue; ending them, too\n",
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
  // All ranks have ended and wait only for MPI_Finalize: if it does not return, each ends with its own exit code. Ranks that have
  // failed end first, because a launcher may use the first exit code that it gets.
  end_process_in(
      status != 0 ? 30 : 31, status,
      fmt::format("[rank {} of {}] [mpi] all ranks have ended, but MPI_Finalize has not returned for 30 s; leaving it with exit "
                  "code {}\n",
                  rank, size, status));
  leave_together();
  MPI_Finalize();
}

}  // namespace
}  // namespace mpi

bool mpi_available() { return true; }

std::string mpi_library_version() {
  if (!mpi::second_library().empty()) return {};  // whose text may be longer than this one's limit
  std::string text(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
  int length = 0;
  if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) length = 0;
  return text.substr(0, std::min(static_cast<std::size_t>(length), text.find('\0')));  // Open MPI counts the zero at the end
}

std::shared_ptr<Transport> mpi_world(int* argc, char*** argv) {
  if (const auto problem = mpi::second_library(); !problem.empty()) throw SettingsError(problem);
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (!initialized) {
    int provided = 0;
    // MPICH counts failures by SIGUSR1: a rank that got the signal from a batch system or a person would continue silently. The
    // previous handling is restored, which is to end the rank and with it the job.
    struct sigaction before = {};
    const bool known = sigaction(SIGUSR1, nullptr, &before) == 0;
    mpi::check(MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided), "mpi_world");
    if (known) sigaction(SIGUSR1, &before, nullptr);
    // Errors of waiting call the handlers of these two communicators, not that of ours. If the program initialises MPI itself,
    // its own handlers stay.
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, mpi::errors_return());
    MPI_Comm_set_errhandler(MPI_COMM_SELF, mpi::errors_return());
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
