#include "models/networks/residual_unet3d.h"

#include <algorithm>
#include <utility>

#include "comm/distributed/local_parts.h"
#include "framework/base/joined.h"
#include "models/nn/layer_split.h"
#include "models/nn/pipeline.h"
#include "ops/elementwise/elementwise.h"
#include "ops/recompute.h"
#include "ops/views/views.h"

namespace mpigrad {
namespace {

ResidualUNet3dOptions completed(ResidualUNet3dOptions o) {
  const auto levels = o.filters.size();
  require(levels >= 2 && std::all_of(o.filters.begin(), o.filters.end(), [](auto f) { return f > 0; }),
          "[residual_unet3d] filters must be at least two positive numbers, one for each level");
  if (o.strides.empty()) o.strides.assign(levels, 2), o.strides.front() = 1;
  if (o.kernels.empty()) o.kernels.assign(levels, 3);
  if (o.blocks.empty())
    for (std::size_t i = 0; i < levels; ++i) o.blocks.push_back(i == 0 ? 1 : i == 1 ? 3 : i == 2 ? 4 : 6);
  require(o.strides.size() == levels && o.kernels.size() == levels && o.blocks.size() == levels,
          "[residual_unet3d] {} levels have {} strides, {} kernels and {} numbers of blocks: one for each level is needed",
          levels, o.strides.size(), o.kernels.size(), o.blocks.size());
  require(o.strides.front() == Triple(1), "[residual_unet3d] the stride of the finest level is 1, got ({})",
          joined(o.strides.front(), ", "));
  for (std::size_t i = 0; i < levels; ++i) {
    for (const auto stride : o.strides[i])
      require(stride >= 1, "[residual_unet3d] strides are at least 1, got ({}) of level {}", joined(o.strides[i], ", "), i);
    for (const auto extent : o.kernels[i])
      require(extent >= 1 && extent % 2 == 1, "[residual_unet3d] kernels must be odd, got ({}) of level {}",
              joined(o.kernels[i], ", "), i);
    require(o.blocks[i] >= 1, "[residual_unet3d] every level has at least one block, got {} for level {}", o.blocks[i], i);
  }
  require(o.classes >= 1, "[residual_unet3d] classes must be at least 1, got {}", o.classes);
  return o;
}

Triple half(Triple kernel) {
  for (auto& extent : kernel) extent /= 2;
  return kernel;
}

constexpr auto lrelu = Activation::leaky_relu(0.01);

// x in the layout of `like`, in which its channels are whole.
Tensor whole_in_layout_of(const Tensor& like, const Tensor& x) {
  if (!x.layout()) return x;
  Layout layout = *like.layout();
  layout.global[4] = x.layout()->global[4];
  return redistribute(x, std::make_shared<Layout>(std::move(layout)));
}

nn::Conv3dAttributes conv_of(const ResidualUNet3dOptions& o, std::int64_t out, const Triple& kernel, const Triple& stride = 1) {
  return {.out = out,
          .kernel = kernel,
          .stride = stride,
          .padding = {half(kernel), o.padding_mode},
          .bias = false,
          .start = nn::WeightStart::he_fan_out};
}

}  // namespace

// Instance norm whose factors start at `start`.
class ResidualUNet3d::Norm : public nn::Module {
 public:
  Norm(Module& parent, const std::string& name, StatisticsOver statistics, double start = 1)
      : Module(parent, name), statistics_(statistics), start_(start) {}
  Tensor operator()(const Tensor& x) override { return (*this)(x, lrelu); }
  Tensor operator()(const Tensor& taken, Activation activation) {
    const auto x = at_stage(taken);
    const Shape shape{channels_of(x)};
    const auto layout = nn::layout_of_channels(x);
    nn::LayerScope scope(path(), "instance_norm", 2 * shape[0]);
    UseDevice device(x.device());
    const auto gamma = parameter("gamma", shape, nn::constant_value(start_), false, layout),
               beta = parameter("beta", shape, nn::constant_value(0), false, layout);
    return scope.done(group_norm(x, gamma, beta, {.statistics = statistics_, .activation = activation}));
  }

 private:
  StatisticsOver statistics_;
  double start_;
};

// lrelu(x' + norm(conv(lrelu(norm(conv(x, stride))))))
class ResidualUNet3d::Block : public nn::Module {
 public:
  Block(Module& parent, const std::string& name, const ResidualUNet3dOptions& o, std::size_t level, const Triple& stride)
      : Module(parent, name), stride_(stride), out_(o.filters[level]), recompute_(o.recompute),
        conv1_(*this, "conv1", conv_of(o, out_, o.kernels[level], stride)),
        conv2_(*this, "conv2", conv_of(o, out_, o.kernels[level])), conv_shortcut_(*this, "conv_shortcut", conv_of(o, out_, 1)),
        norm1_(*this, "norm1", o.statistics), norm2_(*this, "norm2", o.statistics, 0),
        norm_shortcut_(*this, "norm_shortcut", o.statistics) {}
  Tensor operator()(const Tensor& input) override {
    const auto f = [this](const Tensor& x) { return run(x); };
    return recompute_ ? mpigrad::recompute(f, input) : f(input);
  }

