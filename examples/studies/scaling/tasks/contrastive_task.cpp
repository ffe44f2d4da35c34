// Finds which two exposures show the same crystal, by embeddings that are compared within a worker's batch. The loss is not a
// mean over samples, because each sample is compared with the others of its batch.

#include <cmath>
#include <limits>

#include "examples/studies/scaling/tasks/lattice_image.h"
#include "examples/studies/scaling/tasks/sample_set.h"
#include "models/losses/contrastive/batch.h"
#include "models/losses/contrastive/join_views.h"
#include "models/nn/sequential.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"

namespace mpigrad::scaling {
namespace {

constexpr std::int64_t width = 16;  // width of an embedding

// Two channels, two exposures, each rotated and mirrored at random; the class is the crystal's defect, which this task does not
// use.
data::SourcePtr pairs(const std::string& name, std::int64_t count, const Philox& random) {
  return classed({.name = name, .count = count, .extents = {1, lattice_side, lattice_side}, .channels = 2},
                 [&](std::int64_t sample, std::span<float> pixels) {
                   const auto own = random.child(static_cast<std::uint64_t>(sample));
                   const auto crystal = make_crystal(own.child(0));
                   std::vector<float> view(pixels.size() / 2);
                   for (std::uint64_t v = 0; v < 2; ++v) {
                     const auto choice = own.child(1 + v);
                     expose(crystal, {.turn = static_cast<int>(choice.below(0, 4)), .mirrored = choice.below(1, 2) == 1},
                            choice.child(0), view);
                     for (std::size_t i = 0; i < view.size(); ++i) pixels[2 * i + v] = view[i];
                   }
                   return static_cast<std::int64_t>(crystal.defect);
                 });
}

// [N, 1, 24, 24, 2] -> embeddings of both views side by side [N, 2 * 16]
class Network : public nn::Module {
 public:
  Network() {
    const std::array<std::int64_t, 3> widths{8, 16, 32};
    for (std::size_t i = 0; i < widths.size(); ++i)
      convs_.add(*this, fmt::format("conv{}", i + 1),
                 {.out = widths[i], .kernel = {1, 3, 3}, .padding = {0, 1, 1}, .activation = Activation::relu});
  }
  Tensor operator()(const Tensor& input) override {
    auto x = contrastive::join_views({slice(input, 4, 0, 1), slice(input, 4, 1, 2)});
    for (std::size_t i = 0; i < convs_.size(); ++i) {
      x = convs_[i](x);
      if (i + 1 < convs_.size()) x = max_pool(x, {.kernel = {1, 2, 2}, .stride = {1, 2, 2}});
    }
    return concatenate(contrastive::split_views(linear_(global_avg_pool(x))), 1);
  }

 private:
  nn::List<nn::Conv3d> convs_;
  nn::Linear linear_{*this, "linear", {.out = width, .whole = true}};
};

// Rows of both views, normalised to length 1.
std::pair<Tensor, Tensor> views_of(const Tensor& prediction) {
  require(!prediction.layout(), "[contrastive] the loss is one of a worker's batch, and this one is split over ranks");
  return {contrastive::unit_rows(slice(prediction, 1, 0, width)), contrastive::unit_rows(slice(prediction, 1, width, 2 * width))};
}

// NT-Xent (Chen et al. 2020) for one worker, as in models/losses/contrastive/pairs.h, which needs a communicator.
Tensor nt_xent(const Tensor& prediction, const Tensor&) {
  constexpr double temperature = 0.2;
  const auto [a, b] = views_of(prediction);
  const auto n = a.dim(0);
  const auto z = concatenate({a, b}, 0);
  const auto similar = matmul(z, z, {.transpose_b = true}) * (1 / temperature);
  const auto own = contrastive::diagonal(2 * n, 2 * n, 0, z.device());
  const auto all = logsumexp(contrastive::masked(similar, own, -std::numeric_limits<double>::infinity()), {1});
  return (sum(all) - sum(a * b) * (2 / temperature)) * (0.5 / static_cast<double>(n));
}

// The number of samples whose first view is nearer to another sample's second view than to its own, among 16 consecutive samples,
// so that it does not depend on the batch.
double mistaken(const Tensor& prediction, const Tensor&) {
  constexpr std::size_t group = 16;
  const auto [a, b] = views_of(prediction);
  const auto x = a.to_vector(), y = b.to_vector();
  const auto n = static_cast<std::size_t>(a.dim(0)), w = static_cast<std::size_t>(width);
  const auto similarity = [&](std::size_t i, std::size_t j) {
    double sum = 0;
    for (std::size_t k = 0; k < w; ++k) sum += x[i * w + k] * y[j * w + k];
    return sum;
  };
  double wrong = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const auto begin = i / group * group, end = std::min(n, begin + group);
    const double own = similarity(i, i);
    bool nearest = std::isfinite(own);
    for (auto j = begin; j < end; ++j) nearest = nearest && (j == i || similarity(i, j) < own);
    wrong += nearest ? 0 : 1;
  }
  return wrong;
}

}  // namespace

Task contrastive(const TaskOptions& options) {
  const auto [training, test] = sample_numbers("contrastive", options, 4000, 1024);
  return {.name = "contrastive",
          .error_name = "not nearest to their other view, of 16",
          .training = pairs("pair", training, Philox{options.seed, 5}),
          .test = pairs("test pair", test, Philox{options.seed, 6}),
          .make = [] { return std::make_unique<Network>(); },
          .loss = nt_xent,
          .error = mistaken,
          .separable = false,
          .goal = 0.3,
          .learning_rates = {0.0125, 0.025, 0.05, 0.1, 0.2},
          .budget = 100000,
          .every = 512};
}

}  // namespace mpigrad::scaling
