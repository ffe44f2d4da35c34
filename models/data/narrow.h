#pragma once
// Samples stored as integers of 8 or 16 bits on their way to a GPU: they are put together and copied there as they are stored,
// and become numbers there, with the bits that the host would have given them.

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "framework/tensor/dtype.h"
#include "framework/tensor/layout.h"
#include "framework/tensor/tensor.h"
#include "models/data/data_augment.h"
#include "models/data/source.h"

namespace mpigrad::data {

constexpr bool is_narrow(DType type) { return type == DType::int16 || type == DType::uint16 || type == DType::uint8; }

// Error: a negative number in the box of what is stored, with the name that `name` gives, because log(1 + x) is for counts.
void require_counts(const Box& box, const Stored& stored, std::int64_t channels, const std::function<std::string()>& name);

// Error: a finite number in the box of float64 that float32 does not hold, with the name that `name` gives.
void require_float32(const Box& box, const Stored& stored, std::int64_t channels, const std::function<std::string()>& name);
// The same of `count` numbers.
void require_float32(const double* values, std::int64_t count, const std::function<std::string()>& name);

class Widening {
 public:
  // Of narrow integers to float32 or float64, transformed (not of_source).
  Widening(DType stored, Transform transform, DType type) : stored_(stored), type_(type), transform_(transform) {}
  // x is on this thread's GPU; so is what copy_piece() makes of it on the host, bit for bit. No host waits. With log1p, x has
  // passed require_counts(); a negative number becomes NaN.
  Tensor operator()(const Tensor& x);

 private:
  const Tensor& table();

  DType stored_, type_;
  Transform transform_;
  std::map<int, Tensor> tables_;  // by GPU: the number for each pattern of bits
};

}  // namespace mpigrad::data
