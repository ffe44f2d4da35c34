#pragma once
// Signals wait while oneDNN computes.
//
// Its generated products write further below the stack pointer than the 128 bytes that a signal leaves alone (x86-64
// psABI 3.2.2): a handler's frame overwrites operands there, and the heap is what is damaged. Seen with oneDNN 2.6.3 and AVX-512,
// of sgemm, within seconds of a timer's signals; rarer ones, such as a batch system's, end one training in a dozen.

#include <omp.h>
#include <pthread.h>

#include <csignal>
#include <utility>

namespace mpigrad::cpu {

// Holds this thread's signals back while it lives, all but those that an instruction causes. Threads of the team that the caller
// would be the first of hold them from the first time on: a process's signals then go to other threads. Each time they are
// looked at, because a team that was smaller for a while has new threads since, of which nobody is told.
class HeldSignals {
 public:
  HeldSignals() {
    pthread_sigmask(SIG_BLOCK, &held(), &before_);
    if (omp_in_parallel() || omp_get_max_threads() == 1) return;
#pragma omp parallel
    {
      thread_local bool holds = false;
      if (omp_get_thread_num() > 0 && !std::exchange(holds, true)) pthread_sigmask(SIG_BLOCK, &held(), nullptr);
    }
  }
  ~HeldSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

 private:
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
