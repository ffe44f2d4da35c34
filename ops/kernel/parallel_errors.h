#pragma once
// An exception may not leave a parallel region. `guard` keeps the first one of all threads, `rethrow` throws it behind the
// region.

#include <atomic>
#include <exception>

namespace mpigrad::cpu {

class ParallelErrors {
 public:
  // Runs f, unless something has failed already.
  template <class F>
  void guard(F&& f) noexcept {
    if (failed_.load(std::memory_order_relaxed)) return;
    try {
      f();
    } catch (...) {
      if (!failed_.exchange(true)) first_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::atomic<bool> failed_{false};
  std::exception_ptr first_;
};

}  // namespace mpigrad::cpu
