#include "models/train/workers/workers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "framework/tensor/random.h"

namespace mpigrad {
namespace {

// Elements of floating-point tensors as doubles, one after the other, for sums over ranks.
void append(std::vector<double>& to, const Tensor& from) {
  visit_floating(from.dtype(), [&](auto zero) {
    const auto* values = from.data<decltype(zero)>();
    to.insert(to.end(), values, values + from.elements());
  });
}
void add(std::span<double> to, const Tensor& from) {
  visit_floating(from.dtype(), [&](auto zero) {
    const auto* values = from.data<decltype(zero)>();
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += static_cast<double>(values[i]);
  });
}
// Overwrites a tensor that the library changes in place: a parameter between two steps, or a buffer.
void overwrite(const Tensor& to, std::span<const double> from) {
  visit_floating(to.dtype(), [&](auto zero) {
    using T = decltype(zero);
    std::transform(from.begin(), from.end(), reinterpret_cast<T*>(to.raw()), [](double x) { return static_cast<T>(x); });
  });
}

std::vector<Tensor> parameters_of(nn::Module& net) { return net.parameters().tensors(); }
std::vector<Tensor> buffers_of(nn::Module& net) {
  std::vector<Tensor> buffers;
  for (const auto& [name, buffer] : net.buffers()) buffers.push_back(buffer);
  return buffers;
}
std::vector<Tensor> state_of(nn::Module& net) {
  auto state = parameters_of(net);
  const auto buffers = buffers_of(net);
  state.insert(state.end(), buffers.begin(), buffers.end());
  return state;
}

std::vector<double> values_in(const std::vector<Tensor>& tensors) {
  std::vector<double> values;
  for (const auto& x : tensors) append(values, x);
  return values;
}
// Takes the elements from the front of `values` and removes them there.
void overwrite(const std::vector<Tensor>& tensors, std::span<const double>& values) {
  for (const auto& x : tensors) {
    const auto count = static_cast<std::size_t>(x.elements());
    overwrite(x, values.first(count));
    values = values.subspan(count);
  }
}
std::int64_t elements_of(const std::vector<Tensor>& tensors) {
  return std::accumulate(tensors.begin(), tensors.end(), std::int64_t{0},
                         [](auto sum, const Tensor& x) { return sum + x.elements(); });
}

double squared_sum(std::span<const double> values) {
  return std::inner_product(values.begin(), values.end(), values.begin(), 0.0);
}

// Equal parts along the first dimension, in the memory of x.
std::vector<Tensor> parts_of(const Tensor& x, int parts) {
  require(x && x.rank() > 0 && x.dim(0) % parts == 0 && x.dim(0) > 0, "[workers] {} workers cannot share {} evenly", parts, x);
  auto type = x.type();
  type.shape[0] /= parts;
  const auto bytes = x.bytes() / parts;
  std::vector<Tensor> result;
  for (int i = 0; i < parts; ++i) result.push_back(Tensor(type, x.storage(), x.offset() + i * bytes).as_constant());
  return result;
}

}  // namespace

Workers::Workers(const Communicator& world, const MakeNetwork& make, const Shape& input, const nn::BuildOptions& build,
                 const MakeOptimizer& optimizer, const WorkersOptions& options)
    : world_(world), options_(options) {
  require(options.workers > 0 && options.workers % world.size() == 0, "[workers] {} ranks cannot share {} workers evenly",
          world.size(), options.workers);
  require(options.every > 0, "[workers] weights are averaged after at least one step, got {}", options.every);
  const bool apart = options.synchronisation != Synchronisation::gradients;
  const auto built = [&] {
    auto net = make();
    net->build(input, build);
    return net;
  };
  for (int i = 0; i < (apart ? local() : 1); ++i) {
    auto& replica = replicas_.emplace_back(Replica{built(), nullptr});
    replica.optimizer = optimizer(replica.net->parameters());
  }
  if (apart) mean_ = built();
}

void Workers::set_learning_rate(double rate) {
  for (auto& replica : replicas_) replica.optimizer->set_learning_rate(rate);
}

std::int64_t Workers::bytes() const {
  std::int64_t bytes = 0;
  const auto count = [&](nn::Module& net) {
    for (const auto& x : state_of(net)) bytes += x.bytes();
  };
  for (const auto& replica : replicas_) {
    count(*replica.net);
    for (const auto& state : replica.optimizer->state()) bytes += state.value.bytes();
  }
  if (mean_) count(*mean_);
  return bytes;
}

WorkersStep Workers::step(const Tensor& x, const Tensor& y, const LossFunction& loss) {
  const auto xs = parts_of(x.without_layout(), local()), ys = parts_of(y.without_layout(), local());
  const auto result =
      options_.synchronisation == Synchronisation::gradients ? step_gradients(xs, ys, loss) : step_apart(xs, ys, loss);
  ++steps_;
  if (!std::isfinite(result.loss))
    throw Diverged(
        fmt::format("[workers] the loss is {} in step {}: a smaller learning rate or clipping may help", result.loss, steps_));
  if (steps_ % options_.every == 0) {
    if (options_.synchronisation == Synchronisation::weights) average();
    if (options_.synchronisation == Synchronisation::gossip) gossip();
  }
  return result;
}

WorkersStep Workers::step_gradients(const std::vector<Tensor>& xs, const std::vector<Tensor>& ys, const LossFunction& loss) {
  auto& [net, optimizer] = replicas_.front();
  auto& parameters = net->parameters();
  const auto before = values_in(buffers_of(*net));  // each pass replaces the tensors
  const auto weights = parameters.tensors();
  const auto n = static_cast<std::size_t>(elements_of(weights));
  // The sums over workers: of gradients, then of running statistics, of losses and of squared norms.
  std::vector<double> sums(n + before.size() + 2);
  const auto gradient = std::span(sums).first(n), statistics = std::span(sums).subspan(n, before.size());
  net->train();
  for (std::size_t w = 0; w < xs.size(); ++w) {
    if (w > 0) {
      std::span<const double> rest = before;
      overwrite(buffers_of(*net), rest);
    }
    net->set_step(steps_ * options_.workers + first() + static_cast<std::int64_t>(w));
    Tape tape(parameters);
    const auto share = loss((*net)(xs[w]), ys[w]);
    const auto own = tape.gradient(share);
    std::size_t at = 0;
    double squared = 0;
    for (std::size_t i = 0; i < own.size(); ++i) {
      const auto part = gradient.subspan(at, static_cast<std::size_t>(own[i].elements()));
      visit_floating(own[i].dtype(), [&](auto zero) {
        const auto* values = own[i].data<decltype(zero)>();
        for (std::size_t j = 0; j < part.size(); ++j) {
          const double value = static_cast<double>(values[j]);
          part[j] += value, squared += value * value;
        }
      });
      at += part.size();
    }
    at = 0;
    for (const auto& buffer : buffers_of(*net)) {
      const auto count = static_cast<std::size_t>(buffer.elements());
      add(statistics.subspan(at, count), buffer);
      at += count;
    }
    sums[sums.size() - 2] += detail::local_item(share), sums.back() += squared;
  }
  world_.transport().allreduce(sums.data(), sums.data(), static_cast<std::int64_t>(sums.size()), DType::float64, CombineOp::sum);
  for (auto& sum : sums) sum /= options_.workers;
  std::span<const double> rest = statistics;
  overwrite(buffers_of(*net), rest);
  std::vector<Tensor> mean;
  rest = gradient;
  for (const auto& weight : weights) {
    mean.push_back(Tensor(weight.type(), DeviceKind::cpu));
    const auto count = static_cast<std::size_t>(weight.elements());
    overwrite(mean.back(), rest.first(count));
    rest = rest.subspan(count);
  }
  const WorkersStep result{
      .loss = sums[sums.size() - 2], .small_squared_norm = sums.back(), .big_squared_norm = squared_sum(gradient)};
  if (std::isfinite(result.loss)) optimizer->step(Gradients(std::move(mean)), {.max_norm = options_.clip_norm});
  return result;
}

WorkersStep Workers::step_apart(const std::vector<Tensor>& xs, const std::vector<Tensor>& ys, const LossFunction& loss) {
  std::vector<double> sums(2);
  for (std::size_t w = 0; w < xs.size(); ++w) {
    auto& [net, optimizer] = replicas_[w];
    net->train();
    net->set_step(steps_ * options_.workers + first() + static_cast<std::int64_t>(w));
    Tape tape(net->parameters());
    const auto share = loss((*net)(xs[w]), ys[w]);
    const auto own = tape.gradient(share);
    sums[0] += detail::local_item(share), sums[1] += squared_norm(own);
    if (std::isfinite(sums[0])) optimizer->step(own, {.max_norm = options_.clip_norm});
  }
  world_.transport().allreduce(sums.data(), sums.data(), 2, DType::float64, CombineOp::sum);
  return {.loss = sums[0] / options_.workers,
          .small_squared_norm = sums[1] / options_.workers,
          .big_squared_norm = std::numeric_limits<double>::quiet_NaN()};
}

std::vector<double> Workers::mean_state() {
  std::vector<double> sums(static_cast<std::size_t>(elements_of(state_of(*mean_))));
  for (auto& replica : replicas_) {
    std::span<double> rest = sums;
    for (const auto& x : state_of(*replica.net)) {
      const auto count = static_cast<std::size_t>(x.elements());
      add(rest.first(count), x);
      rest = rest.subspan(count);
    }
  }
  world_.transport().allreduce(sums.data(), sums.data(), static_cast<std::int64_t>(sums.size()), DType::float64, CombineOp::sum);
  for (auto& sum : sums) sum /= options_.workers;
  return sums;
}

void Workers::average() {
  const auto mean = mean_state();
  for (auto& replica : replicas_) {
    std::span<const double> rest = mean;
    overwrite(state_of(*replica.net), rest);
  }
}

void Workers::gossip() {
  // All ranks draw the same order of the workers; neighbours in it are a pair; with an odd number the last worker has no partner.
  std::vector<int> order(static_cast<std::size_t>(options_.workers));
  std::iota(order.begin(), order.end(), 0);
  const Philox random{options_.seed, static_cast<std::uint64_t>(steps_)};
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i, i)]);
  struct Exchange {
    int worker = 0, partner = 0;
    std::vector<double> own, other;
  };
  std::vector<Exchange> exchanges;
  const auto here = [&](int worker) { return worker / local() == world_.rank(); };
  const auto state = [&](int worker) { return state_of(*replicas_[static_cast<std::size_t>(worker - first())].net); };
  for (std::size_t i = 0; i + 1 < order.size(); i += 2)
    for (const auto& [worker, partner] : {std::pair(order[i], order[i + 1]), std::pair(order[i + 1], order[i])})
      if (here(worker)) exchanges.push_back({worker, partner, values_in(state(worker)), {}});
  std::vector<Message> sends, receives;
  for (auto& e : exchanges) {
    const auto count = static_cast<std::int64_t>(e.own.size());
    e.other.resize(e.own.size());
    // The number of a worker, which has one partner, identifies its message among those between the same ranks.
    sends.push_back({e.partner / local(), e.worker, e.own.data(), count});
    receives.push_back({e.partner / local(), e.partner, e.other.data(), count});
  }
  world_.transport().exchange(sends, receives, DType::float64);
  for (auto& e : exchanges) {
    for (std::size_t j = 0; j < e.own.size(); ++j) e.own[j] = (e.own[j] + e.other[j]) / 2;
    std::span<const double> rest = e.own;
    overwrite(state(e.worker), rest);
  }
}

nn::Module& Workers::mean() {
  if (!mean_) return *replicas_.front().net;
  const auto mean = mean_state();
  std::span<const double> rest = mean;
  overwrite(state_of(*mean_), rest);
  return *mean_;
}

}  // namespace mpigrad
