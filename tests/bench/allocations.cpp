#include "tests/bench/allocations.h"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define MPIGRAD_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MPIGRAD_SANITIZED 1
#endif

namespace mpigrad::testing {

Allocations& allocations_of_this_thread() {
  static constinit thread_local Allocations counted;
  return counted;
}

bool counts_allocations() {
#if defined(MPIGRAD_SANITIZED)
  return false;
#else
  return true;
#endif
}

}  // namespace mpigrad::testing

#if !defined(MPIGRAD_SANITIZED)

namespace {

// As `operator new` of the standard library, it calls the handler until there is memory.
template <class Allocate>
void* counted(const Allocate& allocate) {
  void* memory = nullptr;
  while ((memory = allocate()) == nullptr) {
    const auto handler = std::get_new_handler();
    if (!handler) throw std::bad_alloc();
    handler();
  }
  auto& now = mpigrad::testing::allocations_of_this_thread();
  const auto bytes = static_cast<std::int64_t>(malloc_usable_size(memory));
  now.requested += bytes, now.live += bytes;
  now.peak = std::max(now.peak, now.live);
  return memory;
}

void release(void* memory) noexcept {
  if (memory) mpigrad::testing::allocations_of_this_thread().live -= static_cast<std::int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

// The other forms of the standard library call these.
void* operator new(std::size_t bytes) {
  return counted([&] { return std::malloc(std::max<std::size_t>(bytes, 1)); });
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  const auto unit = static_cast<std::size_t>(alignment);
  return counted([&] { return std::aligned_alloc(unit, (std::max<std::size_t>(bytes, 1) + unit - 1) / unit * unit); });
}
void operator delete(void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }

#endif
