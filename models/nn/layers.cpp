#include "models/nn/layers.h"

#include <algorithm>
#include <utility>

#include "comm/collectives.h"
#include "framework/cost.h"
#include "framework/tape.h"
#include "ops/elementwise.h"
#include "ops/random.h"
#include "ops/running.h"

namespace mpigrad::nn {
namespace {

double volume(const Extent3& extent) { return static_cast<double>(extent[0] * extent[1] * extent[2]); }

thread_local LayerTrace* layer_trace = nullptr;
thread_local const char* no_batch_statistics = nullptr;  // why

}  // namespace

Conv3d::Conv3d(Module& parent, const std::string& name, const Conv3dAttributes& attributes)
    : Module(parent, name), a_(attributes) {}

Tensor Conv3d::bias() { return a_.bias ? parameter("bias", {a_.out}, constant_value(0), false) : Tensor(); }

ConvForPool Conv3d::convolved(const Tensor& input, bool with_bias, Activation activation, const std::optional<Triple>& stride,
                              const PoolAttributes* pool) {
  require(input.rank() == 5, "[{}] needs [N, D, H, W, C]: {}", path(), input);
  require(a_.groups > 0 && input.dim(4) % a_.groups == 0, "[{}] {} channels are not a multiple of {} groups: {}", path(),
          input.dim(4), a_.groups, input);
  const Shape shape{a_.out, a_.kernel[0], a_.kernel[1], a_.kernel[2], input.dim(4) / a_.groups};
  const double taps = volume(a_.kernel);
  LayerScope scope(path(), "conv", shape.elements() + (a_.bias ? a_.out : 0));
  const auto x = computed(input);
  const double fan_in = taps * static_cast<double>(shape[4]), fan_out = taps * static_cast<double>(a_.out / a_.groups);
  const auto w =
      parameter("weight", shape, a_.start == WeightStart::he_fan_out ? he_normal(fan_out) : glorot_uniform(fan_in, fan_out));
  const auto made = bias();  // also where it is added later
  const auto b = with_bias ? made : Tensor();
  const ConvAttributes attributes{.stride = stride.value_or(a_.stride),
                                  .dilation = a_.dilation,
                                  .padding_low = a_.padding,
                                  .padding_high = a_.padding,
                                  .groups = a_.groups,
                                  .activation = activation};
  ConvForPool result;
  if (pool) result = conv_for_pool(x, w, b, attributes, *pool);
  else result.y = conv(x, w, b, attributes);
  result.y = scope.done(result.y);
  return result;
}

Tensor Conv3d::operator()(const Tensor& x, Activation activation, const std::optional<Triple>& stride) {
  return convolved(x, true, activation, stride, nullptr).y;
}

// For f(z) = leaky_relu(z + bias, slope), which never falls: max f(z) = f(max z), ties and NaN included. Only what takes the
// cotangent of two elements of which rounding makes equal ones may differ, and -infinity of a window wholly in padding, which
// f with slope 0 makes 0.
Tensor Conv3d::pooled(const Tensor& x, const std::string& name, Pooling pooling, const PoolAttributes& pool,
                      Activation activation, const std::optional<Triple>& stride) {
  const bool average = pooling == Pooling::average;
  const auto z = convolved(x, average, Activation::none, stride, &pool);
  LayerScope scope(name, average ? "avg_pool" : "max_pool");
  return scope.done(average ? avg_pool(z, activation) : bias_activation(max_pool(z), bias(), activation));
}

ConvTranspose3d::ConvTranspose3d(Module& parent, const std::string& name, const ConvTranspose3dAttributes& attributes)
    : Module(parent, name), a_(attributes) {}

Tensor ConvTranspose3d::operator()(const Tensor& input, Activation activation, const std::optional<Extent3>& extents) {
  require(input.rank() == 5, "[{}] needs [N, D, H, W, C]: {}", path(), input);
  require(a_.groups > 0 && input.dim(4) % a_.groups == 0 && a_.out % a_.groups == 0,
          "[{}] {} channels or {} outputs are not a multiple of {} groups: {}", path(), input.dim(4), a_.out, a_.groups, input);
  const Shape shape{input.dim(4), a_.kernel[0], a_.kernel[1], a_.kernel[2], a_.out / a_.groups};
  const double taps = volume(a_.kernel);
  LayerScope scope(path(), "conv_transpose", shape.elements() + (a_.bias ? a_.out : 0));
  const auto x = computed(input);
  const auto w =
      parameter("weight", shape,
                glorot_uniform(taps * static_cast<double>(x.dim(4) / a_.groups), taps * static_cast<double>(a_.out / a_.groups)));
  const auto bias = a_.bias ? parameter("bias", {a_.out}, constant_value(0), false) : Tensor();
  auto cut = a_.padding, filled = a_.output_padding;
  for (std::size_t i = 0; extents && i < 3; ++i) {
    const auto d = static_cast<int>(i) + 1;
    const auto n = x.layout() ? x.layout()->global[d] : x.dim(d);
    const auto whole = (n - 1) * a_.stride[i] - 2 * a_.padding[i] + a_.dilation[i] * (a_.kernel[i] - 1) + 1;
    filled[i] = std::max<std::int64_t>(0, (*extents)[i] - whole);
    cut[i] += std::max<std::int64_t>(0, whole - (*extents)[i]);
  }
  return scope.done(conv_transpose(x, w, bias,
                                   {.stride = a_.stride,
                                    .dilation = a_.dilation,
                                    .padding_low = a_.padding,
                                    .padding_high = cut,
                                    .output_padding = filled,
                                    .groups = a_.groups,
                                    .activation = activation}));
}

BatchNorm::BatchNorm(Module& parent, const std::string& name, const BatchNormAttributes& attributes)
    : Module(parent, name), a_(attributes) {
  require(a_.momentum >= 0 && a_.momentum < 1, "[{}] momentum is in [0, 1), got {}", path(), a_.momentum);
}

Tensor BatchNorm::operator()(const Tensor& x, Activation activation) {
  const Shape shape{x.dim(-1)};
  LayerScope scope(path(), "batch_norm", a_.affine ? 2 * x.dim(-1) : 0);
  UseDevice device(x.device());
  const auto gamma =
                 a_.affine ? parameter("gamma", shape, constant_value(a_.gamma_start), false) : constant(ones(shape, dtype())),
             beta = a_.affine ? parameter("beta", shape, constant_value(0), false) : constant(zeros(shape, dtype()));
  auto &mean = buffer("running_mean", shape, 0), &variance = buffer("running_variance", shape, 1);
  if (!training() && x.device() != DeviceKind::dry)
    return scope.done(
        normalise(x, {constant(mean), constant(variance)}, gamma, beta, {.epsilon = a_.epsilon, .activation = activation}));
  require(building() || !no_batch_statistics, "[{}] uses statistics of the whole batch, but {}; put it in evaluation mode: {}",
          path(), no_batch_statistics ? no_batch_statistics : "", x);
  auto result = batch_norm(x, gamma, beta, {.epsilon = a_.epsilon, .over = a_.statistics, .activation = activation});
  if (x.device() != DeviceKind::dry && !Tape::replaying()) update(x, result, mean, variance);
  return scope.done(std::move(result.y));
}

Tensor GroupNorm::operator()(const Tensor& x, Activation activation) {
  const Shape shape{x.dim(-1)};
  LayerScope scope(path(),
                   a_.groups == 0   ? "instance_norm"
                   : a_.groups == 1 ? "layer_norm"
                                    : "group_norm",
                   a_.affine ? 2 * x.dim(-1) : 0);
  UseDevice device(x.device());
  const auto gamma = a_.affine ? parameter("gamma", shape, constant_value(1), false) : constant(ones(shape, dtype())),
             beta = a_.affine ? parameter("beta", shape, constant_value(0), false) : constant(zeros(shape, dtype()));
  return scope.done(
      group_norm(x, gamma, beta, {.groups = a_.groups, .epsilon = a_.epsilon, .over = a_.statistics, .activation = activation}));
}

NoBatchStatistics::NoBatchStatistics(const char* why) : previous_(std::exchange(no_batch_statistics, why)) {}
NoBatchStatistics::~NoBatchStatistics() { no_batch_statistics = previous_; }

void BatchNorm::update(const Tensor& x, const BatchNormResult& result, Tensor& mean, Tensor& variance) const {
  Untaped scope;
  auto batch = result.statistics;
  double correction = result.count / std::max(1.0, result.count - 1);
  if (x.layout() && a_.statistics != StatisticsOver::all) {
    // Groups have statistics of their own; what evaluation uses is their average, the same on all ranks. Each counts as many
    // times as it has values: an empty rank has none.
    const auto group = grid_of(*x.layout()).along(x.layout()->varying_axes());
    double all = result.count;  // known on the host, which need not wait for a GPU
    group.transport().allreduce(&all, &all, 1, DType::float64, CombineOp::sum);
    all = std::max(1.0, all);
    batch.mean = allreduce(batch.mean * result.count, group) / all;
    batch.variance = allreduce(batch.variance * correction * result.count, group) / all;
    correction = 1;
  }
  update_running(mean, variance, batch, a_.momentum, correction);
}

Linear::Linear(Module& parent, const std::string& name, const LinearAttributes& attributes)
    : Module(parent, name), a_(attributes) {}

Tensor Linear::operator()(const Tensor& input, Activation activation) {
  require(input.rank() == 2, "[{}] needs [N, features]; flatten first: {}", path(), input);
  LayerScope scope(path(), "linear", a_.out * (input.dim(1) + (a_.bias ? 1 : 0)));
  const auto x = computed(input);
  const auto w =
      parameter("weight", {a_.out, x.dim(1)}, glorot_uniform(static_cast<double>(x.dim(1)), static_cast<double>(a_.out)));
  const auto bias = a_.bias ? parameter("bias", {a_.out}, constant_value(a_.bias_start), false) : Tensor();
  return scope.done(linear(x, w, bias, activation));
}

Dropout::Dropout(Module& parent, const std::string& name, const DropoutAttributes& attributes)
    : Module(parent, name), a_(attributes) {}

Tensor Dropout::operator()(const Tensor& x) {
  if (!training() || a_.keep == 1) return x;
  return dropout(x, a_.keep, random_of_all_steps(), static_cast<std::uint64_t>(drawn_step()));
}

LayerTrace::LayerTrace(std::function<std::int64_t()> sent_bytes) : sent_bytes_(std::move(sent_bytes)), previous_(layer_trace) {
  layer_trace = this;
}
LayerTrace::~LayerTrace() { layer_trace = previous_; }

struct LayerScope::Counter {
  LayerRecord record;
  std::int64_t sent_before = 0;
  CostLog costs;
};

LayerScope::LayerScope(std::string name, std::string kind, std::int64_t parameters) {
  if (!layer_trace) return;
  counter_ = std::make_unique<Counter>();
  counter_->record.name = std::move(name);
  counter_->record.kind = std::move(kind);
  counter_->record.parameters = parameters;
  if (layer_trace->sent_bytes_) counter_->sent_before = layer_trace->sent_bytes_();
}
LayerScope::~LayerScope() = default;

Tensor LayerScope::done(Tensor y) {
  if (!counter_) return y;
  auto& record = counter_->record;
  record.out = y.layout() ? y.layout()->global : y.shape();
  record.activation_bytes = y.bytes();
  for (const auto& line : counter_->costs.lines) record.flops += line.flops;
  if (layer_trace->sent_bytes_) record.sent_bytes = layer_trace->sent_bytes_() - counter_->sent_before;
  layer_trace->layers.push_back(record);
  return y;
}

}  // namespace mpigrad::nn
