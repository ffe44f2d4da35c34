// The variational autoencoder of maps: number of parameters, the loss as plain loops, sampling, and gradients and trainings on
// grids of samples and space against one rank.

#include "models/networks/conv_vae.h"

#include <doctest/doctest.h>

#include <cmath>

#include "comm/collectives/collectives.h"
#include "framework/optim/optimizer.h"
#include "models/losses/variational.h"
#include "ops/elementwise/elementwise.h"
#include "tests/models/networks/split_networks.h"
#include "tests/support/distributed.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

constexpr std::int64_t rows = 9, columns = 8, latent = 3;
const Shape maps{3, 1, rows, columns, 1}, flat{3, rows*columns};

ConvVaeOptions small() {
  return {.rows = rows, .columns = columns, .filters = {4, 6, 5}, .strides = {1, 2, 1}, .hidden = 7, .latent = latent};
}

struct Step {
  double loss = 0;
  Trained gradients, trained;
};

// Two steps of RMSprop on the same samples; the gradients of the first one.
Step trained_on(const GridPtr& grid) {
  ConvVae net(small());
  const auto of_maps = grid ? input_layout(grid, maps) : nullptr;
  const auto of_rows = grid ? split_layout(grid, flat, {0}) : nullptr;
  const nn::BuildOptions build{.seed = 5, .dtype = DType::float64};
  if (grid) net.build(of_maps, build);
  else net.build(maps, build);
  RMSprop optimizer(net, {.learning_rate = 1e-3, .smoothing = 0.9, .epsilon = 1e-2});
  // As a map and as a row the elements have the same numbers.
  const auto x = constant(global_tensor(maps, 7, of_maps) * 0.5 + 0.5);
  const auto y = constant(global_tensor(flat, 7, of_rows) * 0.5 + 0.5);
  Step result;
  for (int step = 0; step < 2; ++step) {
    net.set_step(step);
    Tape tape(net);
    const auto share = vae_loss(net(x), y, latent);
    const auto gradients = tape.gradient(share);
    if (step == 0) {
      result.loss = grid ? total(share, grid->world()) : share.item();
      for (std::size_t i = 0; i < gradients.size(); ++i) result.gradients[net.parameters()[i].name] = whole_values(gradients[i]);
    }
    optimizer.step(gradients);
  }
  result.trained = everything_of(net, &optimizer);
  return result;
}

}  // namespace

TEST_CASE("conv_vae: the published sizes have 2,140,551 parameters") {
  ConvVae net;
  net.build(Shape{2, 1, 22, 22, 1}, {.device = DeviceKind::dry});
  // Convolutions, hidden layer, means and logarithms of variances; then the mirror image.
  const std::int64_t encoder = 640 + 2 * 36928 + (7744 * 128 + 128) + 2 * 387;
  const std::int64_t decoder = 512 + (128 * 7744 + 7744) + 2 * 36928 + 577;
  CHECK(encoder + decoder == 2140551);
  CHECK(net.parameters().elements() == encoder + decoder);
  UseDevice dry(DeviceKind::dry);
  CHECK(net(Tensor({Shape{2, 1, 22, 22, 1}, DType::float32})).shape() == Shape{2, 484 + 6});
}

TEST_CASE("conv_vae: the loss is that of plain loops") {
  const std::int64_t n = 4, cells = 6;
  const auto result = global_tensor({n, cells + 2 * latent}, 1) * 2, target = global_tensor({n, cells}, 2) * 0.5 + 0.5;
  const auto r = result.to_vector(), t = target.to_vector();
  const auto width = static_cast<std::size_t>(cells + 2 * latent), from = static_cast<std::size_t>(cells);
  double entropy = 0, divergence = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
    for (std::size_t c = 0; c < from; ++c) {
      const double p = 1 / (1 + std::exp(-r[i * width + c])), y = t[i * from + c];
      entropy -= y * std::log(p) + (1 - y) * std::log(1 - p);
    }
    for (std::size_t k = 0; k < static_cast<std::size_t>(latent); ++k) {
      const double m = r[i * width + from + k], v = r[i * width + from + static_cast<std::size_t>(latent) + k];
      divergence -= (1 + v - m * m - std::exp(v)) / 2;
    }
  }
  const double expected = entropy / static_cast<double>(n) + divergence / static_cast<double>(n * latent);
  CHECK(vae_loss(result, target, latent).item() == doctest::Approx(expected).epsilon(1e-12));
}

TEST_CASE("conv_vae: training samples by step, evaluation does not") {
  ConvVae net(small());
  net.build(maps, {.seed = 5, .dtype = DType::float64});
  const auto x = constant(global_tensor(maps, 7));
  Untaped scope;
  const auto at = [&](std::int64_t step) {
    net.set_step(step);
    return net(x).to_vector();
  };
  const auto first = at(0), second = at(1);
  CHECK(first == at(0));
  net.train(false);
  const auto mean = at(0);
  CHECK(mean == at(1));
  // The means and variances come before the samples.
  std::size_t logits = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    const bool is_logit = i % static_cast<std::size_t>(rows * columns + 2 * latent) < static_cast<std::size_t>(rows * columns);
    if (is_logit) logits += first[i] != second[i] && first[i] != mean[i];
    else CHECK((first[i] == second[i] && first[i] == mean[i]));
  }
  CHECK(logits > static_cast<std::size_t>(rows * columns * 2));
}

TEST_CASE("conv_vae: gradients and trainings on grids are those of one rank") {
  const auto expected = trained_on(nullptr);
  REQUIRE(std::isfinite(expected.loss));
  for (const GridExtents& grid :
       {GridExtents{.sample = 1}, GridExtents{.sample = 2}, GridExtents{.height = 2}, GridExtents{.sample = 2, .height = 2},
        GridExtents{.height = 2, .width = 2}, GridExtents{.height = 3}, GridExtents{.sample = 2, .channel = 2}})
    check_on_ranks(ranks_of(grid),
                   fmt::format("sample {} height {} width {} channel {}", grid.sample, grid.height, grid.width, grid.channel),
                   [&](const Communicator& comm) {
                     const auto found = trained_on(make_grid(comm, grid));
                     require(std::abs(found.loss - expected.loss) < 1e-11 * std::abs(expected.loss), "[test] loss {} of {}",
                             found.loss, expected.loss);
                     require_trained("gradients", found.gradients, expected.gradients, 1e-11);
                     require_trained("trained", found.trained, expected.trained, 1e-11);
                   });
}

TEST_CASE("conv_vae: what cannot be is refused by name") {
  const auto refused = [](const std::string& start, const std::function<void()>& body) {
    const auto text = error_text(body);
    INFO(text);
    CHECK(text.starts_with(start));
  };
  refused("[conv_vae] each convolution has one positive number of filters", [] { ConvVae net({.filters = {4, 4}}); });
  refused("[conv_vae] the kernel must be odd", [] { ConvVae net({.kernel = 2}); });
  refused("[conv_vae] needs maps [N, 1, 22, 22, 1]", [] { ConvVae().build(Shape{2, 1, 21, 21, 1}); });
  refused("[conv_vae] a result is [N, cells + 2 * 3]", [] { vae_parts(zeros({2, 6}), 3); });
  refused("[vae_loss] targets are [2, 4]", [] { vae_loss(zeros({2, 10}), zeros({2, 5})); });
}
