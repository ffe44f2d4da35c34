#include "models/networks/cosmoflow.h"

#include "ops/elementwise/elementwise.h"

namespace mpigrad {
namespace {

constexpr Activation hybrid_activation = Activation::leaky_relu(0.01), mlperf_activation = Activation::leaky_relu(0.3);
constexpr std::int64_t most_filters = 4096;
constexpr std::size_t strided_block = 3;  // conv4 has stride 2 if the volume is large enough

// Filters of the first convolution; the filters of the other convolutions are multiples of it.
std::int64_t own_filters(CosmoFlowVariant variant) { return variant == CosmoFlowVariant::mlperf ? 32 : 16; }
std::vector<std::int64_t> in_proportion(std::vector<std::int64_t> widths, const CosmoFlowOptions& o) {
  for (auto& width : widths) width = width * o.filters / own_filters(o.variant);
  return widths;
}

std::int64_t extent_of(const Tensor& x) { return x.layout() ? x.layout()->global[1] : x.dim(1); }

}  // namespace

CosmoFlow::CosmoFlow(const CosmoFlowOptions& options) : o_(options) {
  require(o_.filters >= 0 && o_.filters <= most_filters, "[cosmoflow] filters are from 1 to {}, 0 for the variant's own: {}",
          most_filters, o_.filters);
  if (o_.filters == 0) o_.filters = own_filters(o_.variant);
  const bool hybrid = o_.variant == CosmoFlowVariant::hybrid;
  require(hybrid || !o_.batch_norm, "[cosmoflow] only the hybrid variant has batch norm");
  if (o_.variant == CosmoFlowVariant::pyramid) {
    require(o_.padding_mode == PaddingMode::zeros || o_.padding_mode == PaddingMode::circular,
            "[cosmoflow] the variant pyramid has circular padding, not {}", name_of(o_.padding_mode));
    pyramid_.emplace(*this, "pyramid", o_.filters);
    norm_.emplace(*this, "norm");
    dropouts_.add(*this, "dropout1", {.keep = o_.keep > 0 ? o_.keep : 1});
    linears_.add(*this, "linear1", {.out = o_.targets, .whole = true});
    return;
  }
  const auto activation = hybrid ? hybrid_activation : mlperf_activation;
  const auto channels = in_proportion(
      hybrid ? std::vector<std::int64_t>{16, 32, 64, 128, 256, 256, 256} : std::vector<std::int64_t>{32, 64, 128, 256, 512}, o_);
  for (std::size_t i = 0; i < channels.size(); ++i) {
    convs_.add(*this, fmt::format("conv{}", i + 1),
               {.out = channels[i],
                .kernel = 3,
                .padding = {1, o_.padding_mode},
                .bias = !hybrid,
                .activation = o_.batch_norm ? Activation::none : activation});
    if (o_.batch_norm) norms_.add(*this, fmt::format("norm{}", i + 1), o_.norm);
  }
  auto widths = in_proportion(hybrid ? std::vector<std::int64_t>{2048, 256} : std::vector<std::int64_t>{128, 64}, o_);
  widths.push_back(o_.targets);
  const double keep = o_.keep > 0 ? o_.keep : hybrid ? 0.8 : 0.5;
  for (std::size_t i = 0; i < widths.size(); ++i) {
    const bool last = i + 1 == widths.size();
    linears_.add(
        *this, fmt::format("linear{}", i + 1),
        {.out = widths[i], .bias_start = hybrid ? 0.1 : 0.0, .activation = last ? Activation::none : activation, .whole = last});
    dropouts_.add(*this, fmt::format("dropout{}", i + 1), {.keep = keep});
  }
}

// Convolution, activation and pooling; the hybrid variant does not pool extents of 1 or 2.
Tensor CosmoFlow::block(const Tensor& x, std::size_t i) {
  const bool hybrid = o_.variant == CosmoFlowVariant::hybrid;
  auto& conv = convs_[i];
  const Triple stride = hybrid && i == strided_block && extent_of(x) > 4 ? 2 : 1;
  const auto name = fmt::format("pool{}", i + 1);
  const auto outputs = (extent_of(x) + stride[0] - 1) / stride[0];
  if (!hybrid) return conv.pooled(x, name, nn::Pooling::maximum, {.kernel = 2, .stride = 2});
  const PoolAttributes pool{.kernel = 3, .stride = 2, .padding = {1, o_.padding_mode}};
  const bool pools = outputs > 2;
  const auto activation = conv.activation();
  if (!o_.batch_norm)
    return pools ? conv.pooled(x, name, nn::Pooling::average, pool, activation, stride) : conv(x, activation, stride);
  const auto z = norms_[i](conv(x, activation, stride));
  if (!pools) return activate(z, hybrid_activation);
  nn::LayerScope scope(name, "avg_pool");
  return scope.done(avg_pool(z, pool, hybrid_activation));
}

Tensor CosmoFlow::features(const Tensor& input) {
  const bool hybrid = o_.variant == CosmoFlowVariant::hybrid;
  require(input.rank() == 5, "[cosmoflow] needs [N, W, W, W, C]: {}", input);
  const auto extent = extent_of(input);
  const std::int64_t smallest = o_.variant == CosmoFlowVariant::mlperf ? 32 : 16;
  require(extent >= smallest && (extent & (extent - 1)) == 0, "[cosmoflow] W must be a power of two, at least {}: {}", smallest,
          input);
  if (pyramid_) return (*pyramid_)(input);
  Tensor x = input;
  for (std::size_t i = 0; i < convs_.size(); ++i) x = block(x, i);
  x = flatten(x);
  for (std::size_t i = 0; i + 1 < linears_.size(); ++i) {
    // Dropout comes before each product in the hybrid variant, after the activations in mlperf.
    if (hybrid) x = dropouts_[i](x);
    x = linears_[i](x);
    if (!hybrid) x = dropouts_[i](x);
  }
  return x;
}

Tensor CosmoFlow::operator()(const Tensor& input) {
  Tensor x = features(input);
  if (norm_) x = (*norm_)(x);
  const auto last = linears_.size() - 1;
  const bool mlperf = o_.variant == CosmoFlowVariant::mlperf;
  if (!mlperf) x = dropouts_[last](x);
  x = linears_[last](x);
  return mlperf ? tanh(x) * 1.2 : x;
}

}  // namespace mpigrad
