#pragma once
// An operation graph: one convolution, followed by pointwise operations.

#include <array>
#include <optional>

#include "tests/emulation/vendor/cudnn_descriptor.h"
#include "tests/emulation/vendor/numbers.h"

namespace mpigrad::emulation::vendor {

using Extents = std::array<std::int64_t, 5>;  // n, c, d, h, w; a missing depth is 1

struct Tensor {
  std::int64_t id = 0, alignment = 0;
  Element type = Element::float32;
  bool is_virtual = false;
  int rank = 0;
  Extents dimensions{}, strides{};
  std::int64_t elements() const;
  std::int64_t reach() const;                                  // bytes in memory from the first element to the end of the last
  bool packed(const std::array<std::size_t, 5>& order) const;  // without gaps, the first dimension listed varying fastest
  bool channels_last() const { return packed({1, 4, 3, 2, 0}); }
  bool channels_first() const { return packed({4, 3, 2, 1, 0}); }
  bool operator==(const Tensor&) const = default;
};
Tensor tensor_of(const Node&);

enum class Direction : std::uint8_t { forward, data, filter };

struct Pointwise {
  bool adds = false;  // adds b; otherwise a ReLU
  std::optional<Tensor> b;
  double alpha1 = 1, alpha2 = 1, lower = 0, upper = 0, slope = 0;
  Element compute = Element::float32;
  Tensor y;
};

struct ConvGraph {
  cudnnHandle_t handle = nullptr;
  Direction direction = Direction::forward;
  Element compute = Element::float32;
  bool flips = false;  // a true convolution, with flipped kernel
  std::array<std::int64_t, 3> pre{}, post{}, dilation{}, stride{};
  double alpha = 1, beta = 0;
  Tensor x, w, y;
  std::vector<Pointwise> then;
  std::vector<Tensor> operands;  // tensors in memory, in the order of first use
  const Tensor& result() const;  // the written tensor
  std::int64_t groups() const { return x.dimensions[1] / w.dimensions[1]; }
};

// An engine that heuristics can propose.
struct Engine {
  enum class Rounding : std::uint8_t { exact, tf32, winograd, halves };
  int number = 0;
  Rounding rounding = Rounding::exact;
  std::vector<cudnnBackendNumericalNote_t> notes;
  std::int64_t workspace = 0;
  bool compiled = false, loses_nan = false;  // compiled: at run time; loses_nan: in its activations
};

// Computes the graph. `at` has the address of every operand of the graph, by index.
void compute(const ConvGraph& graph, const Engine& engine, const std::vector<void*>& at);

}  // namespace mpigrad::emulation::vendor