 private:
  Tensor run(const Tensor& x) {
    const auto inner = norm1_(conv1_(x));
    const auto convolved = conv2_(inner);
    drop_until_read(inner);
    const auto y = norm2_(convolved, Activation::none);
    auto shortcut = x;
    if (stride_ != Triple(1)) {
      nn::LayerScope scope(path() + ".pool", "avg_pool");
      shortcut =
          scope.done(avg_pool(shortcut, {.kernel = stride_, .stride = stride_, .ceil_mode = true, .count_include_pad = false}));
    }
    if (channels_of(x) != out_) shortcut = norm_shortcut_(conv_shortcut_(shortcut), Activation::none);
    shortcut = nn::at_stage_of(y, shortcut);
    return activate(y + (y.layout() ? redistribute(shortcut, y.layout()) : shortcut), lrelu);
  }

  Triple stride_;
  std::int64_t out_;
  bool recompute_;
  nn::Conv3d conv1_, conv2_, conv_shortcut_;
  Norm norm1_, norm2_, norm_shortcut_;
};

// The transposed convolution to a level, and the convolution of its result joined with the skip connection.
class ResidualUNet3d::Up : public nn::Module {
 public:
  Up(Module& parent, const std::string& name, const ResidualUNet3dOptions& o, std::size_t level)
      : Module(parent, name),
        expand_(*this, "expand",
                {.out = o.filters[level], .kernel = o.strides[level + 1], .stride = o.strides[level + 1], .bias = true}),
        conv_(*this, "conv", conv_of(o, o.filters[level], o.kernels[level])), norm_(*this, "norm", o.statistics) {}
  Tensor operator()(const Tensor&) override { fail("[residual_unet3d] a level of the way up takes two tensors"); }
  Tensor operator()(const Tensor& x, Tensor skip) {
    const auto expanded = whole_channels(expand_(x, Activation::none, spatial::global_spatial(skip)));
    skip = nn::at_stage_of(expanded, skip);
    const auto joined = join(whole_in_layout_of(skip, expanded), skip, 4);
    const auto convolved = conv_(joined);
    drop_until_read(joined);
    return norm_(convolved);
  }

 private:
  nn::ConvTranspose3d expand_;
  nn::Conv3d conv_;
  Norm norm_;
};

ResidualUNet3d::ResidualUNet3d(const ResidualUNet3dOptions& options) : o_(completed(options)) {
  const auto levels = o_.filters.size();
  stem_ = std::make_unique<nn::Conv3d>(*this, "stem.conv", conv_of(o_, o_.filters[0], o_.kernels[0]));
  stem_norm_ = std::make_unique<Norm>(*this, "stem.norm", o_.statistics);
  for (std::size_t i = 0; i < levels; ++i) {
    auto& level = downs_.emplace_back();
    for (std::int64_t b = 0; b < o_.blocks[i]; ++b)
      level.push_back(
          std::make_unique<Block>(*this, fmt::format("down{}.block{}", i + 1, b + 1), o_, i, b == 0 ? o_.strides[i] : Triple(1)));
  }
  for (std::size_t i = 0; i + 1 < levels; ++i) ups_.push_back(std::make_unique<Up>(*this, fmt::format("up{}", i + 1), o_, i));
  for (std::size_t i = 0; i == 0 || (o_.deep_supervision && i + 2 < levels); ++i)
    heads_.add(*this, fmt::format("head{}", i + 1), {.out = o_.classes, .whole = true});
}

ResidualUNet3d::~ResidualUNet3d() = default;

Tensor ResidualUNet3d::operator()(const Tensor& input) {
  require(input.rank() == 5, "[residual_unet3d] needs [N, D, H, W, C]: {}", input);
  coarse_.clear();
  std::vector<Tensor> skips;
  Tensor x = (*stem_norm_)((*stem_)(input));
  for (std::size_t i = 0; i < downs_.size(); ++i) {
    if (i > 0) skips.push_back(whole_channels(x));  // channels are concatenated later
    for (auto& block : downs_[i]) x = (*block)(x);
  }
  std::vector<Triple> strides{o_.strides};  // from the finest level on
  for (std::size_t i = 1; i < strides.size(); ++i)
    for (std::size_t a = 0; a < 3; ++a) strides[i][a] *= strides[i - 1][a];
  std::vector<CoarseScores> coarse;
  for (std::size_t i = ups_.size(); i-- > 0;) {
    const auto below = x;
    x = (*ups_[i])(below, std::move(skips.back()));
    skips.pop_back();
    drop_until_read(below);
    if (i > 0 && i < heads_.size() && training()) coarse.insert(coarse.begin(), {heads_[i](x), strides[i]});
  }
  const auto scores = heads_[0](x);
  drop_until_read(x);
  for (auto& each : coarse) each.scores = nn::at_stage_of(scores, each.scores);
  coarse_ = std::move(coarse);
  return scores;
}

}  // namespace mpigrad
