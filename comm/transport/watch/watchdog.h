#pragma once
// Ends a hang after a chosen time, and says what every rank was doing.
//
// There are three kinds. The one that somebody asks for ends any call that takes longer. The one that is there over several
// hosts, because a link between them that is cut may otherwise leave ranks waiting for ever, must never end a sound job. It
// * begins with the first step of an optimizer, and does not count evaluation, checkpoints and reading (SlowPhase in
//   framework/engine/activity.h);
// * ends the job only if every rank has been in a communication call for longer than the limit, so that nobody is left who could
//   go on, or if a rank cannot be reached for half the limit more. A rank that computes or reads keeps all others alive;
// * has a limit of 600 s: a single call that takes ten minutes on all ranks would be, say, a gradient of 3 GiB over a link of
//   40 Mbit/s, and TCP itself gives up a connection that has been silent for about 15 minutes.
//
// The third is there on one host under MPI, with a limit of 10 s. It ends the job where a rank has reached the end of the program
// and all others have been in communication calls for longer than the limit, `if (rank == 0) save_checkpoint(...)`. A rank that
// computes or waits for its GPU keeps the job alive. Over several hosts the second kind does this, too, with its own limit.
//
// Each rank has a thread of its own that sleeps, looks at the rank's last call a few times per second, and talks to the others
// over a communicator of its own: what hangs is a call on some other communicator, and the MPI library goes on serving this one
// (which needs MPI_THREAD_MULTIPLE). Who waits too long tells rank 0's thread; it asks all others, prints their answers grouped
// by ranges of ranks, tells them who is missing, upon which each prints a line of its own with the line of the program in which
// it is (whereabouts.h) and how long after the limit that is, and aborts the job. Ranks that do not answer within 3 s (stopped,
// dead) are listed as such; if rank 0 does not answer within 4 s, whoever has told it prints what it is doing itself and aborts
// (half the limit in both cases for the watchdog of training). All this takes about 5 s at most. A host that waits for its GPU
// counts as in its last call: with NCCL the hang is there.

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/transport/transport.h"
#include "comm/transport/watch/call_board.h"
#include "comm/transport/watch/whereabouts.h"

namespace mpigrad {

enum class Patience : std::uint8_t { none, training, ends };

class Watchdog {
 public:
  // Collective; `world` is not watched; `board` is this thread's. Error: MPI without MPI_THREAD_MULTIPLE.
  Watchdog(Transport& world, std::shared_ptr<detail::CallBoard> board, double seconds, Patience patience = Patience::none);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  // This rank has ended with that exit code. Waits for the others, so that their questions are answered; after a failure for 1 s
  // only, because they may wait for this rank.
  void finish(int code);

 private:
  using Clock = std::chrono::steady_clock;
  void watch();
  void serve();           // of rank 0
  void answer_or_tell();  // of the others
  void report();
  void tell_verdict(const std::vector<detail::CallBoard::State>& states, const std::vector<bool>& answered);
  void print_own_line(const std::string& missing);
  void give_up();
  bool late(const detail::CallBoard::State& state) const;
  bool late() const;
  bool again() const;  // whether it is time to ask, or to tell, once more
  void expect();

  std::shared_ptr<Transport> messages_, farewell_;
  std::shared_ptr<detail::CallBoard> board_;
  detail::Whereabouts where_;  // of the rank's own thread, which makes the watchdog
  double seconds_;
  Patience patience_;
  Clock::duration answer_patience_, question_patience_;
  // Of the thread; buffers before what uses them.
  detail::CallBoard::State incoming_, mine_, alarm_;
  std::array<char, 2048> verdict_{};  // rank 0's, upon which the job ends
  std::vector<char> told_all_;        // what comes back from those that have printed it
  Pending receive_, told_, answer_, judged_, heard_;
  Clock::time_point told_at_{}, asked_at_{};
  bool asked_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace mpigrad
