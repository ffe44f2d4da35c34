#include "models/networks/pyramid.h"

#include "comm/spatial/periodic.h"
#include "models/nn/join_views.h"
#include "ops/elementwise.h"
#include "ops/views.h"

namespace mpigrad {
namespace {

constexpr std::int64_t inputs = 2, kernel = 3, smallest_side = 4;  // inputs: of each redshift
constexpr Activation activation = Activation::leaky_relu(0.01);
constexpr double log_level = 0.5;  // about the mean of log(1 + counts) where one particle is in a cell

// Of a volume with one plane more on each side.
Tensor halved(const Tensor& padded) { return avg_pool(avg_pool(padded, {.kernel = 3, .stride = 1}), {.kernel = 2, .stride = 2}); }

}  // namespace

Tensor Pyramid::operator()(const Tensor& input) {
  auto side = input.layout() ? input.layout()->global[1] : input.dim(1);
  const auto redshifts = input.dim(4);
  // Redshifts are views of one universe.
  Tensors views;
  for (std::int64_t c = 0; c < redshifts; ++c) views.push_back(slice(input, 4, c, c + 1));
  const auto logs = nn::join_views(views);
  Tensor x = concatenate({exp(logs) - 2.0, logs - log_level}, 4);
  std::vector<Tensor> features;
  for (int scale = 1; side >= smallest_side; ++scale, side /= 2) {
    const auto name = fmt::format("conv{}", scale);
    const auto w = parameter(name + ".weight", {filters_, kernel, kernel, kernel, inputs},
                             nn::he_normal(static_cast<double>(inputs * kernel * kernel * kernel)));
    const auto bias = parameter(name + ".bias", {filters_}, nn::constant_value(0), false);
    const auto padded = pad_periodic(x, 1);
    nn::LayerScope scope(path() + "." + name, "conv", w.elements() + bias.elements());
    const auto means = global_avg_pool(conv(padded, w, bias, {.activation = activation}));
    features.push_back(scope.done(concatenate(nn::split_views(means, static_cast<int>(redshifts)), 1)));
    if (side / 2 >= smallest_side) x = halved(padded);
  }
  return concatenate(features, 1);
}

}  // namespace mpigrad
