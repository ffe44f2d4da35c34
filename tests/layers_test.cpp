// Layers with state.

#include "models/layers.h"

#include <doctest/doctest.h>

#include "models/session.h"
#include "ops/elementwise.h"
#include "ops/norm.h"
#include "ops/views.h"
#include "tests/support/distributed.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

TEST_CASE("layers: running statistics weigh ranks by what they hold") {
  const Shape shape{2, 3, 2, 2, 2};
  const auto whole = global_tensor(shape, 3);
  const auto first = channel_moments(slice(whole, 0, 0, 1)), second = channel_moments(slice(whole, 0, 1, 2));
  // Twelve values per sample and channel; the mean of the two samples' means and of their unbiased variances.
  const auto mean = (first.mean + second.mean) * 0.5, variance = (first.m2 + second.m2) * (0.5 / 11);
  for (const auto over : {distributed::Statistics::local, distributed::Statistics::spatial_group})
    for (const int ranks : {2, 3, 5})
      check_on_ranks(ranks, "running statistics", [&](const Communicator& comm) {
        const auto layout =
            activation_layout(make_grid(comm, {.sample = comm.size()}), shape);  // beyond two ranks some are empty
        struct Net : nn::Module {
          nn::BatchNorm norm;
          explicit Net(distributed::Statistics s) : norm(*this, "norm", {.momentum = 0, .statistics = s}) {}
          Tensor operator()(const Tensor& x) override { return norm(x); }
        } net(over);
        net.build(layout, {.dtype = DType::float64});
        net(global_tensor(shape, 3, layout));
        const auto close = [&](const std::string& name, const Tensor& wanted) {
          const auto got = net.buffers().at("norm." + name).to_vector(), expected = wanted.to_vector();
          for (std::size_t c = 0; c < 2; ++c)
            require(std::abs(got[c] - expected[c]) < 1e-14, "[test] {}: {} instead of {}", name, got[c], expected[c]);
        };
        close("running_mean", mean);
        close("running_variance", variance);
      });
}
