#pragma once
// A stack with a function that can be started, suspended and resumed.

#include <cstddef>

#ifndef __x86_64__
#include <ucontext.h>
#endif

namespace mpigrad::emulation {

class Fiber {
 public:
  Fiber() = default;                // the stack that runs now
  explicit Fiber(void (*entry)());  // entry never returns
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Starts again from the beginning, whatever state it was in.
  void restart(void (*entry)());
  // Suspends `from`, which runs now, and resumes this one, on the same thread.
  void resume(Fiber& from);

 private:
  static constexpr std::size_t stack_bytes = 64 << 10, guard_bytes = 4 << 10;
  std::byte* stack_ = nullptr;
#ifdef __x86_64__
  void* saved_ = nullptr;  // address of its saved registers
#else
  ucontext_t saved_{};  // one system call per switch, 50 times slower
#endif
};

}  // namespace mpigrad::emulation
