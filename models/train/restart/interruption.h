#pragma once
// What ends a training from outside: signals that batch systems send ahead of their limit, or people.

#include <cstdint>

#include "comm/communicator.h"

namespace mpigrad {

// While one lives, the first SIGTERM, SIGINT or SIGUSR1 of this process is noted and does nothing else; another of the same kind
// does what it did before, where noted() has told of the first a second after it or later. SIGUSR2 asks for a report, as often as
// it comes.
class NotedSignals {
 public:
  NotedSignals();
  ~NotedSignals();
  NotedSignals(const NotedSignals&) = delete;
  NotedSignals& operator=(const NotedSignals&) = delete;
  // The name of the first that came, or null.
  static const char* noted();
  static bool asked_for_report();
  static void report_made();
};

// The maximum of a number over the ranks, known to all of them one call later, so that no rank waits for a message between two
// steps.
class DeferredMax {
 public:
  explicit DeferredMax(const Communicator& world) : world_(world) {}
  DeferredMax(const DeferredMax&) = delete;
  DeferredMax& operator=(const DeferredMax&) = delete;
  // The largest of what ranks said in the call before; the first time 0. Collective, as is the next.
  std::int64_t ask(std::int64_t mine);
  // Of this call.
  std::int64_t now(std::int64_t mine);

 private:
  std::int64_t finish();
  const Communicator& world_;
  std::int64_t mine_ = 0, largest_ = 0;
  Pending pending_;  // after what it writes to: waited for before that goes
};

}  // namespace mpigrad
