#pragma once
// Ends a hang after a chosen time, and says what every rank was doing.
//
// Each rank has a thread of its own that sleeps, looks at the rank's last call a few times per second, and talks to the others
// over a communicator of its own: what hangs is a call on some other communicator, and the MPI library goes on serving this one
// (which needs MPI_THREAD_MULTIPLE). Who waits too long tells rank 0's thread; it asks all others, prints their answers grouped
// by ranges of ranks, and aborts the job. Ranks that do not answer within 5 s (stopped, dead) are listed as such; if rank 0 does
// not answer within 10 s, whoever has told it prints what it is doing itself and aborts.

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "comm/call_board.h"
#include "comm/transport.h"

namespace mpigrad {

class Watchdog {
 public:
  // Collective; `world` is not watched. Error: MPI without MPI_THREAD_MULTIPLE.
  Watchdog(Transport& world, std::shared_ptr<detail::CallBoard> board, double seconds);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  // This rank has ended. Waits for the others, so that their questions are answered.
  void finish();

 private:
  void watch();
  void report();
  bool late() const;

  std::shared_ptr<Transport> messages_, farewell_;
  std::shared_ptr<detail::CallBoard> board_;
  double seconds_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace mpigrad
