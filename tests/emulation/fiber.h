#pragma once
// A stack on which a function is begun, left in the middle and gone on with.

#include <cstddef>

#ifndef __x86_64__
#include <ucontext.h>
#endif

namespace mpigrad::emulation {

class Fiber {
 public:
  Fiber() = default;                // of the stack that runs now
  explicit Fiber(void (*entry)());  // which never returns
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // From the beginning again, whatever it was doing.
  void restart(void (*entry)());
  // Leaves `from`, which runs now, and goes on with this one, on the same thread.
  void resume(Fiber& from);

 private:
  static constexpr std::size_t stack_bytes = 64 << 10, guard_bytes = 4 << 10;
  std::byte* stack_ = nullptr;
#ifdef __x86_64__
  void* saved_ = nullptr;  // where its registers are
#else
  ucontext_t saved_{};  // with a system call for each change, 50 times slower
#endif
};

}  // namespace mpigrad::emulation
