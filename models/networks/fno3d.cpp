#include "models/networks/fno3d.h"

#include <algorithm>
#include <cmath>

#include "comm/distributed/channel_parts.h"
#include "models/nn/layer_split.h"
#include "ops/elementwise/activation.h"
#include "ops/elementwise/elementwise.h"
#include "ops/views/views.h"

namespace mpigrad {
namespace {

// y + skip, which may be split differently.
Tensor sum_of(const Tensor& y, const Tensor& skip) { return y + (y.layout() ? redistribute(skip, y.layout()) : skip); }

}  // namespace

FNO3d::FNO3d(const FNO3dOptions& options) : o_(options) {
  require(o_.width >= 1 && o_.layers >= 1 && o_.out >= 1, "[fno3d] width, layers and out are at least 1: {}, {}, {}", o_.width,
          o_.layers, o_.out);
  require(o_.lifting >= 0 && o_.projection > 0 && o_.channel_mlp >= 0,
          "[fno3d] lifting and channel_mlp are not negative, projection is positive: {}, {}, {}", o_.lifting, o_.channel_mlp,
          o_.projection);
  const auto hidden = [&](double ratio) {
    return std::max<std::int64_t>(1, std::llround(ratio * static_cast<double>(o_.width)));
  };
  const auto product = [](std::int64_t out, Activation activation = Activation::none) {
    return nn::Conv3dAttributes{.out = out, .activation = activation, .start = nn::WeightStart::uniform_fan_in};
  };
  if (o_.lifting > 0) lifting_.add(*this, "lifting1", product(hidden(o_.lifting), o_.activation));
  lifting_.add(*this, o_.lifting > 0 ? "lifting2" : "lifting1", product(o_.width));
  for (std::int64_t i = 0; i < o_.layers; ++i) {
    const auto name = [i](const char* part) { return fmt::format("{}{}", part, i + 1); };
    spectral_.add(*this, name("spectral"), {.out = o_.width, .modes = o_.modes});
    auto skip = product(o_.width);
    skip.bias = false;
    skips_.add(*this, name("skip"), skip);
    if (o_.channel_mlp == 0) continue;
    mlps_.add(*this, name("mlp") + "a", product(hidden(o_.channel_mlp), o_.activation));
    mlps_.add(*this, name("mlp") + "b", product(o_.width));
    gates_.add(*this, name("gate"));
  }
  projection_.add(*this, "projection1", product(hidden(o_.projection), o_.activation));
  auto last = product(o_.out);
  last.whole = true;
  projection_.add(*this, "projection2", last);
}

Tensor FNO3d::Gate::operator()(const Tensor& taken) {
  const auto x = at_stage(taken);
  const Shape shape{channels_of(x)};
  nn::LayerScope scope(path(), "gate", shape[0]);
  const auto g = parameter("weight", shape, nn::constant_value(1), false, nn::layout_of_channels(x));
  const auto block = x.layout() ? spatial::block_beside("gate", x, g) : g;
  const auto own = x.layout() ? spatial::own_channels(x) : x;
  return scope.done((x.without_layout() * parameter_for(own, block).without_layout()).with_layout(x.layout()));
}

// i / n along the dimension d of x, for this rank's i. Kept, because a step that is captured as a graph must not copy from the
// host.
const Tensor& FNO3d::coordinate(const Tensor& x, int d) {
  const auto n = global_shape(x)[d], begin = x.layout() ? x.layout()->box().begin[d] : 0;
  auto& known = coordinates_[static_cast<std::size_t>(d - 1)];
  const UseDevice device(x.device());
  if (known.line && known.begin == begin && known.n == n && known.line.dim(d) == x.dim(d) && known.line.dtype() == x.dtype() &&
      known.line.device() == x.device())
    return known.line;
  Shape shape{1, 1, 1, 1, 1};
  shape[d] = x.dim(d);
  const Untaped scope;
  const auto places = arange(x.dim(d), DType::float64) + static_cast<double>(begin);
  known = {n, begin, constant(reshape(cast(places / static_cast<double>(n), x.dtype()), shape))};
  return known.line;
}

Tensor FNO3d::with_coordinates(const Tensor& input) {
  const auto x = whole_channels(input);
  std::vector<Tensor> parts{x};
  for (int d = 1; d <= 3; ++d) {
    if (global_shape(x)[d] == 1) continue;
    const auto zero = zeros_like(constant(slice(x, 4, 0, 1)));
    parts.push_back(constant(x.is_stand_in() ? zero : (zero.without_layout() + coordinate(x, d)).with_layout(zero.layout())));
  }
  return concatenate(parts, 4);
}

Tensor FNO3d::operator()(const Tensor& input) {
  require(input.rank() == 5, "[fno3d] needs [N, D, H, W, C]: {}", input);
  Tensor x = o_.coordinates ? with_coordinates(input) : input;
  for (std::size_t i = 0; i < lifting_.size(); ++i) x = lifting_[i](x);
  for (std::size_t i = 0; i < spectral_.size(); ++i) {
    const auto activation = i + 1 < spectral_.size() ? o_.activation : Activation::none;
    Tensor z = activate(sum_of(spectral_[i](x), skips_[i](x)), activation);
    if (gates_.size() > 0) z = activate(sum_of(mlps_[2 * i + 1](mlps_[2 * i](z)), gates_[i](x)), activation);
    x = z;
  }
  return projection_[1](projection_[0](x));
}

}  // namespace mpigrad
