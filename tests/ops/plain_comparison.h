#pragma once
// Random operands, and comparison of convolutions on any device with the plain kernels in double: max|a - b| / max|b|.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ops/conv/conv.h"
#include "ops/gpu_settings.h"
#include "ops/views/to_device.h"
#include "tests/ops/kernel_problems.h"
#include "tests/support/gpu.h"

namespace mpigrad::testing {

using Values = std::vector<double>;

struct Kind {
  DType type = DType::float32;
  bool tf32 = false;
  double tolerance = 0;
};
inline const Kind kinds[] = {{DType::float64, false, 1e-10},
                             {DType::float32, false, 1e-5},
                             {DType::float32, true, 4e-3},
                             {DType::bfloat16, false, 1e-2},
                             {DType::float16, false, 2e-3}};

inline std::string label(const Kind& kind) { return fmt::format("{}{}", name_of(kind.type), kind.tf32 ? " (TF32)" : ""); }

class Settings {
 public:
  explicit Settings(const Kind& kind, bool autotune = false) : before_(gpu_settings()) {
    auto settings = before_;
    settings.tf32 = kind.tf32, settings.autotune = autotune;
    set_gpu_settings(settings);
  }
  ~Settings() { set_gpu_settings(before_); }

 private:
  GpuSettings before_;
};

// Random numbers that `type` represents exactly, as tensor and as doubles.
struct Operand {
  Values values;
  Tensor on_device;
  explicit Operand(const Shape& shape, DType type, DeviceKind device = DeviceKind::cuda)
      : Operand(shape, type, random_values<double>(shape.elements()), device) {}
  Operand(const Shape& shape, DType type, const Values& wanted, DeviceKind device = DeviceKind::cuda) {
    const auto rounded = from_vector(shape, wanted, type);
    values = rounded.to_vector();
    on_device = to(rounded, device);
  }
};

inline double relative_error(const Tensor& got, const Values& wanted) { return testing::relative_error(got.to_vector(), wanted); }

inline double largest_of(const Values& values) {
  double largest = 0;
  for (const auto value : values) largest = std::max(largest, std::abs(value));
  return largest;
}
// The error of a sum with a bias: the bias may be larger than the result, and a library may round it first.
inline double error_with_bias(const Tensor& got, const Values& wanted, const Values& sums, const Values& bias) {
  const double out = largest_of(wanted), in = std::max(largest_of(sums), largest_of(bias));
  return relative_error(got, wanted) * (out > 0 && in > out ? out / in : 1);
}

inline Shape activation(std::int64_t batch, const Extent3& e, std::int64_t channels) {
  return {batch, e[0], e[1], e[2], channels};
}

inline ConvAttributes attributes_of(const ConvProblem& p) {
  ConvAttributes a{.stride = p.stride, .dilation = p.dilation, .padding = Padding::sides(p.pad_low, 0), .groups = p.groups};
  for (std::size_t i = 0; i < 3; ++i)
    a.padding.high[i] = (p.out[i] - 1) * p.stride[i] + p.dilation[i] * (p.kernel[i] - 1) + 1 - p.in[i] - p.pad_low[i];
  return a;
}

inline void check_conv(const ConvProblem& p, const Kind& kind, DeviceKind device = DeviceKind::cuda) {
  INFO(label(kind), " ", text(p));
  const auto a = attributes_of(p);
  const Shape weights{p.out_channels, p.kernel[0], p.kernel[1], p.kernel[2], p.in_channels / p.groups};
  const Operand x(activation(p.batch, p.in, p.in_channels), kind.type, device), w(weights, kind.type, device),
      g(activation(p.batch, p.out, p.out_channels), kind.type, device), bias(Shape{p.out_channels}, kind.type, device);
  Values y(g.values.size()), gx(x.values.size()), gw(w.values.size());
  reference::conv_forward(p, x.values.data(), w.values.data(), y.data());
  reference::conv_data(p, g.values.data(), w.values.data(), gx.data());
  reference::conv_weight(p, x.values.data(), g.values.data(), gw.data());
  CHECK(relative_error(apply(ops::Conv{a}, {x.on_device, w.on_device}), y) < kind.tolerance);
  CHECK(relative_error(apply(ops::ConvData{a, p.in}, {g.on_device, w.on_device}), gx) < kind.tolerance);
  CHECK(relative_error(apply(ops::ConvWeight{a, p.kernel}, {x.on_device, g.on_device}), gw) < kind.tolerance);
  const auto sums = y;
  for (const double slope : {1.0, 0.0, 0.01}) {
    reference::conv_forward(p, x.values.data(), w.values.data(), y.data(), {.bias = bias.values.data(), .fused = {slope}});
    INFO("bias, slope ", slope);
    const auto got = apply(ops::ConvBiasActivation{a, slope}, {x.on_device, w.on_device, bias.on_device});
    CHECK(error_with_bias(got, y, sums, bias.values) < kind.tolerance);
  }
}

inline ConvProblem layer(std::int64_t in, std::int64_t stride, std::int64_t c, std::int64_t k, std::int64_t batch = 1) {
  const auto out = (in + stride - 1) / stride;
  return {.batch = batch,
          .in = {in, in, in},
          .out = {out, out, out},
          .kernel = {3, 3, 3},
          .stride = {stride, stride, stride},
          .pad_low = {1, 1, 1},
          .in_channels = c,
          .out_channels = k};
}

}  // namespace mpigrad::testing
