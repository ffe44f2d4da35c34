#include "models/nn/spectral/spectral_conv.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "comm/distributed/channel_parts.h"
#include "comm/distributed/distributed.h"
#include "models/nn/layer_split.h"
#include "models/nn/layers.h"
#include "ops/complex/complex.h"
#include "ops/elementwise/elementwise.h"
#include "ops/fft/fft.h"
#include "ops/linear/matmul.h"
#include "ops/views/views.h"

namespace mpigrad {
namespace {

constexpr int first = 1, last = 3, channels = 4;  // the transformed dimensions; dimension 0 has the samples
constexpr const char* op = "spectral_conv";

// A grid axis splits another dimension than before.
struct Move {
  std::size_t axis;
  AxisPlacement before;
};

Tensor with_placement(const Tensor& x, std::size_t axis, const AxisPlacement& placement) {
  Layout layout = *x.layout();
  layout.axes[axis] = placement;
  return redistribute(x, std::make_shared<Layout>(std::move(layout)));
}

// The whole dimension that a grid axis of `parts` ranks is to split instead of d, which is transformed next: `done` and later
// ones are transformed already. Preferred are the longest of these, channels, samples and dimensions that are not transformed
// yet, in this order, among those that have an element for every rank. Samples come late because ranks with all frequencies need
// all of the weight.
int new_split(const Layout& layout, int d, int done, int parts) {
  std::vector<int> candidates;
  for (int t = done; t <= last; ++t) candidates.push_back(t);
  std::stable_sort(candidates.begin(), candidates.end(), [&](int a, int b) { return layout.global[a] > layout.global[b]; });
  if (d != channels) candidates.push_back(channels);
  candidates.push_back(0);
  for (int t = done - 1; t >= first; --t) candidates.push_back(t);
  std::erase_if(candidates, [&](int t) { return t == d || layout.axis_of(t) >= 0; });
  if (candidates.empty()) return -1;
  const auto enough = std::find_if(candidates.begin(), candidates.end(), [&](int t) { return layout.global[t] >= parts; });
  if (enough != candidates.end()) return *enough;
  return *std::max_element(candidates.begin(), candidates.end(),
                           [&](int a, int b) { return layout.global[a] < layout.global[b]; });
}

// Makes dimension d of x whole. Returns what has moved.
std::optional<Move> make_whole(Tensor& x, int d, int done) {
  const int axis = x.layout() ? x.layout()->axis_of(d) : -1;
  if (axis < 0) return {};
  const auto a = static_cast<std::size_t>(axis);
  const Move move{a, x.layout()->axes[a]};
  const int parts = x.layout()->grid->extents[a], to = new_split(*x.layout(), d, done, parts);
  require(to >= 0, "[{}] all dimensions are split; make one of them whole by redistribute(): {}", op, x);
  x = with_placement(x, a, {Placement::split, to, balanced_cuts(x.layout()->global[to], parts)});
  return move;
}

// The inverse, for a tensor that may have another number of channels.
Tensor moved_back(const Tensor& x, const std::optional<Move>& move) {
  if (!move) return x;
  auto placement = move->before;
  const auto extent = x.layout()->global[placement.dimension];
  if (placement.cuts.back() != extent) placement.cuts = balanced_cuts(extent, x.layout()->grid->extents[move->axis]);
  return with_placement(x, move->axis, placement);
}

// The kept ones of all frequencies along d, which is whole.
Tensor cut(const Tensor& x, int d, std::int64_t modes) {
  const auto n = x.dim(d), negative = d == last ? 0 : modes / 2;
  if (modes == n) return x;
  const auto low = slice(x, d, 0, modes - negative);
  return negative == 0 ? low : concatenate({low, slice(x, d, n - negative, n)}, d);
}

// All n frequencies from the kept ones; its adjoint is cut().
Tensor filled(const Tensor& x, int d, std::int64_t n) {
  const auto modes = x.dim(d), negative = d == last ? 0 : modes / 2;
  if (modes == n) return x;
  const UseDevice device(x.device());
  Shape shape = x.shape();
  shape[d] = n - modes;
  Tensor between = constant(zeros(shape, x.dtype()));
  if (x.layout()) {
    Layout layout = *x.layout();
    layout.global[d] = shape[d];
    between = between.with_layout(std::make_shared<Layout>(std::move(layout)));
  }
  if (negative == 0) return concatenate({x, between}, d);
  return concatenate({slice(x, d, 0, modes - negative), between, slice(x, d, modes - negative, modes)}, d);
}

// x at the kept frequencies, with whole channels, and how to get back.
struct Spectrum {
  Tensor x;
  std::vector<std::optional<Move>> moves{};  // before the transforms along W, H and D, and before the product
};

// The same x; a grid axis of one rank splits nothing.
Tensor without_single_parts(const Tensor& x) {
  if (!x.layout()) return x;
  Layout layout = *x.layout();
  for (auto& axis : layout.axes)
    if (axis.placement == Placement::split && axis.cuts.size() == 2) axis = {};
  return x.with_layout(std::make_shared<Layout>(std::move(layout)));
}

Spectrum spectrum_of(const std::string& layer, const Tensor& taken, const Extent3& modes) {
  require(taken.rank() == 5, "[{}] needs [N, D, H, W, C]: {}", layer, taken);
  spatial::require_no_share(layer.c_str(), taken);
  const auto& global = global_shape(taken);
  for (int d = first; d <= last; ++d) {
    const auto kept = modes[static_cast<std::size_t>(d - 1)], all = d == last ? global[d] / 2 + 1 : global[d];
    require(global[d] >= 1 && kept >= 1 && kept <= all,
            "[{}] {} frequencies are kept along dimension {}, of {} that an extent of {} has: {}", layer, kept, d,
            global[d] >= 1 ? all : 0, global[d], taken);
  }
  Spectrum result{without_single_parts(is_half(taken.dtype()) ? cast(taken, DType::float32) : taken)};
  for (int d = last; d >= first; --d) {
    result.moves.push_back(make_whole(result.x, d, d + 1));
    if (d == last) result.x = local::rfft(result.x, {d});
    else if (global[d] > 1) result.x = local::fft(result.x, {d});
    result.x = cut(result.x, d, modes[static_cast<std::size_t>(d - 1)]);
  }
  result.moves.push_back(make_whole(result.x, channels, first));
  return result;
}

// The way back, to the extents and, except for the number of channels, the layout of `like`.
Tensor field_of(Tensor y, const Spectrum& spectrum, const Tensor& like) {
  const auto& global = global_shape(like);
  y = moved_back(y, spectrum.moves[3]);
  for (int d = first; d <= last; ++d) {
    const auto n = global[d];
    y = filled(y, d, d == last ? n / 2 + 1 : n);
    if (d == last) y = local::irfft(y, {d}, n);
    else if (n > 1) y = local::ifft(y, {d});
    y = moved_back(y, spectrum.moves[static_cast<std::size_t>(last - d)]);
  }
  if (!like.layout()) return y;
  Layout layout = *like.layout();
  layout.global[channels] = y.layout()->global[channels];
  for (std::size_t a = 0; a < layout.axes.size(); ++a)
    if (layout.axes[a].placement == Placement::split && layout.axes[a].dimension == channels)
      layout.axes[a].cuts = balanced_cuts(layout.global[channels], layout.grid->extents[a]);
  return redistribute(y, std::make_shared<Layout>(std::move(layout)));
}

// The layout of w in which a rank has what its frequencies need; none for a plain spectrum.
LayoutPtr layout_of_weight(const Tensor& spectrum, const Shape& w) {
  if (!spectrum.layout()) return nullptr;
  Layout layout{spectrum.layout()->grid, w, std::vector<AxisPlacement>(spectrum.layout()->axes.size())};
  for (int d = first; d <= last; ++d)
    if (const int axis = spectrum.layout()->axis_of(d); axis >= 0) {
      const auto a = static_cast<std::size_t>(axis);
      layout.axes[a] = {Placement::split, d - first, spectrum.layout()->axes[a].cuts};
    }
  return std::make_shared<Layout>(std::move(layout));
}

// This rank's block of w, replicated over the axes that split the samples.
Tensor weight_for(const Tensor& spectrum, const Tensor& w) {
  if (!spectrum.layout()) return parameter_for(spectrum, w).without_layout();
  const auto block = spatial::block_in(spectrum, w, layout_of_weight(spectrum, global_shape(w)));
  // A spectrum of this rank's frequencies only.
  Layout own = *spectrum.layout();
  for (auto& axis : own.axes)
    if (axis.placement == Placement::split && axis.dimension != 0) axis = {};
  for (int d = first; d <= last; ++d) own.global[d] = spectrum.dim(d);
  return parameter_for(spectrum.with_layout(std::make_shared<Layout>(std::move(own))), block);
}

// [N, kd, kh, kw, C] times [kd, kh, kw, C, out, 2] -> [N, kd, kh, kw, out]
Tensor product(const Tensor& spectrum, const Tensor& w) {
  const auto& shape = spectrum.shape();
  const auto modes = shape[1] * shape[2] * shape[3], samples = shape[0], in = shape[4], out = global_shape(w)[4];
  const auto x = reshape(permute(spectrum.without_layout(), {1, 2, 3, 0, 4}), {modes, samples, in});
  const auto matrices = view_as_complex(reshape(weight_for(spectrum, w), {modes, in, out, 2}));
  const auto y = permute(reshape(matmul(x, matrices), {shape[1], shape[2], shape[3], samples, out}), {3, 0, 1, 2, 4});
  if (!spectrum.layout()) return y;
  Layout layout = *spectrum.layout();
  layout.global[channels] = out;
  return y.with_layout(std::make_shared<Layout>(std::move(layout)));
}

void require_weight(const Tensor& x, const Tensor& w) {
  const auto shape = global_shape(w);
  require(w.rank() == 6 && shape[5] == 2, "[{}] needs a weight [modes_d, modes_h, modes_w, C, out, 2]: {}", op, w);
  require(x.rank() == 5 && channels_of(x) == shape[3], "[{}] the weight has {} input channels: input {}, weight {}", op, shape[3],
          x, w);
  const auto dtype = is_half(x.dtype()) ? DType::float32 : x.dtype();
  require(w.dtype() == dtype, "[{}] the weight is {} for this input: input {}, weight {}", op, name_of(dtype), x, w);
}

Tensor convolved(const Spectrum& spectrum, const Tensor& like, const Tensor& w) {
  const auto y = field_of(product(spectrum.x, w), spectrum, like);
  return is_half(like.dtype()) ? cast(y, like.dtype()) : y;
}

}  // namespace

Tensor spectral_conv(const Tensor& x, const Tensor& w, const Tensor& bias) {
  require_weight(x, w);
  const auto shape = global_shape(w);
  const auto y = convolved(spectrum_of(op, x, {shape[0], shape[1], shape[2]}), x, w);
  return bias ? bias_activation(y, bias, Activation::none) : y;
}

namespace nn {

SpectralConv3d::SpectralConv3d(Module& parent, const std::string& name, const SpectralConv3dAttributes& attributes)
    : Module(parent, name), a_(attributes) {}

Tensor SpectralConv3d::operator()(const Tensor& taken) {
  require(taken.rank() == 5, "[{}] needs [N, D, H, W, C]: {}", path(), taken);
  const Shape shape{a_.modes[0], a_.modes[1], a_.modes[2], channels_of(taken), a_.out, 2};
  LayerScope scope(path(), "spectral_conv", shape.elements() + (a_.bias ? a_.out : 0));
  const auto x = scope.moved(placed(taken));
  const auto spectrum = spectrum_of(path(), x, a_.modes);
  const auto channels = static_cast<double>(shape[3] + a_.out);  // variances 1 / channels and 2 / channels
  const auto w = parameter("weight", shape, he_normal(2 * channels), true, stored(layout_of_weight(spectrum.x, shape), shape));
  auto y = convolved(spectrum, x, w);
  if (a_.bias)
    y = bias_activation(y, parameter("bias", {a_.out}, he_normal(channels), false, layout_of_channels(y)), Activation::none);
  return scope.done(y);
}

SpectralConv2d::SpectralConv2d(Module& parent, const std::string& name, const SpectralConv2dAttributes& a)
    : SpectralConv3d(parent, name, {.out = a.out, .modes = {1, a.modes[0], a.modes[1]}, .bias = a.bias}) {}
Tensor SpectralConv2d::operator()(const Tensor& x) {
  require(x.rank() == 4, "[{}] needs [N, H, W, C]: {}", path(), x);
  return squeeze(SpectralConv3d::operator()(unsqueeze(x, 1)), {1});
}

SpectralConv1d::SpectralConv1d(Module& parent, const std::string& name, const SpectralConv1dAttributes& a)
    : SpectralConv3d(parent, name, {.out = a.out, .modes = {1, 1, a.modes}, .bias = a.bias}) {}
Tensor SpectralConv1d::operator()(const Tensor& x) {
  require(x.rank() == 3, "[{}] needs [N, W, C]: {}", path(), x);
  return squeeze(SpectralConv3d::operator()(unsqueeze(unsqueeze(x, 1), 1)), {1, 2});
}

}  // namespace nn
}  // namespace mpigrad
