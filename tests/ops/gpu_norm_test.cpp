// Batch norm in training: the kernels that it launches, and its running averages to the bit.

#include <doctest/doctest.h>

#include <cstdlib>
#include <string_view>

#include "framework/cuda/graph.h"
#include "models/nn/layers.h"
#include "ops/elementwise/elementwise.h"
#include "ops/norm/channel_norm.h"
#include "ops/norm/running_averages.h"
#include "ops/random/random.h"
#include "ops/views/to_device.h"
#include "tests/support/gpu.h"

using namespace mpigrad;
using namespace mpigrad::testing;

TEST_CASE("gpu: running averages are one kernel more, with the bits of the ops that they replace") {
  if (no_gpu("gpu: running averages are one kernel more, with the bits of the ops that they replace")) return;
  const double momentum = 0.9, correction = 37.0 / 36;
  for (const auto dtype : {DType::float32, DType::float64})
    for (const std::int64_t channels : {0, 1, 5, 300}) {
      INFO(name_of(dtype), ", ", channels, " channels");
      const auto numbers = [&](std::uint64_t stream) {
        return random_normal({channels}, {.key = 1, .stream = stream}, 0, 3, dtype);
      };
      const auto by_ops = [&](const Tensor& running, const Tensor& batch) { return running * momentum + batch * (1 - momentum); };
      std::vector<Tensor> start;
      for (std::uint64_t i = 0; i < 4; ++i) start.push_back(constant(numbers(i)));
      const auto wanted_mean = by_ops(start[0], start[2]).to_vector(),
                 wanted_variance = by_ops(start[1], start[3] * correction).to_vector();

      auto mean = start[0], variance = start[1];
      update_running(mean, variance, {start[2], start[3]}, momentum, correction);
      CHECK(mean.to_vector() == wanted_mean);
      CHECK(variance.to_vector() == wanted_variance);
      CHECK(start[0].to_vector() == numbers(0).to_vector());  // the CPU keeps memory that others may hold

      const UseDevice device(DeviceKind::cuda);
      std::vector<Tensor> there;
      for (const auto& each : start) there.push_back(to(each, DeviceKind::cuda));
      const BatchNormStatistics batch{there[2], there[3]};
      mean = there[0], variance = there[1];
      cuda::CapturedGraph graph([&] { update_running(mean, variance, batch, momentum, correction); });
      CHECK(graph.nodes() == (channels > 0 ? 1 : 0));
      CHECK(mean.to_vector() == start[0].to_vector());
      graph.launch({});
      CHECK(mean.raw() == there[0].raw());
      CHECK(mean.to_vector() == wanted_mean);
      CHECK(variance.to_vector() == wanted_variance);
    }
  // Updating the running statistics takes one more kernel.
  UseDevice device(DeviceKind::cuda);
  struct One : nn::Module {
    nn::BatchNorm norm{*this, "norm"};
    Tensor operator()(const Tensor& x) override { return norm(x); }
  } net;
  net.build(Shape{2, 4, 4, 4, 3}, {.seed = 1});
  const auto x = constant(random_normal({2, 4, 4, 4, 3}, {.key = 1})), gamma = constant(ones({3})), beta = constant(zeros({3}));
  const cuda::CapturedGraph layer([&] { net(x); }), plain([&] { batch_norm(x, gamma, beta); });
  CHECK(layer.nodes() == plain.nodes() + 1);
  // Two kernels for moments, then m2 / n, + epsilon, ^-1/2, * gamma, the affine map; filling memory with NaN for tests adds
  // kernels.
  const char* filled = std::getenv("MPIGRAD_GPU_POISON");
  if (!filled || std::string_view(filled) != "1") CHECK(plain.nodes() == 7);
}
