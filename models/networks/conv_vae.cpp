#include "models/networks/conv_vae.h"

#include <algorithm>

#include "comm/distributed/redistribute.h"
#include "framework/base/joined.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"
#include "ops/recompute.h"
#include "ops/views/views.h"

namespace mpigrad {
namespace {

ConvVaeOptions checked(const ConvVaeOptions& o) {
  const auto positive = [](const std::vector<std::int64_t>& x) { return std::ranges::all_of(x, [](auto i) { return i > 0; }); };
  require(o.rows > 1 && o.columns > 1, "[conv_vae] maps have at least 2 rows and 2 columns, got {} and {}", o.rows, o.columns);
  require(!o.filters.empty() && o.filters.size() == o.strides.size() && positive(o.filters) && positive(o.strides),
          "[conv_vae] each convolution has one positive number of filters and one positive stride: ({}) and ({})",
          joined(o.filters, ", "), joined(o.strides, ", "));
  require(o.kernel > 0 && o.kernel % 2 == 1 && o.hidden > 0 && o.latent > 0,
          "[conv_vae] the kernel must be odd, hidden and latent positive, got {}, {} and {}", o.kernel, o.hidden, o.latent);
  return o;
}

// n outputs of stride s for n * s or fewer inputs; of the zeros that this takes, the end has one more if their number is odd.
Padding same_padding(const Extent3& extents, std::int64_t kernel, std::int64_t stride) {
  Triple low = 0, high = 0;
  for (const std::size_t i : {std::size_t{1}, std::size_t{2}}) {
    const auto out = (extents[i] + stride - 1) / stride;
    const auto all = std::max<std::int64_t>(0, (out - 1) * stride + kernel - extents[i]);
    low[i] = all / 2, high[i] = all - all / 2;
  }
  return Padding::sides(low, high);
}

}  // namespace

VaeParts vae_parts(const Tensor& result, std::int64_t latent) {
  require(result.rank() == 2 && latent > 0 && result.dim(1) > 2 * latent, "[conv_vae] a result is [N, cells + 2 * {}]: {}",
          latent, result);
  const auto cells = result.dim(1) - 2 * latent;
  return {.logits = slice(result, 1, 0, cells),
          .mean = slice(result, 1, cells, cells + latent),
          .log_variance = slice(result, 1, cells + latent, cells + 2 * latent)};
}

ConvVae::ConvVae(const ConvVaeOptions& options) : o_(checked(options)), extents_{{1, o_.rows, o_.columns}} {
  const auto last = o_.filters.size() - 1;
  const auto linear = [&](const char* name, std::int64_t out, bool whole, Activation activation = Activation::none) {
    return std::make_unique<nn::Linear>(*this, name, nn::LinearAttributes{.out = out, .activation = activation, .whole = whole});
  };
  for (std::size_t i = 0; i <= last; ++i) {
    const auto& n = extents_[i];
    const auto s = o_.strides[i];
    down_.add(*this, fmt::format("down{}", i + 1),
              {.out = o_.filters[i],
               .kernel = {1, o_.kernel, o_.kernel},
               .stride = {1, s, s},
               .padding = same_padding(n, o_.kernel, s),
               .activation = Activation::relu});
    extents_.push_back({1, (n[1] + s - 1) / s, (n[2] + s - 1) / s});
  }
  hidden_ = linear("hidden", o_.hidden, false, Activation::relu);
  mean_ = linear("mean", o_.latent, true);
  log_variance_ = linear("log_variance", o_.latent, true);
  from_latent_ = linear("from_latent", o_.hidden, false, Activation::relu);
  spread_ = linear("spread", features(), true, Activation::relu);
  for (std::size_t k = 0; k <= last; ++k) {
    const auto i = last - k;
    up_.add(*this, fmt::format("up{}", k + 1),
            {.out = i == 0 ? 1 : o_.filters[i - 1],
             .kernel = {1, o_.kernel, o_.kernel},
             .stride = {1, o_.strides[i], o_.strides[i]},
             .padding = same_padding(extents_[i], o_.kernel, o_.strides[i]),
             .activation = i == 0 ? Activation::none : Activation::relu,
             .whole = i == 0});
  }
}

std::int64_t ConvVae::features() const { return extents_.back()[1] * extents_.back()[2] * o_.filters.back(); }

Tensor ConvVae::operator()(const Tensor& maps) {
  const auto shape = global_shape(maps);
  require(shape.rank() == 5 && shape[1] == 1 && shape[2] == o_.rows && shape[3] == o_.columns && shape[4] == 1,
          "[conv_vae] needs maps [N, 1, {}, {}, 1]: {}", o_.rows, o_.columns, maps);
  Tensor x = maps;
  for (std::size_t i = 0; i < down_.size(); ++i) x = down_[i](x);
  const auto cells = x.layout();
  const auto code = (*hidden_)(flatten(x));
  const auto mean = (*mean_)(code), log_variance = (*log_variance_)(code);
  Tensor latent = mean;
  if (training()) {
    UseDevice device(mean.device());
    latent =
        mean + exp(log_variance * 0.5) * constant(random_normal(global_shape(mean), random(), 0, 1, mean.dtype(), mean.layout()));
  }
  return join(join(flatten(decode(latent, cells)), mean, 1), log_variance, 1);
}

// `cells`: the layout of the encoder's last result, to which the decoder's first one is split; null without a grid.
Tensor ConvVae::decode(const Tensor& latent, const LayoutPtr& cells) {
  const auto& n = extents_.back();
  const auto rows = (*spread_)((*from_latent_)(latent));
  auto x = unsqueeze(reshape(rows, {rows.dim(0), n[1], n[2], o_.filters.back()}), 1);
  if (cells) x = redistribute(x, cells);
  for (std::size_t k = 0; k < up_.size(); ++k) x = up_[k](x, up_[k].activation(), extents_[up_.size() - 1 - k]);
  return x;
}

}  // namespace mpigrad
