#pragma once
// Ends a hang after a chosen time, and prints what every rank was doing.
//
// There are three kinds. The first one, which the user requests, ends any call that takes longer. The second one is on by default
// over several hosts, because a link between them that is cut may otherwise leave ranks waiting for ever. It must never end a
// healthy job. Therefore it
// * begins with the first step of an optimizer, and does not count evaluation, checkpoints and reading (SlowPhase in
//   framework/engine/activity.h);
// * ends the job only if every rank has been in a communication call for longer than the limit, so that no rank can continue,
//   or if a rank cannot be reached for half the limit more. A rank that computes or reads keeps all others alive;
// * has a limit of 600 s: a single call that takes ten minutes on all ranks would be, say, a gradient of 3 GiB over a link of
//   40 Mbit/s, and TCP itself gives up a connection that has been silent for about 15 minutes.
//
// The third is on by default on one host under MPI, with a limit of 10 s. It ends the job where a rank has reached the end of the
// program and all others have been in communication calls for longer than the limit, as after `if (rank == 0)
// save_checkpoint(...)`. A rank that computes or waits for its GPU keeps the job alive. Over several hosts the second kind does
// this, too, with its own limit.
//
// All kinds end a job that SIGTERM has asked to end and that cannot: a training notes the signal and ends after its step, but a
// rank that waits for a dead rank does not come to the end of its step, and batch systems wait 30 s or more before they kill it.
// If a rank that got SIGTERM has been in one call for 5 s, all ranks are asked. If one of them does not answer within 5 s, the
// job ends; its checkpoint is the last one written. Ranks that compute, read or wait answer, and the job continues. Calls while a
// checkpoint is written do not count: an MPI library may not serve other threads while it writes.
//
// Each rank has a watchdog thread that sleeps, looks at the rank's last call a few times per second, and talks to the other
// ranks' watchdogs over a private communicator: a hanging call is on some other communicator, and the MPI library continues to
// serve this one (which needs MPI_THREAD_MULTIPLE). The watchdog of a rank that waits too long tells rank 0's watchdog. That one
// asks all others, prints their answers grouped by ranges of ranks and tells the others which ranks are missing. Each of them
// then prints a line with the line of the program where its rank is (whereabouts.h) and how long after the limit that is. Rank 0
// then aborts the job. Ranks that do not answer within 3 s (stopped, dead) are listed as such; if rank 0 does not answer within
// 4 s, the rank that has told it prints its own activity and aborts (half the limit in both cases for the watchdog of training).
// All this takes about 5 s at most. A host that waits for its GPU counts as being in its last call: with NCCL that is where a
// hang appears.

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
  using Clock = std::chrono::steady_clock;
  // Collective; `world` must not be watched; `board` is this thread's. Error: MPI without MPI_THREAD_MULTIPLE.
  Watchdog(Transport& world, std::shared_ptr<detail::CallBoard> board, double seconds, Patience patience = Patience::none);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  // This rank has ended with that exit code. Waits for the others, so that their questions are answered; after a failure for only
  // 1 s, because they may be waiting for this rank.
  void finish(int code);

 private:
  void watch();
  void serve();           // on rank 0
  void answer_or_tell();  // on the other ranks
  void report(bool leaving);
  std::string reason(bool leaves) const;
  void tell_verdict(const std::vector<detail::CallBoard::State>& states, const std::vector<bool>& answered);
  void print_own_line(const std::string& missing);
  void give_up();
  bool late(const detail::CallBoard::State& state) const;
  bool late() const;
  bool leaves() const;               // true if this rank was asked to end and waits for others
  bool again(double seconds) const;  // true if it is time to ask, or to tell, once more
  void expect();

  std::shared_ptr<Transport> messages_, farewell_;
  std::shared_ptr<detail::CallBoard> board_;
  detail::Whereabouts where_;  // of the rank's own thread, which constructs the watchdog
  double seconds_;
  Patience patience_;
  Clock::duration answer_patience_, question_patience_;
  // Used by the watchdog thread; buffers are declared before the operations that use them.
  detail::CallBoard::State incoming_, mine_, alarm_;
  std::array<char, 2048> verdict_{};  // rank 0's verdict, after which the job ends
  std::vector<char> told_all_;        // the answers of the ranks that have printed it
  Pending receive_, told_, answer_, judged_, heard_;
  Clock::time_point told_at_{}, asked_at_{}, judged_at_{};
  bool asked_ = false, doomed_ = false;  // doomed: after a question of rank 0 that ends the job
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace mpigrad
