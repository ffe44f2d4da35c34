#include "models/networks/unet3d.h"

#include <algorithm>
#include <utility>

#include "comm/distributed/local_parts.h"
#include "models/nn/pipeline.h"
#include "ops/recompute.h"
#include "ops/views/views.h"

namespace mpigrad {
namespace {

using Kind = nn::NormAttributes::Kind;

UNet3dOptions completed(UNet3dOptions o) {
  const bool lbann = o.variant == UNet3dVariant::lbann;
  if (o.filters.empty())
    o.filters = lbann ? std::vector<std::int64_t>{32, 64, 128, 256, 512} : std::vector<std::int64_t>{32, 64, 128, 256, 320, 320};
  require(o.filters.size() >= 3 && std::all_of(o.filters.begin(), o.filters.end(), [](auto f) { return f > 0; }),
          "[unet3d] filters must be at least three positive numbers");
  require(o.classes >= 1, "[unet3d] classes must be at least 1, got {}", o.classes);
  if (!o.norm) o.norm = nn::NormAttributes{.kind = lbann ? Kind::batch : Kind::instance};
  o.norm->activation = Activation::relu;
  return o;
}

// x, whose channels are whole, in the layout of `like` otherwise.
Tensor as(const Tensor& x, const Tensor& like) {
  if (!x.layout()) return x;
  Layout layout = *like.layout();
  layout.global[4] = x.layout()->global[4];
  return redistribute(x, std::make_shared<Layout>(std::move(layout)));
}

}  // namespace

UNet3d::Block UNet3d::block(const std::string& name, std::int64_t first, std::int64_t second, const Triple& stride) {
  Block result;
  for (const auto& [number, out] : {std::pair{1, first}, std::pair{2, second}}) {
    result.convs.add(*this, fmt::format("{}.conv{}", name, number),
                     {.out = out,
                      .kernel = 3,
                      .stride = number == 1 ? stride : Triple(1),
                      .padding = {1, o_.padding_mode},
                      .bias = o_.norm->kind == Kind::none,
                      .start = nn::WeightStart::he_fan_out});
    result.norms.push_back(nn::make_norm(*this, fmt::format("{}.norm{}", name, number), *o_.norm));
  }
  return result;
}

// With filters f and L levels: lbann has the blocks (f0, f1), (f1, f2), ... and on the way up (fL-1, fL-1), ...; mlperf has one
// number of filters for each block.
UNet3d::UNet3d(const UNet3dOptions& options) : o_(completed(options)) {
  const bool lbann = o_.variant == UNet3dVariant::lbann;
  const auto& f = o_.filters;
  const std::size_t levels = f.size() - (lbann ? 2 : 1);
  for (std::size_t i = 0; i <= levels; ++i) {
    const auto name = i == levels ? "bottom" : fmt::format("down{}", i + 1);
    if (lbann) downs_.push_back(block(name, f[i], f[i + 1]));
    else downs_.push_back(block(name, f[i], f[i], i == 0 ? 1 : 2));
  }
  for (std::size_t i = levels; i-- > 0;) {
    const auto name = fmt::format("up{}", i + 1);
    const auto out = lbann ? f[i + 1] : f[i];
    expansions_.add(*this, name + ".expand", {.out = lbann ? f[i + 2] : f[i], .kernel = 2, .stride = 2, .bias = !lbann});
    ups_.push_back(block(name, out, out));
  }
  head_ = std::make_unique<nn::Conv3d>(*this, "head", nn::Conv3dAttributes{.out = o_.classes, .bias = !lbann, .whole = true});
}

Tensor UNet3d::run(Block& block, const Tensor& input, bool drops_input) {
  const auto f = [&block, drops_input](const Tensor& x) {
    Tensor y = x;
    for (std::size_t i = 0; i < block.convs.size(); ++i) {
      const auto z = block.convs[i](y);
      if (i > 0 || drops_input) drop_until_read(y);
      y = (*block.norms[i])(z);
    }
    return y;
  };
  return o_.recompute ? mpigrad::recompute(f, input) : f(input);
}

Tensor UNet3d::operator()(const Tensor& input) {
  require(input.rank() == 5, "[unet3d] needs [N, D, H, W, C]: {}", input);
  const bool pools = o_.variant == UNet3dVariant::lbann;
  std::vector<Tensor> skips;
  Tensor x = input;
  for (std::size_t i = 0; i < downs_.size(); ++i) {
    if (i > 0) skips.push_back(whole_channels(x));  // channels are concatenated later
    if (i > 0 && pools) {
      // An extent of 1 cannot be halved.
      const auto n = spatial::global_spatial(x);
      Triple window = 2;
      for (std::size_t a = 0; a < 3; ++a) window[a] = std::min<std::int64_t>(2, n[a]);
      nn::LayerScope scope(fmt::format("pool{}", i), "max_pool");
      x = scope.done(max_pool(x, {.kernel = window, .stride = window}));
    }
    x = run(downs_[i], x);
  }
  for (std::size_t i = 0; i < ups_.size(); ++i) {
    auto skip = std::move(skips.back());
    skips.pop_back();
    const auto expanded = whole_channels(expansions_[i](x, Activation::none, spatial::global_spatial(skip)));
    skip = nn::at_stage_of(expanded, skip);
    const auto wide = as(expanded, skip);
    drop_until_read(x);
    const auto joined = join(wide, skip, 4);
    drop_until_read(skip);
    x = run(ups_[i], joined, true);
  }
  const auto scores = (*head_)(x);
  drop_until_read(x);
  return scores;
}

}  // namespace mpigrad
