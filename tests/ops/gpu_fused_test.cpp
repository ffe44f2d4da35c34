// Fused kernels on a GPU against the CPU's in double, on the same rounded operands: max|a - b| / max|b|.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "framework/cuda/cuda.h"
#include "ops/elementwise/activation.h"
#include "ops/elementwise/elementwise.h"
#include "ops/norm/channel_norm.h"
#include "ops/pool/pool_ops.h"
#include "ops/views/to_device.h"
#include "tests/ops/kernel_problems.h"
#include "tests/support/distributed.h"
#include "tests/support/gpu.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

struct Kind {
  DType type = DType::float32;
  double tolerance = 0;
};
const Kind kinds[] = {{DType::float64, 1e-13}, {DType::float32, 2e-6}, {DType::bfloat16, 1e-2}, {DType::float16, 2e-3}};

// Random numbers that `type` represents exactly, as double here and as `type` on the GPU.
struct Operands {
  Tensors on_cpu, on_gpu;
  void add(const Shape& shape, DType type) {
    const auto rounded = cast(global_tensor(shape, 7 + on_cpu.size()), type);
    on_cpu.push_back(cast(rounded, DType::float64));
    on_gpu.push_back(to(rounded, DeviceKind::cuda));
  }
};

double relative_error(const Tensor& got, const Tensor& wanted) {
  const auto a = got.to_vector(), b = wanted.to_vector();
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double error = std::abs(a[i] - b[i]);
    worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
    largest = std::max(largest, std::abs(b[i]));
  }
  return largest > 0 ? worst / largest : worst;
}

template <class Op>
void check(const Op& op, const Operands& x, double tolerance) {
  const auto wanted = apply_all(op, x.on_cpu), got = apply_all(op, x.on_gpu);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    INFO(Op::traits().name, " output ", i);
    if (is_floating(wanted[i].dtype())) CHECK(relative_error(got[i], wanted[i]) < tolerance);
    else CHECK(got[i].to_vector() == wanted[i].to_vector());
  }
}

}  // namespace

TEST_CASE("gpu: average pooling behind an activation") {
  if (no_gpu("gpu: average pooling behind an activation")) return;
  for (const auto& kind : kinds)
    for (int i = 0; i < 40; ++i) {
      const auto p = random_pool();
      const ops::Window window{
          .kernel = p.kernel, .stride = p.stride, .dilation = p.dilation, .low = p.pad_low, .in = p.in, .out = p.out};
      const std::int64_t channels = i % 4 == 0 ? p.channels : i % 4 == 1 ? 8 : i % 4 == 2 ? 24 : 19;
      const double slope = i % 3 == 0 ? 0 : 0.01;
      const Shape in{p.batch, p.in[0], p.in[1], p.in[2], channels}, out{p.batch, p.out[0], p.out[1], p.out[2], channels};
      INFO(name_of(kind.type), " ", windows(p), " channels ", channels);
      Operands x, of_adjoint;
      x.add(in, kind.type);
      check(ops::LeakyAvgPool{window, slope}, x, kind.tolerance);
      of_adjoint.add(out, kind.type);
      const auto signs = apply_all(ops::LeakyAvgPool{window, slope}, x.on_cpu)[1];
      for (auto* one : {&of_adjoint, &x}) one->on_cpu.push_back(signs), one->on_gpu.push_back(to(signs, DeviceKind::cuda));
      check(ops::LeakyAvgPoolAdjoint{window, slope}, of_adjoint, kind.tolerance);
      check(ops::SignedAvgPool{window, slope}, x, kind.tolerance);
    }
}

TEST_CASE("gpu: biases, norms and activations in one pass, and what goes back") {
  if (no_gpu("gpu: biases, norms and activations in one pass, and what goes back")) return;
  // Only a few blocks on the emulator.
  const std::int64_t many = emulated() ? 3000 : 70000, lines = emulated() ? 300 : 5000;
  for (const auto& kind : kinds)
    for (const Shape& shape : {Shape{3, 5}, Shape{2, 3, 7, 1, 4}, Shape{7, 9, 16}, Shape{1000, 24}, Shape{3, 4100},
                               Shape{many, 1}, Shape{0, 8}, Shape{lines, 3, 33}}) {
      INFO(name_of(kind.type), " ", fmt::format("{}", shape));
      const Shape channels{shape.back()};
      for (const double slope : {0.0, 0.3, 1.0}) {
        Operands x;
        x.add(shape, kind.type);
        x.add(channels, kind.type);
        check(ops::BiasActivation{slope}, x, kind.tolerance);
        Operands affine;
        affine.add(shape, kind.type);
        for (int i = 0; i < 3; ++i) affine.add(channels, is_half(kind.type) ? DType::float32 : kind.type);
        check(ops::ChannelAffine{slope}, affine, kind.tolerance);
        Operands back;
        back.add(shape, kind.type);
        back.add(shape, kind.type);
        check(ops::BiasActivationAdjoint{slope}, back, kind.tolerance);
      }
    }
  // A cotangent without another owner is overwritten.
  Operands x;
  x.add({100, 12}, DType::float64);
  x.add({100, 12}, DType::float64);
  const auto wanted = apply_all(ops::BiasActivationAdjoint{0.25}, x.on_cpu);
  const auto got = apply_all(ops::BiasActivationAdjoint{0.25, true}, x.on_gpu);
  CHECK(got[0].raw() == x.on_gpu[0].raw());
  for (std::size_t i = 0; i < 2; ++i) CHECK(relative_error(got[i], wanted[i]) < 1e-13);
}
