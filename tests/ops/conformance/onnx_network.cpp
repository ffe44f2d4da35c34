#include <algorithm>
#include <array>

#include "framework/base/joined.h"
#include "ops/conv/conv.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/loss/loss.h"
#include "ops/norm/channel_norm.h"
#include "ops/pool/pool.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"
#include "tests/ops/conformance/onnx_operators.h"
#include "tests/ops/conformance/onnx_window.h"

namespace mpigrad::testing {
namespace {

using Arguments = std::vector<Tensor>;

bool given(const Arguments& in, std::size_t i) { return i < in.size() && in[i]; }

// ---- The border. [N, C, spatial...] <-> [N, spatial..., C], and further to five dimensions with unit extents in front.

Tensor channels_last(const Tensor& x) {
  std::vector<int> order = {0};
  for (int d = 2; d < x.rank(); ++d) order.push_back(d);
  if (x.rank() > 1) order.push_back(1);
  return permute(x, order);
}

Tensor channels_second(const Tensor& x) {
  std::vector<int> order = {0};
  if (x.rank() > 1) order.push_back(x.rank() - 1);
  for (int d = 1; d + 1 < x.rank(); ++d) order.push_back(d);
  return permute(x, order);
}

Tensor to_volume(const Tensor& x) {
  Tensor y = channels_last(x);
  while (y.rank() < 5) y = unsqueeze(y, 1);
  return y;
}

Tensor from_volume(const Tensor& y, int rank) {
  std::vector<int> units;
  for (int d = 1; d <= 5 - rank; ++d) units.push_back(d);
  return channels_second(units.empty() ? y : squeeze(y, units));
}

std::vector<std::int64_t> spatial(const Tensor& x) { return {x.shape().begin() + 2, x.shape().end()}; }

// One member of each window, for the last dimensions; `unit` for the leading ones.
Extent3 triple(const std::vector<OnnxWindow>& windows, std::int64_t OnnxWindow::*member, std::int64_t unit) {
  require(windows.size() <= 3, "[onnx] at most three spatial dimensions, got {}", windows.size());
  Extent3 result{unit, unit, unit};
  for (std::size_t d = 0; d < windows.size(); ++d) result[3 - windows.size() + d] = windows[d].*member;
  return result;
}

// ---- Convolutions.

Arguments conv_operator(const OnnxNode& node, const Arguments& in) {
  const auto windows = windows_of(node, spatial(in[0]), node.integers("kernel_shape", spatial(in[1])));
  const ConvAttributes attributes{
      .stride = triple(windows, &OnnxWindow::stride, 1),
      .dilation = triple(windows, &OnnxWindow::dilation, 1),
      .padding = Padding::sides(triple(windows, &OnnxWindow::low, 0), triple(windows, &OnnxWindow::high, 0)),
      .groups = node.integer("group", 1)};
  const Tensor x = to_volume(in[0]), w = to_volume(in[1]);
  const Tensor y =
      given(in, 2) ? local::conv_bias_activation(x, w, in[2], Activation::none, attributes) : local::conv(x, w, attributes);
  return {from_volume(y, in[0].rank())};
}

// ONNX's weight [C_in, C_out / groups, ...] is the weight of the convolution whose transpose this is.
Arguments conv_transpose_operator(const OnnxNode& node, const Arguments& in) {
  auto windows = transposed_windows_of(node, spatial(in[0]), node.integers("kernel_shape", spatial(in[1])));
  Extent3 output_padding{0, 0, 0};
  for (std::size_t d = 0; d < windows.size(); ++d) {
    auto& window = windows[d];
    window.high = std::max<std::int64_t>(window.high, 0);
    output_padding[3 - windows.size() + d] =
        window.out - ((window.in - 1) * window.stride + window.dilation * (window.kernel - 1) + 1 - window.low - window.high);
  }
  const ConvTransposeAttributes attributes{
      .stride = triple(windows, &OnnxWindow::stride, 1),
      .dilation = triple(windows, &OnnxWindow::dilation, 1),
      .padding = Padding::sides(triple(windows, &OnnxWindow::low, 0), triple(windows, &OnnxWindow::high, 0)),
      .output_padding = output_padding,
      .groups = node.integer("group", 1)};
  const Tensor y = local::conv_transpose(to_volume(in[0]), to_volume(in[1]), attributes);
  return {from_volume(given(in, 2) ? y + in[2] : y, in[0].rank())};
}

// ---- Pools. The engine has a ceil mode of its own, which is what is tested; the extents here are compared with its result.

PoolAttributes pool_attributes(const OnnxNode& node, const std::vector<OnnxWindow>& windows) {
  return {.kernel = triple(windows, &OnnxWindow::kernel, 1),
          .stride = triple(windows, &OnnxWindow::stride, 1),
          .dilation = triple(windows, &OnnxWindow::dilation, 1),
          .padding = Padding::sides(triple(windows, &OnnxWindow::low, 0), triple(windows, &OnnxWindow::high, 0)),
          .ceil_mode = node.integer("ceil_mode", 0) != 0,
          .count_include_pad = node.integer("count_include_pad", 0) != 0};
}

void require_outputs(const Tensor& y, const std::vector<OnnxWindow>& windows) {
  const auto expected = triple(windows, &OnnxWindow::out, 1);
  require(spatial_extent(y) == expected, "[onnx] the pool made [{}] outputs instead of [{}]", joined(spatial_extent(y), ", "),
          joined(expected, ", "));
}

Arguments average_pool(const OnnxNode& node, const Arguments& in) {
  const auto windows = windows_of(node, spatial(in[0]), node.integers("kernel_shape", {}));
  const Tensor y = local::avg_pool(to_volume(in[0]), pool_attributes(node, windows));
  require_outputs(y, windows);
  return {from_volume(y, in[0].rank())};
}

// Index of every maximum in the flattened input of ONNX's layout; with storage_order 1 the spatial dimensions are column-major.
Tensor places_of_maxima(const OnnxNode& node, const Tensor& x, const std::vector<OnnxWindow>& windows, const Tensor& winner) {
  const auto in = triple(windows, &OnnxWindow::in, 1), kernel = triple(windows, &OnnxWindow::kernel, 1),
             stride = triple(windows, &OnnxWindow::stride, 1), dilation = triple(windows, &OnnxWindow::dilation, 1),
             low = triple(windows, &OnnxWindow::low, 0);
  const bool column_major = node.integer("storage_order", 0) != 0;
  const Shape& shape = winner.shape();  // [N, D', H', W', C]
  const std::int64_t channels = x.dim(1), volume = in[0] * in[1] * in[2];
  auto places = winner.to_vector();
  const auto strides = shape.strides();
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto flat = static_cast<std::int64_t>(i), tap = static_cast<std::int64_t>(places[i]);
    const std::array<std::int64_t, 3> taps = {tap / (kernel[1] * kernel[2]), tap / kernel[2] % kernel[1], tap % kernel[2]};
    std::array<std::int64_t, 3> at{};
    for (std::size_t d = 0; d < 3; ++d)
      at[d] = flat / strides[d + 1] % shape[static_cast<int>(d) + 1] * stride[d] + taps[d] * dilation[d] - low[d];
    const auto within = column_major ? at[0] + in[0] * (at[1] + in[1] * at[2]) : at[2] + in[2] * (at[1] + in[1] * at[0]);
    // Leading unit extents do not affect either order.
    places[i] = static_cast<double>((flat / strides[0] * channels + flat % channels) * volume + within);
  }
  return from_volume(from_vector(shape, places, DType::int64), x.rank());
}

Arguments max_pool_operator(const OnnxNode& node, const Arguments& in) {
  const auto windows = windows_of(node, spatial(in[0]), node.integers("kernel_shape", {}));
  // Pools are defined for floating-point types, which represent small integers exactly.
  const Tensor x = is_floating(in[0].dtype()) ? in[0] : cast(in[0], DType::float32);
  const auto [y, winner] = max_pool_with_winner(to_volume(x), pool_attributes(node, windows));
  require_outputs(y, windows);
  Arguments result = {cast(from_volume(y, x.rank()), in[0].dtype())};
  if (node.outputs.size() > 1) result.push_back(places_of_maxima(node, x, windows, winner));
  return result;
}

// (sum over the window of |x|^p)^(1/p)
Arguments lp_pool(const OnnxNode& node, const Arguments& in) {
  const auto windows = windows_of(node, spatial(in[0]), node.integers("kernel_shape", {}));
  const double p = node.real("p", 2);
  auto attributes = pool_attributes(node, windows);
  attributes.count_include_pad = true;
  double volume = 1;
  for (auto extent : attributes.kernel) volume *= static_cast<double>(extent);
  const Tensor y = pow(volume * local::avg_pool(to_volume(pow(abs(in[0]), p)), attributes), 1 / p);
  require_outputs(y, windows);
  return {from_volume(y, in[0].rank())};
}

Arguments global_max_pool(const OnnxNode&, const Arguments& in) {
  std::vector<int> axes;
  for (int d = 2; d < in[0].rank(); ++d) axes.push_back(d);
  return {max(in[0], axes, true)};
}

// ---- Normalisation, softmax, losses.

Arguments batch_normalization(const OnnxNode& node, const Arguments& in) {
  if (node.integer("training_mode", 0) != 0) throw NotOffered("BatchNormalization: training mode is tested elsewhere");
  const Tensor y =
      local::normalise(channels_last(in[0]), {.mean = in[3], .variance = in[4]}, in[1], in[2], node.real("epsilon", 1e-5));
  return {channels_second(y)};
}

int softmax_axis(const OnnxNode& node, const Tensor& x) {
  return checked_dimension("onnx", static_cast<int>(node.integer("axis", -1)), x.rank());
}

CrossEntropyOptions loss_options(const OnnxNode& node, const Arguments& in) {
  CrossEntropyOptions options{.weights = given(in, 2) ? in[2] : Tensor()};
  if (node.has("ignore_index")) options.ignore_index = node.integer("ignore_index", 0);
  const auto reduction = node.text("reduction", "mean");
  options.reduction = reduction == "none" ? Reduction::none : reduction == "sum" ? Reduction::sum : Reduction::mean;
  return options;
}

// Inputs [N, C, d...] and labels [N, d...]; the second output is the logarithm of the probabilities.
Arguments softmax_cross_entropy(const OnnxNode& node, const Arguments& in) {
  return {cross_entropy(channels_last(in[0]), in[1], loss_options(node, in)), log_softmax(in[0], 1)};
}

Arguments nll(const OnnxNode& node, const Arguments& in) {
  return {negative_log_likelihood(channels_last(in[0]), in[1], loss_options(node, in))};
}

// ---- Products.

// alpha op(A) op(B) + beta C
Arguments gemm(const OnnxNode& node, const Arguments& in) {
  const Tensor product =
      matmul(in[0], in[1], {.transpose_a = node.integer("transA", 0) != 0, .transpose_b = node.integer("transB", 0) != 0});
  const Tensor scaled = node.real("alpha", 1) * product;
  return {given(in, 2) ? scaled + node.real("beta", 1) * in[2] : scaled};
}

// Evaluation mode drops nothing.
Arguments dropout_operator(const OnnxNode&, const Arguments& in) { return {in[0], full(in[0].shape(), 1, DType::boolean)}; }

}  // namespace

OnnxTable onnx_network_operators() {
  return {
      {"Conv", conv_operator},
      {"ConvTranspose", conv_transpose_operator},
      {"AveragePool", average_pool},
      {"MaxPool", max_pool_operator},
      {"LpPool", lp_pool},
      {"GlobalMaxPool", global_max_pool},
      {"BatchNormalization", batch_normalization},
      {"Softmax", [](const OnnxNode& node, const Arguments& in) { return Arguments{softmax(in[0], softmax_axis(node, in[0]))}; }},
      {"LogSoftmax",
       [](const OnnxNode& node, const Arguments& in) { return Arguments{log_softmax(in[0], softmax_axis(node, in[0]))}; }},
      {"SoftmaxCrossEntropyLoss", softmax_cross_entropy},
      {"NegativeLogLikelihoodLoss", nll},
      {"MatMul", [](const OnnxNode&, const Arguments& in) { return Arguments{matmul(in[0], in[1])}; }},
      {"Gemm", gemm},
      {"Dropout", dropout_operator},
  };
}

}  // namespace mpigrad::testing
