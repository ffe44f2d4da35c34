#pragma once
// Blocks signals while oneDNN computes.
//
// oneDNN's generated products write further below the stack pointer than the 128 bytes that a signal leaves intact (x86-64 psABI
// 3.2.2): a handler's frame overwrites operands there, and the heap gets corrupted. Seen in sgemm of oneDNN 2.6.3 with AVX-512,
// within seconds of a timer's signals; rare signals, such as a batch system's, crash one training in a dozen.

#include <omp.h>
#include <pthread.h>

#include <atomic>
#include <csignal>
#include <memory>

namespace mpigrad::cpu {

// Blocks this thread's signals during its lifetime, except those that an instruction causes. The threads of the caller's OpenMP
// team block them from the first time on: signals to the process then go to other threads. Threads end when a smaller team
// computes, and the threads of a later larger team are new; their number is therefore counted. (Entering a parallel region at
// each call made CosmoFlow's steps at 64^3 a sixth slower.)
class HeldSignals {
 public:
  HeldSignals() {
    pthread_sigmask(SIG_BLOCK, &held(), &before_);
    thread_local const auto team = std::make_shared<std::atomic<int>>(0);
    const auto holding = team;  // of the first thread; others have a `team` of their own
    // An ending thread is still counted for a moment while its replacement is new: a team of another size always enters the
    // region.
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
  // A thread that blocks signals and is counted until it ends.
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
