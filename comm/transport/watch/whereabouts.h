#pragma once
// Where in the program a rank's thread is, as another thread finds out: for hangs. Costs nothing until somebody asks.
//
// The thread is sent a SIGURG (which nobody else minds: it is ignored by default), whose handler notes the return addresses on
// its stack. Functions and lines come from addr2line (of binutils) where it is installed; lines are those of programs that were
// compiled with -g, functions those of all that are not stripped.

#include <pthread.h>

#include <chrono>
#include <string>

namespace mpigrad::detail {

class Whereabouts {
 public:
  // Of the thread that makes it, which must outlive it.
  Whereabouts();
  // "in mpigrad::allreduce, called by main at train.cpp:42"; empty if the thread does not say so within a second, or if nothing
  // is known about its stack. One thread at a time.
  std::string find() const;

 private:
  pthread_t thread_;
};

// The same of a stack, its innermost return address first: what the tests ask.
std::string describe_stack(void* const* addresses, int count);

}  // namespace mpigrad::detail
