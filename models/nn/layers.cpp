#include "models/nn/layers.h"

#include <algorithm>
#include <utility>

#include "comm/collectives/collectives.h"
#include "comm/distributed/channel_parts.h"
#include "comm/halos/overlapped.h"
#include "comm/halos/padding.h"
#include "framework/engine/cost.h"
#include "framework/engine/tape.h"
#include "models/nn/layer_split.h"
#include "ops/elementwise/elementwise.h"
#include "ops/norm/running_averages.h"
#include "ops/random/random.h"
#include "ops/views/views.h"

namespace mpigrad::nn {
namespace {

double volume(const Extent3& extent) { return static_cast<double>(extent[0] * extent[1] * extent[2]); }

thread_local LayerTrace* layer_trace = nullptr;
thread_local const char* no_batch_statistics = nullptr;  // the reason, for the message

// In +-1 / sqrt(fan_in).
Initialiser uniform_fan_in(double fan_in) { return glorot_uniform(3 * fan_in, 3 * fan_in); }

// True if channels of one group are on several ranks.
bool cuts_inside(const Layout& channels, std::int64_t group) {
  const auto& cuts = channels.axes[static_cast<std::size_t>(channels.axis_of(0))].cuts;
  return std::any_of(cuts.begin(), cuts.end(), [&](auto cut) { return group > 0 && cut % group != 0; });
}

}  // namespace

Conv3d::Conv3d(Module& parent, const std::string& name, const Conv3dAttributes& attributes)
    : Module(parent, name), a_(attributes) {}

Tensor Conv3d::bias(double fan_in, const LayoutPtr& layout) {
  const bool random = a_.start == WeightStart::uniform_fan_in;
  return a_.bias ? parameter("bias", {a_.out}, random ? uniform_fan_in(fan_in) : constant_value(0), false, layout) : Tensor();
}

struct Conv3d::Convolved {
  spatial::ConvPlan plan;
  Tensor y;
};

Conv3d::Convolved Conv3d::convolved(const Tensor& taken, bool with_bias, Activation activation,
                                    const std::optional<Triple>& stride, const PoolAttributes* pool) {
  require(taken.rank() == 5, "[{}] needs [N, D, H, W, C]: {}", path(), taken);
  const auto channels = channels_of(taken);
  require(a_.groups > 0 && channels % a_.groups == 0, "[{}] {} channels are not a multiple of {} groups: {}", path(), channels,
          a_.groups, taken);
  const Shape shape{a_.out, a_.kernel[0], a_.kernel[1], a_.kernel[2], channels / a_.groups};
  const double taps = volume(a_.kernel);
  LayerScope scope(path(), "conv", shape.elements() + (a_.bias ? a_.out : 0));
  const auto input = scope.moved(placed(taken));
  const LayerProduct product{.weight = shape, .out = a_.out, .groups = a_.groups};
  const auto layouts = product_layouts(path(), input, product, a_.split, split(), a_.whole);
  const double fan_in = taps * static_cast<double>(shape[4]), fan_out = taps * static_cast<double>(a_.out / a_.groups);
  const auto start = a_.start == WeightStart::he_fan_out       ? he_normal(fan_out)
                     : a_.start == WeightStart::uniform_fan_in ? uniform_fan_in(fan_in)
                                                               : glorot_uniform(fan_in, fan_out);
  const auto w = parameter("weight", shape, start, true, stored(layouts.weight, shape));
  auto padding = a_.padding;
  const auto x = cut_beside(spatial::with_copies(computed(input), padding), w, product);
  const auto made = bias(fan_in, layouts.bias);  // here even where the bias is added later, because it declares the parameter
  const auto b = with_bias ? made : Tensor();
  const ConvAttributes attributes{.stride = stride.value_or(a_.stride),
                                  .dilation = a_.dilation,
                                  .padding = padding,
                                  .groups = a_.groups,
                                  .activation = activation};
  Convolved result{spatial::plan_conv(x, w, b, attributes, layouts.outputs, pool), {}};
  auto y = spatial::run_conv(result.plan, x, w, b);
  if (a_.whole && !result.plan.pool) y = given_out(y);
  result.y = scope.done(y);
  return result;
}

Tensor Conv3d::operator()(const Tensor& x, Activation activation, const std::optional<Triple>& stride) {
  return convolved(x, true, activation, stride, nullptr).y;
}

// For f(z) = activation(z + bias) with a fused activation, which is monotonic: max f(z) = f(max z), ties and NaN included. Two
// things may differ: which of two elements gets the cotangent where rounding makes them equal, and -infinity from a window that
// lies wholly in padding, which ReLU makes 0. Other activations need not be monotonic and are applied before the maximum.
Tensor Conv3d::pooled(const Tensor& x, const std::string& name, Pooling pooling, const PoolAttributes& pool,
                      Activation activation, const std::optional<Triple>& stride) {
  const bool average = pooling == Pooling::average, before = !average && !activation.is_fused();
  const auto z = convolved(x, average || before, before ? activation : Activation::none, stride, &pool);
  LayerScope scope(name, average ? "avg_pool" : "max_pool");
  if (before) return scope.done(spatial::max_pool(z.plan, z.y, pool));
  return scope.done(average ? spatial::avg_pool(z.plan, z.y, pool, activation)
                            : bias_activation(spatial::max_pool(z.plan, z.y, pool), bias(1, {}), activation));
}

namespace {

Conv3dAttributes in_three_dimensions(const Conv2dAttributes& a) {
  const auto plane = [](const Pair& p, std::int64_t depth) { return Triple(depth, p[0], p[1]); };
  return {.out = a.out,
          .kernel = plane(a.kernel, 1),
          .stride = plane(a.stride, 1),
          .padding = of_planes(a.padding),
          .dilation = plane(a.dilation, 1),
          .groups = a.groups,
          .bias = a.bias,
          .activation = a.activation,
          .start = a.start,
          .split = a.split,
          .whole = a.whole};
}
Conv2dAttributes in_two_dimensions(const Conv1dAttributes& a) {
  return {.out = a.out,
          .kernel = {1, a.kernel},
          .stride = {1, a.stride},
          .padding = of_lines(a.padding),
          .dilation = {1, a.dilation},
          .groups = a.groups,
          .bias = a.bias,
          .activation = a.activation,
          .start = a.start,
          .split = a.split,
          .whole = a.whole};
}

}  // namespace

Conv2d::Conv2d(Module& parent, const std::string& name, const Conv2dAttributes& attributes)
    : Conv3d(parent, name, in_three_dimensions(attributes)) {}
Tensor Conv2d::operator()(const Tensor& x) {
  require(x.rank() == 4, "[{}] needs [N, H, W, C]: {}", path(), x);
  return squeeze(Conv3d::operator()(unsqueeze(x, 1)), {1});
}

Conv1d::Conv1d(Module& parent, const std::string& name, const Conv1dAttributes& attributes)
    : Conv3d(parent, name, in_three_dimensions(in_two_dimensions(attributes))) {}
Tensor Conv1d::operator()(const Tensor& x) {
  require(x.rank() == 3, "[{}] needs [N, W, C]: {}", path(), x);
  return squeeze(Conv3d::operator()(unsqueeze(unsqueeze(x, 1), 1)), {1, 2});
}

ConvTranspose3d::ConvTranspose3d(Module& parent, const std::string& name, const ConvTranspose3dAttributes& attributes)
    : Module(parent, name), a_(attributes) {}

Tensor ConvTranspose3d::operator()(const Tensor& taken, Activation activation, const std::optional<Extent3>& extents) {
  require(taken.rank() == 5, "[{}] needs [N, D, H, W, C]: {}", path(), taken);
  const auto channels = channels_of(taken);
  require(a_.groups > 0 && channels % a_.groups == 0 && a_.out % a_.groups == 0,
          "[{}] {} channels or {} outputs are not a multiple of {} groups: {}", path(), channels, a_.out, a_.groups, taken);
  const Shape shape{channels, a_.kernel[0], a_.kernel[1], a_.kernel[2], a_.out / a_.groups};
  const double taps = volume(a_.kernel);
  LayerScope scope(path(), "conv_transpose", shape.elements() + (a_.bias ? a_.out : 0));
  const auto input = scope.moved(placed(taken));
  const LayerProduct product{.weight = shape, .out = a_.out, .groups = a_.groups, .transposed = true};
  const auto layouts = product_layouts(path(), input, product, a_.split, split(), a_.whole);
  const auto w =
      parameter("weight", shape,
                glorot_uniform(taps * static_cast<double>(channels / a_.groups), taps * static_cast<double>(a_.out / a_.groups)),
                true, stored(layouts.weight, shape));
  const auto x = cut_beside(computed(input), w, product);
  const auto bias = a_.bias ? parameter("bias", {a_.out}, constant_value(0), false, layouts.bias) : Tensor();
  auto padding = a_.padding;
  auto filled = a_.output_padding;
  for (std::size_t i = 0; extents && i < 3; ++i) {
    const auto d = static_cast<int>(i) + 1;
    const auto n = global_shape(x)[d];
    const auto whole = (n - 1) * a_.stride[i] - a_.padding.low[i] - a_.padding.high[i] + a_.dilation[i] * (a_.kernel[i] - 1) + 1;
    filled[i] = std::max<std::int64_t>(0, (*extents)[i] - whole);
    padding.high[i] += std::max<std::int64_t>(0, whole - (*extents)[i]);
  }
  const auto y = conv_transpose(x, w, bias,
                                {.stride = a_.stride,
                                 .dilation = a_.dilation,
                                 .padding = padding,
                                 .output_padding = filled,
                                 .groups = a_.groups,
                                 .activation = activation},
                                layouts.outputs);
  return scope.done(a_.whole ? given_out(y) : y);
}

BatchNorm::BatchNorm(Module& parent, const std::string& name, const BatchNormAttributes& attributes)
    : Module(parent, name), a_(attributes) {
  require(a_.momentum >= 0 && a_.momentum < 1, "[{}] momentum is in [0, 1), got {}", path(), a_.momentum);
}

Tensor BatchNorm::operator()(const Tensor& taken, Activation activation) {
  const auto x = at_stage(taken);
  const Shape shape{channels_of(x)};
  const auto layout = layout_of_channels(x);
  LayerScope scope(path(), "batch_norm", a_.affine ? 2 * shape[0] : 0);
  UseDevice device(x.device());
  const auto gamma = a_.affine ? parameter("gamma", shape, constant_value(a_.gamma_start), false, layout)
                               : constant(ones(shape, dtype())),
             beta = a_.affine ? parameter("beta", shape, constant_value(0), false, layout) : constant(zeros(shape, dtype()));
  auto &mean = buffer("running_mean", shape, 0, layout), &variance = buffer("running_variance", shape, 1, layout);
  if (!training() && x.device() != DeviceKind::dry)
    return scope.done(
        normalise(x, {beside(x, mean), beside(x, variance)}, gamma, beta, {.epsilon = a_.epsilon, .activation = activation}));
  require(building() || !no_batch_statistics, "[{}] uses statistics of the whole batch, but {}; put it in evaluation mode: {}",
          path(), no_batch_statistics ? no_batch_statistics : "", x);
  auto result = batch_norm(x, gamma, beta, {.epsilon = a_.epsilon, .statistics = a_.statistics, .activation = activation});
  if (x.device() != DeviceKind::dry && !Tape::replaying()) update(x, result, mean, variance);
  return scope.done(std::move(result.y));
}

Tensor GroupNorm::operator()(const Tensor& taken, Activation activation) {
  const auto x = at_stage(taken);
  const Shape shape{channels_of(x)};
  const auto layout = layout_of_channels(x);
  LayerScope scope(path(),
                   a_.groups == 0   ? "instance_norm"
                   : a_.groups == 1 ? "layer_norm"
                                    : "group_norm",
                   a_.affine ? 2 * shape[0] : 0);
  UseDevice device(x.device());
  const auto gamma = a_.affine ? parameter("gamma", shape, constant_value(1), false, layout) : constant(ones(shape, dtype())),
             beta = a_.affine ? parameter("beta", shape, constant_value(0), false, layout) : constant(zeros(shape, dtype()));
  const bool inside = layout && a_.groups > 0 && shape[0] % a_.groups == 0 && cuts_inside(*layout, shape[0] / a_.groups);
  const auto y = group_norm(inside ? whole_channels(x) : x, gamma, beta,
                            {.groups = a_.groups, .epsilon = a_.epsilon, .statistics = a_.statistics, .activation = activation});
  return scope.done(inside ? redistribute(y, x.layout()) : y);
}

namespace {

// f(x) of x with whole channels, in the layout of x.
template <class F>
Tensor of_whole_channels(const Tensor& x, const F& f) {
  if (!layout_of_channels(x)) return f(x);
  return redistribute(f(whole_channels(x)), x.layout());
}

}  // namespace

Tensor LayerNorm::operator()(const Tensor& taken) {
  const auto x = at_stage(taken);
  const Shape shape{channels_of(x)};
  LayerScope scope(path(), "layer_norm", a_.affine ? 2 * shape[0] : 0);
  const auto gamma = a_.affine ? parameter("gamma", shape, constant_value(1), false) : Tensor(),
             beta = a_.affine ? parameter("beta", shape, constant_value(0), false) : Tensor();
  return scope.done(of_whole_channels(x, [&](const Tensor& rows) { return layer_norm(rows, gamma, beta, a_.epsilon); }));
}

Tensor RmsNorm::operator()(const Tensor& taken) {
  const auto x = at_stage(taken);
  const Shape shape{channels_of(x)};
  LayerScope scope(path(), "rms_norm", a_.affine ? shape[0] : 0);
  const auto gamma = a_.affine ? parameter("gamma", shape, constant_value(1), false) : Tensor();
  return scope.done(of_whole_channels(x, [&](const Tensor& rows) { return rms_norm(rows, gamma, a_.epsilon); }));
}

Tensor Embedding::operator()(const Tensor& x) {
  const Shape shape{a_.rows, a_.out};
  LayerScope scope(path(), "embedding", shape.elements());
  const auto input = scope.moved(placed(x));
  const auto table = parameter("weight", shape, he_normal(2), true, stored(nullptr, shape));  // of variance 1
  // build() runs networks on tensors of the parameters' type, which have no elements.
  const auto indices = building() ? cast(input, DType::int64) : input;
  return scope.done(computed(embedding(indices, table)));
}

NoBatchStatistics::NoBatchStatistics(const char* why) : previous_(std::exchange(no_batch_statistics, why)) {}
NoBatchStatistics::~NoBatchStatistics() { no_batch_statistics = previous_; }

void BatchNorm::update(const Tensor& x, const BatchNormResult& result, Tensor& mean, Tensor& variance) const {
  Untaped scope;
  auto batch = result.statistics;
  double correction = result.count / std::max(1.0, result.count - 1);
  if (x.layout() && a_.statistics != StatisticsOver::all) {
    // Each group of ranks has its own statistics; evaluation uses their average, the same on all ranks. Each counts as many times
    // as it has values: an empty rank counts 0 times.
    auto axes = x.layout()->varying_axes();
    std::erase(axes, x.layout()->axis_of(x.rank() - 1));  // these ranks have other channels
    const auto group = grid_of(*x.layout()).along(axes);
    double all = result.count;  // known on the host: no need to wait for a GPU
    group.transport().allreduce(&all, &all, 1, DType::float64, CombineOp::sum);
    all = std::max(1.0, all);
    batch.mean = allreduce(batch.mean * result.count, group) / all;
    batch.variance = allreduce(batch.variance * correction * result.count, group) / all;
    correction = 1;
  }
  // In the layout of the running statistics; x may be split differently than in build().
  const auto to = mean.layout();
  if (to && x.layout()) {
    const auto of_x = layout_of_channels(x);
    const auto from = of_x ? of_x : replicated_layout(std::dynamic_pointer_cast<const Grid>(to->grid), to->global);
    batch.mean = redistribute(batch.mean.with_layout(from), to).without_layout();
    batch.variance = redistribute(batch.variance.with_layout(from), to).without_layout();
  } else if (const auto of_x = layout_of_channels(x)) {
    batch.mean = gather_all(batch.mean.with_layout(of_x)).without_layout();
    batch.variance = gather_all(batch.variance.with_layout(of_x)).without_layout();
  }
  auto new_mean = mean.without_layout(), new_variance = variance.without_layout();
  update_running(new_mean, new_variance, batch, a_.momentum, correction);
  mean = new_mean.with_layout(to), variance = new_variance.with_layout(to);
}

Tensor BatchNorm::beside(const Tensor& x, const Tensor& statistic) const {
  Untaped scope;
  return constant(spatial::block_beside("batch_norm", x, statistic).without_layout());
}

Linear::Linear(Module& parent, const std::string& name, const LinearAttributes& attributes)
    : Module(parent, name), a_(attributes) {}

Tensor Linear::operator()(const Tensor& taken, Activation activation) {
  require(taken.rank() == 2, "[{}] needs [N, features]; flatten first: {}", path(), taken);
  const auto features = channels_of(taken);
  LayerScope scope(path(), "linear", a_.out * (features + (a_.bias ? 1 : 0)));
  const auto input = scope.moved(placed(taken));
  const LayerProduct product{.weight = {a_.out, features}, .out = a_.out};
  const auto layouts = product_layouts(path(), input, product, a_.split, split(), a_.whole);
  const auto w = parameter("weight", product.weight, glorot_uniform(static_cast<double>(features), static_cast<double>(a_.out)),
                           true, stored(layouts.weight, product.weight));
  const auto x = cut_beside(computed(input), w, product);
  const auto bias = a_.bias ? parameter("bias", {a_.out}, constant_value(a_.bias_start), false, layouts.bias) : Tensor();
  const auto y = linear(x, w, bias, activation, layouts.outputs);
  return scope.done(a_.whole ? given_out(y) : y);
}

Dropout::Dropout(Module& parent, const std::string& name, const DropoutAttributes& attributes)
    : Module(parent, name), a_(attributes) {}

Tensor Dropout::operator()(const Tensor& x) {
  if (!training() || a_.keep == 1) return x;
  return dropout(x, a_.keep, random_of_all_steps(), static_cast<std::uint64_t>(drawn_step()));
}

LayerTrace::LayerTrace(std::function<LayerTraffic()> traffic) : traffic_(std::move(traffic)), previous_(layer_trace) {
  layer_trace = this;
}
LayerTrace::~LayerTrace() { layer_trace = previous_; }

struct LayerScope::Counter {
  LayerRecord record;
  LayerTraffic before;
  CostLog costs;
};

LayerScope::LayerScope(std::string name, std::string kind, std::int64_t parameters) {
  if (!layer_trace) return;
  counter_ = std::make_unique<Counter>();
  counter_->record.name = std::move(name);
  counter_->record.kind = std::move(kind);
  counter_->record.parameters = parameters;
  if (layer_trace->traffic_) counter_->before = layer_trace->traffic_();
  ++layer_trace->open;
}
LayerScope::~LayerScope() {
  if (counter_ && layer_trace) --layer_trace->open;
}

Tensor LayerScope::moved(Tensor x) {
  if (!counter_ || !layer_trace->traffic_) return x;
  const auto now = layer_trace->traffic_();
  counter_->record.moved_bytes += now.sent - counter_->before.sent;
  counter_->before.sent = now.sent;
  return x;
}

Tensor LayerScope::done(Tensor y) {
  if (!counter_) return y;
  auto& record = counter_->record;
  record.out = global_shape(y);
  record.elsewhere = y.is_stand_in();
  record.activation_bytes = record.elsewhere ? 0 : y.bytes();
  for (const auto& line : counter_->costs.lines) record.flops += line.flops;
  if (layer_trace->traffic_) {
    const auto now = layer_trace->traffic_();
    record.sent_bytes += now.sent - counter_->before.sent;
    record.collective_bytes += now.collective - counter_->before.collective;
  }
  layer_trace->layers.push_back(record);
  return y;
}

}  // namespace mpigrad::nn
