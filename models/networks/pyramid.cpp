#include "models/networks/pyramid.h"

#include "comm/halos/padding.h"
#include "ops/elementwise/elementwise.h"
#include "ops/views/views.h"

namespace mpigrad {
namespace {

constexpr std::int64_t inputs = 2, kernel = 3, smallest_side = 4;  // inputs: per redshift
constexpr Activation activation = Activation::leaky_relu(0.01);
constexpr double log_level = 0.5;  // roughly the mean of log(1 + counts) at one particle per cell

// Redshifts become samples: [N, D, H, W, C] -> [N C, D, H, W, 1].
Tensor split_redshifts(const Tensor& x) {
  const auto c = x.dim(4);
  const auto y = permute(x.without_layout(), {0, 4, 1, 2, 3});
  const auto local = reshape(y, {y.dim(0) * c, y.dim(2), y.dim(3), y.dim(4), 1});
  if (!x.layout()) return local;
  auto layout = *x.layout();
  layout.global[0] *= c, layout.global[4] = 1;
  for (auto& axis : layout.axes)
    if (axis.placement == Placement::split && axis.dimension == 0)
      for (auto& cut : axis.cuts) cut *= c;
  return local.with_layout(std::make_shared<Layout>(std::move(layout)));
}

// The inverse for features: [N C, F] -> [N, C F].
Tensor join_redshifts(const Tensor& features, std::int64_t c) {
  const auto local = reshape(features.without_layout(), {features.dim(0) / c, c * features.dim(1)});
  if (!features.layout()) return local;
  auto layout = *features.layout();
  layout.global[0] /= c, layout.global[1] *= c;
  for (auto& axis : layout.axes)
    if (axis.placement == Placement::split && axis.dimension == 0)
      for (auto& cut : axis.cuts) cut /= c;
  return local.with_layout(std::make_shared<Layout>(std::move(layout)));
}

// Halves a volume that is padded by one plane on each side.
Tensor halved(const Tensor& padded) { return avg_pool(avg_pool(padded, {.kernel = 3, .stride = 1}), {.kernel = 2, .stride = 2}); }

}  // namespace

Tensor Pyramid::operator()(const Tensor& input) {
  auto side = input.layout() ? input.layout()->global[1] : input.dim(1);
  const auto redshifts = input.dim(4);
  const auto logs = split_redshifts(input);
  Tensor x = concatenate({exp(logs) - 2.0, logs - log_level}, 4);
  std::vector<Tensor> features;
  for (int scale = 1; side >= smallest_side; ++scale, side /= 2) {
    const auto name = fmt::format("conv{}", scale);
    const auto w = parameter(name + ".weight", {filters_, kernel, kernel, kernel, inputs},
                             nn::he_normal(static_cast<double>(inputs * kernel * kernel * kernel)));
    const auto bias = parameter(name + ".bias", {filters_}, nn::constant_value(0), false);
    const auto padded = pad(x, {1, PaddingMode::circular});
    nn::LayerScope scope(path() + "." + name, "conv", w.elements() + bias.elements());
    features.push_back(scope.done(join_redshifts(global_avg_pool(conv(padded, w, bias, {.activation = activation})), redshifts)));
    if (side / 2 >= smallest_side) x = halved(padded);
  }
  return concatenate(features, 1);
}

}  // namespace mpigrad
