#pragma once
// Division of a nonnegative int by a divisor that is known before the kernel runs, as a 64-bit product and a shift; GPUs have no
// integer division instruction. Plain host code apart from its annotation, so that it is tested without a GPU.

#include <cstdint>

#include "framework/base/host_device.h"

namespace mpigrad::cuda {

// (T. Granlund and P. Montgomery, "Division by invariant integers using multiplication", 1994, theorem 4.2, N = 31.)
class FastDivideInt {
 public:
  FastDivideInt() = default;
  explicit FastDivideInt(std::int64_t divisor) : divisor_(static_cast<std::int32_t>(divisor)) {
    std::uint32_t log = 0;
    while (log < 31 && (std::int64_t{1} << log) < divisor) ++log;
    shift_ = 31 + log;
    const auto by = static_cast<std::uint64_t>(divisor);
    magic_ = static_cast<std::uint32_t>(((std::uint64_t{1} << shift_) + by - 1) / by);
  }
  MPIGRAD_HOST_DEVICE std::int32_t quotient(std::int32_t n) const {
    return static_cast<std::int32_t>(static_cast<std::uint64_t>(static_cast<std::uint32_t>(n)) * magic_ >> shift_);
  }
  MPIGRAD_HOST_DEVICE std::int32_t divisor() const { return divisor_; }

 private:
  std::uint32_t magic_ = 1U << 31, shift_ = 31;
  std::int32_t divisor_ = 1;
};

}  // namespace mpigrad::cuda
