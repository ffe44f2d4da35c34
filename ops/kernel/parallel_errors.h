#pragma once
// An exception must not leave a parallel region. `guard` keeps the first exception of all threads; `rethrow` throws it after the
// region.

#include <atomic>
#include <exception>

namespace mpigrad::cpu {

class ParallelErrors {
 public:
  // Runs f unless an earlier call has failed.
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
