#pragma once
// Signals wait while oneDNN computes.
//
// Its generated products write further below the stack pointer than the 128 bytes that a signal leaves alone (x86-64
// psABI 3.2.2): a handler's frame overwrites operands there, and the heap is what is damaged. Seen with oneDNN 2.6.3 and AVX-512,
// of sgemm, within seconds of a timer's signals; rarer ones, such as a batch system's, end one training in a dozen.

#include <omp.h>
#include <pthread.h>

#include <atomic>
#include <csignal>
#include <memory>

namespace mpigrad::cpu {

// Holds this thread's signals back while it lives, all but those that an instruction causes. Threads of the team that the caller
// would be the first of hold them from the first time on: a process's signals then go to other threads. Threads end where a
// smaller team computes, and those of a larger one later are new; so their number counts. (Meeting the team for each call made
// CosmoFlow's steps at 64^3 a sixth slower.)
class HeldSignals {
 public:
  HeldSignals() {
    pthread_sigmask(SIG_BLOCK, &held(), &before_);
    thread_local const auto team = std::make_shared<std::atomic<int>>(0);
    const auto holding = team;  // of the first thread, as others have one of their own
    // A thread that ends is counted for a moment longer, while the one in its place is new: teams of another size always meet.
    thread_local int met = 0;
    const int threads = omp_get_max_threads();
    if (omp_in_parallel() || (threads == met && threads - 1 <= *holding)) return;
    met = threads;
#pragma omp parallel
    {
      thread_local Member member;
      if (omp_get_thread_num() > 0) member.join(holding);
    }
  }
  ~HeldSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

 private:
  // A thread that holds signals until it ends, and is counted as long.
  class Member {
   public:
    Member() = default;
    ~Member() {
      if (team_) --*team_;
    }
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;
    void join(const std::shared_ptr<std::atomic<int>>& team) {
      if (team_) return;
      pthread_sigmask(SIG_BLOCK, &held(), nullptr);
      team_ = team;
      ++*team_;
    }

   private:
    std::shared_ptr<std::atomic<int>> team_{};
  };

  static const sigset_t& held() {
    static const sigset_t all = [] {
      sigset_t set;
      sigfillset(&set);
      for (const int caused : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) sigdelset(&set, caused);
      return set;
    }();
    return all;
  }
  sigset_t before_{};
};

}  // namespace mpigrad::cpu
