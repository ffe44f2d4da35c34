#include "tests/emulation/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

#ifdef __x86_64__
// Pushes the registers that a function must preserve, swaps the stacks, and pops the registers of the other.
extern "C" void mpigrad_exchange_stacks(void** saved, void* wanted);
asm(R"(
.text
.globl mpigrad_exchange_stacks
.hidden mpigrad_exchange_stacks
.type mpigrad_exchange_stacks, @function
mpigrad_exchange_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size mpigrad_exchange_stacks, .-mpigrad_exchange_stacks
)");
#endif

namespace mpigrad::emulation {

Fiber::Fiber(void (*entry)()) {
  void* memory = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  stack_ = static_cast<std::byte*>(memory);
  mprotect(stack_, guard_bytes, PROT_NONE);  // a larger stack ends the program
  restart(entry);
}

Fiber::~Fiber() {
  if (stack_) munmap(stack_, stack_bytes);
}

#ifdef __x86_64__
void Fiber::restart(void (*entry)()) {
  // Six registers, the address to go to, and a null return address: the state of a stack after a call, 8 bytes off a multiple of
  // 16.
  auto* top = reinterpret_cast<std::uintptr_t*>(stack_ + stack_bytes - 72);
  top[0] = 0;
  top[-1] = reinterpret_cast<std::uintptr_t>(entry);
  for (int i = 2; i < 8; ++i) top[-i] = 0;
  saved_ = top - 7;
}
void Fiber::resume(Fiber& from) { mpigrad_exchange_stacks(&from.saved_, saved_); }
#else
void Fiber::restart(void (*entry)()) {
  getcontext(&saved_);
  saved_.uc_stack.ss_sp = stack_;
  saved_.uc_stack.ss_size = stack_bytes;
  saved_.uc_link = nullptr;
  makecontext(&saved_, entry, 0);
}
void Fiber::resume(Fiber& from) { swapcontext(&from.saved_, &saved_); }
#endif

}  // namespace mpigrad::emulation
