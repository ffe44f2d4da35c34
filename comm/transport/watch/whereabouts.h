#pragma once
// Finds out where in the program a rank's thread is, from another thread: for hangs. No cost until it is used.
//
// The thread is sent a SIGURG (ignored by default), whose handler notes the return addresses on its stack. addr2line (of
// binutils), where it is installed, translates these to functions and lines: lines for programs that were compiled with -g,
// functions for all programs that are not stripped.

#include <pthread.h>

#include <chrono>
#include <string>

namespace mpigrad::detail {

class Whereabouts {
 public:
  // For the thread that constructs it, which must outlive it.
  Whereabouts();
  // "in mpigrad::allreduce, called by main at train.cpp:42"; empty if the thread does not answer within a second, or if nothing
  // is known about its stack. One thread at a time may call it.
  std::string find() const;

 private:
  pthread_t thread_;
};

// The same for a stack given as return addresses, innermost first: used by the tests.
std::string describe_stack(void* const* addresses, int count);

}  // namespace mpigrad::detail
