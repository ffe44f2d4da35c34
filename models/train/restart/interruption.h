#pragma once
// Interruptions of a training: signals that batch systems send before their limit, or that users send.

#include <cstdint>

#include "comm/communicator.h"

namespace mpigrad {

// While one is in scope, the first SIGTERM, SIGINT or SIGUSR1 of this process is only noted. A second signal of the same kind, at
// least one second later, has its previous effect once noted() has returned the first one. Every SIGUSR2 asks for a report. After
// SIGTERM the rank's watchdog also ends the job if a rank is dead (comm/transport/watch/watchdog.h), and SIGUSR1 has no effect up
// to the end of the process. If a signal came, or end_training() was called, the first signal of each kind has no effect later,
// either: other ranks may have received theirs earlier.
class NotedSignals {
 public:
  NotedSignals();
  ~NotedSignals();
  NotedSignals(const NotedSignals&) = delete;
  NotedSignals& operator=(const NotedSignals&) = delete;
  // The name of the first signal, or null.
  static const char* noted();
  // From now on a second signal has its previous effect although noted() was not called.
  static void second_ends();
  // All ranks have agreed to end the training, because of a signal to one of them or a time limit.
  static void end_training();
  static bool asked_for_report();
  static void report_made();
};

// The maximum of a number over ranks, known to all ranks one call later, so that no rank waits for a message between two steps.
class DeferredMax {
 public:
  explicit DeferredMax(const Communicator& world) : world_(world) {}
  DeferredMax(const DeferredMax&) = delete;
  DeferredMax& operator=(const DeferredMax&) = delete;
  // Returns the maximum of the numbers that ranks passed in the previous call, where a number counts as 0 unless it was above the
  // result of its call; 0 in the first call. Collective.
  std::int64_t ask(std::int64_t mine);
  // Returns the maximum of the numbers of this call and of the last ask(). Collective.
  std::int64_t now(std::int64_t mine);

 private:
  std::int64_t finish();
  const Communicator& world_;
  std::int64_t mine_ = 0, largest_ = 0;
  Pending pending_;  // declared after the numbers it writes, so that it is waited for before they are destroyed
};

}  // namespace mpigrad
