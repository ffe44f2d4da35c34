#pragma once
// Samples stored as integers of 8 or 16 bits on their way to a GPU: they are assembled and copied as stored and converted on the
// GPU, with the same bits as on the host.

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

// Error, with the name that `name` returns: a negative number in the box of the stored values, because log(1 + x) is for counts.
void require_counts(const Box& box, const Stored& stored, std::int64_t channels, const std::function<std::string()>& name);

// Error, with the name that `name` returns: a finite float64 number in the box that float32 cannot hold.
void require_float32(const Box& box, const Stored& stored, std::int64_t channels, const std::function<std::string()>& name);
// The same check for `count` numbers.
void require_float32(const double* values, std::int64_t count, const std::function<std::string()>& name);

class Widening {
 public:
  // Converts narrow integers to float32 or float64, transformed (not of_source).
  Widening(DType stored, Transform transform, DType type) : stored_(stored), type_(type), transform_(transform) {}
  // x is on this thread's GPU. The result is bit for bit what copy_piece() computes on the host. The host does not wait. With
  // log1p, x must have passed require_counts(); a negative number becomes NaN.
  Tensor operator()(const Tensor& x);

 private:
  const Tensor& table();

  DType stored_, type_;
  Transform transform_;
  std::map<int, Tensor> tables_;  // by GPU: the converted number for each bit pattern
};

}  // namespace mpigrad::data
