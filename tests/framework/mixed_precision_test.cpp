// 16-bit kernels of the CPU against float32 kernels rounded once; statistics that stay float32; networks that compute in 16 bits
// with float32 parameters, on one rank, on split grids, and in training.

#include <doctest/doctest.h>

#include <cmath>

#include "comm/collectives/collectives.h"
#include "comm/distributed/optimizer_reductions.h"
#include "models/networks/cosmoflow.h"
#include "models/nn/describe.h"
#include "models/train/session.h"
#include "models/train/training.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/loss/loss.h"
#include "ops/pool/pool_ops.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/softmax.h"
#include "tests/support/distributed.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

constexpr DType half_types[] = {DType::bfloat16, DType::float16};

Tensor numbers(const Shape& shape, DType dtype, std::uint64_t key) { return random_normal(shape, {.key = key}, 0, 1, dtype); }
Tensor wide(const Tensor& x) { return x && is_half(x.dtype()) ? cast(x, DType::float32) : x; }

bool same(const Tensor& a, const Tensor& b) { return a.type() == b.type() && a.to_vector() == b.to_vector(); }

// |a - b| / |b|
double relative(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference += (a[i] - b[i]) * (a[i] - b[i]), norm += b[i] * b[i];
  return std::sqrt(difference / norm);
}

std::int64_t count(const Tape& tape, std::string_view name) {
  return std::count_if(tape.entries().begin(), tape.entries().end(), [&](const auto& entry) { return entry.name == name; });
}

CosmoFlowOptions small() { return {.batch_norm = true, .keep = 1, .filters = 2}; }

// The kinds of layers of CosmoFlow without kinks: a gradient jumps where an activation changes its branch.
class Smooth : public nn::Module {
 public:
  Tensor operator()(const Tensor& input) override {
    Tensor x = input;
    for (std::size_t i = 0; i < 3; ++i) {
      x = tanh((*norms_[i])((*convs_[i])(x)));
      x = avg_pool(x, {.kernel = 3, .stride = 2, .padding = 1});
    }
    return last_(tanh(first_(flatten(x))));
  }

 private:
  std::unique_ptr<nn::Conv3d> conv(int i) {
    return std::make_unique<nn::Conv3d>(*this, fmt::format("conv{}", i),
                                        nn::Conv3dAttributes{.out = 4 << i, .kernel = 3, .padding = 1, .bias = i == 2});
  }
  std::unique_ptr<nn::BatchNorm> norm(int i) { return std::make_unique<nn::BatchNorm>(*this, fmt::format("norm{}", i)); }
  std::unique_ptr<nn::Conv3d> convs_[3] = {conv(1), conv(2), conv(3)};
  std::unique_ptr<nn::BatchNorm> norms_[3] = {norm(1), norm(2), norm(3)};
  nn::Linear first_{*this, "first", {.out = 32}}, last_{*this, "last", {.out = 4}};
};

struct Gradient {
  std::vector<double> values;  // of all parameters
  std::map<std::string, std::vector<double>> buffers;
  double loss = 0;
};

// The gradient of one batch of random volumes; the same on every grid.
Gradient gradient_of(const GridExtents& extents, DType compute, double scale = 1) {
  Gradient result;
  run_threads(extents.sample * extents.depth * extents.height * extents.width, [&](std::shared_ptr<Transport> transport) {
    Session session(transport);
    const auto grid = session.grid(extents);
    const auto layout = activation_layout(grid, {4, 16, 16, 16, 2});
    const auto targets = split_layout(grid, {4, 4}, {0, -1, -1, -1});
    Smooth net;
    net.build(layout, {.seed = 3, .compute = compute});
    const auto x = constant(random_normal(layout->global, {7}, 0, 1, DType::float32, layout));
    const auto y = constant(random_uniform(targets->global, {8}, -1, 1, DType::float32, targets));
    Tape tape(net);
    const auto share = mse(net(x), y);
    const auto gradients = tape.gradient(share * scale);
    const double loss = total(share, session.world());
    if (session.rank() != 0) return;
    result.loss = loss;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      require(gradients[i].type() == net.parameters()[i].value.type() && gradients[i].dtype() == DType::float32, "[test] {}",
              gradients[i]);
      for (const double value : gradients[i].to_vector()) result.values.push_back(value / scale);
    }
    for (const auto& [name, value] : net.buffers()) {
      require(value.dtype() == DType::float32, "[test] {} is {}", name, value);
      result.buffers[name] = value.to_vector();
    }
  });
  return result;
}

// Volumes of noise; the strength of the noise is the target.
class Noise : public data::Source {
 public:
  std::int64_t size() const override { return 16; }
  const data::SampleType& sample_type() const override { return type_; }
  void read(std::int64_t sample, const Box& box, std::byte* out) const override {
    auto* to = reinterpret_cast<float*>(out);
    const Philox random{.key = static_cast<std::uint64_t>(sample)};
    for (auto d = box.begin[0]; d < box.end[0]; ++d)
      for (auto h = box.begin[1]; h < box.end[1]; ++h)
        for (auto w = box.begin[2]; w < box.end[2]; ++w)
          *to++ = static_cast<float>((1.5 + strength(sample)) * random.normal(static_cast<std::uint64_t>((d * 16 + h) * 16 + w)));
  }
  void read_targets(std::int64_t sample, const Box&, std::byte* out) const override {
    *reinterpret_cast<double*>(out) = strength(sample);
  }

 private:
  static double strength(std::int64_t sample) { return static_cast<double>(sample) / 8 - 0.95; }
  data::SampleType type_{.extents = {16, 16, 16}, .targets = {.type = DType::float64, .shape = {1}, .names = {"strength"}}};
};

struct Curve {
  std::vector<double> losses;  // of the epochs
  double error = 0;            // of the predictions, in evaluation mode
  EpochReport last;
};

Curve train(std::optional<DType> compute, double start = 512, double clip = 0) {
  Curve curve;
  run_threads(2, [&](std::shared_ptr<Transport> transport) {
    const Communicator world(transport);
    const auto grid = make_grid(world, {.depth = 2});
    const data::Loader loader(std::make_shared<Noise>(), {.grid = grid, .batch = 8, .seed = 2, .shuffle = true});
    auto options = small();
    options.targets = 1, options.norm.momentum = 0.8;
    CosmoFlow net(options);
    net.build(loader.shape(), {.seed = 4, .compute = compute});
    Adam adam(net, {.learning_rate = 1e-3});
    LossScale scale({.start = start, .ranks = world.size(), .agree = all_agree(world)});
    fit(net, adam, loader, mse, world,
        {.epochs = 25,
         .clip_norm = clip,
         .loss_scale = compute == DType::float16 ? &scale : nullptr,
         .after_epoch = [&](const EpochReport& report) {
           if (world.rank() == 0) curve.losses.push_back(report.loss), curve.last = report;
           return std::string();
         }});
    const auto predictions = predict(net, loader);
    RunningMean error;
    for (std::size_t i = 0; i < predictions.truth.size(); ++i)
      error.add(std::pow(predictions.predicted[i] - predictions.truth[i], 2));
    if (world.rank() == 0) curve.error = error.mean();
  });
  return curve;
}

double mean_of_last(const std::vector<double>& losses, std::size_t n) {
  RunningMean mean;
  for (std::size_t i = losses.size() - n; i < losses.size(); ++i) mean.add(losses[i]);
  return mean.mean();
}

}  // namespace

TEST_CASE("half: windows, products and softmax are float32 ones, rounded once") {
  for (const auto type : half_types) {
    CAPTURE(name_of(type));
    const auto check = [&](const auto& op, const Tensors& in) {
      Tensors in32;
      for (const auto& x : in) in32.push_back(wide(x));
      const auto found = apply_all(op, in), expected = apply_all(op, in32);
      for (std::size_t i = 0; i < found.size(); ++i) {
        CAPTURE(std::string(op.traits().name));
        const Tensor rounded = is_floating(expected[i].dtype()) ? cast(expected[i], type) : expected[i];
        // Processor instructions for products of bfloat16 may sum in another order.
        if (type == DType::bfloat16 && op.traits().name.starts_with("conv"))
          CHECK(relative(found[i].to_vector(), rounded.to_vector()) < 0x1p-9);
        else CHECK(same(found[i], rounded));
      }
    };
    const Tensor x = numbers({2, 7, 6, 5, 4}, type, 1), w = numbers({6, 3, 3, 3, 2}, type, 2), bias = numbers({6}, type, 3);
    const ConvAttributes a{.stride = 2, .padding = 1, .groups = 2};
    const Tensor g = numbers(local::conv(x, w, a).shape(), type, 4);
    check(ops::Conv{a}, {x, w});
    check(ops::ConvData{a, spatial_extent(x)}, {g, w});
    check(ops::ConvWeight{a, spatial_extent(w)}, {x, g});
    check(ops::ConvBiasActivation{a, 0.1}, {x, w, bias});
    check(ops::ConvBiasActivation{a, 0.1}, {x, w, {}});
    const PoolAttributes pool{.kernel = 3, .stride = 2, .padding = 1};
    const ops::Window window{.kernel = {3, 3, 3},
                             .stride = {2, 2, 2},
                             .dilation = {1, 1, 1},
                             .low = {1, 1, 1},
                             .in = {7, 6, 5},
                             .out = pool_outputs({7, 6, 5}, pool)};
    const auto pooled = apply_all(ops::MaxPool{window}, {x});
    const Tensor gp = numbers(pooled[0].shape(), type, 5);
    check(ops::MaxPool{window}, {x});
    check(ops::MaxPoolScatter{window}, {gp, pooled[1]});
    check(ops::MaxPoolGather{window}, {x, pooled[1]});
    check(ops::AvgPool{window}, {x});
    check(ops::AvgPoolAdjoint{window}, {gp});
    const Tensor m = numbers({9, 8}, type, 6), n = numbers({5, 8}, type, 7), b = numbers({5}, type, 8);
    check(ops::Matmul{{.transpose_b = true}}, {m, n});
    check(ops::Linear{0.3}, {m, n, b});
    check(ops::Linear{1}, {m, n, {}});
    check(ops::Softmax{}, {m});
    check(ops::LogSoftmax{}, {m});
    CHECK(max_pool(x, {.kernel = 2, .stride = 2}).dtype() == type);
  }
}

TEST_CASE("half: statistics of channels stay float32") {
  for (const auto type : half_types) {
    // Numbers around 100, which have few digits in 16 bits; their mean and variance are known to float32 precision.
    const Tensor x = cast(numbers({3, 40, 5}, DType::float32, 11) + 100, type), g = numbers({3, 40, 5}, type, 12);
    const auto found = channel_moments(x), expected = channel_moments(cast(x, DType::float64));
    CHECK(found.mean.type() == TensorType{{5}, DType::float32});
    CHECK(relative(found.mean.to_vector(), expected.mean.to_vector()) < 1e-7);
    CHECK(relative(found.m2.to_vector(), expected.m2.to_vector()) < 1e-7);
    const auto dots = apply_all(ops::ChannelDots{}, {g, x, found.mean});
    CHECK(same(dots[1], apply_all(ops::ChannelDots{}, {wide(g), wide(x), found.mean})[1]));
    const Tensor a = numbers({5}, DType::float32, 13), b = numbers({5}, DType::float32, 14);
    CHECK(same(channel_affine(x, found.mean, a, b), cast(channel_affine(wide(x), found.mean, a, b), type)));
    CHECK_THROWS_AS(channel_affine(x, found.mean, cast(a, type), b), Error);

    // The cotangent of x has the type of x, the others are float32.
    const auto gradients = [&](const Tensor& in, const Tensor& cotangent) {
      const Tensor v = in.as_variable(), gamma = a.as_variable(), beta = b.as_variable();
      Tape tape;
      const auto y = local::norm(v, gamma, beta, 1e-5).first;
      return tape.vjp({y}, {cotangent}, {v, gamma, beta});
    };
    const auto low = gradients(x, g), high = gradients(wide(x), wide(g));
    CHECK(low[0].type() == x.type());
    CHECK(same(low[1], high[1]));
    CHECK(same(low[2], high[2]));
    CHECK(relative(low[0].to_vector(), high[0].to_vector()) < (type == DType::bfloat16 ? 1e-2 : 2e-3));
  }
}

TEST_CASE("mixed precision: ranks combine float32 statistics, reduce float32 gradients and send 16-bit halos") {
  for (const int ranks : {2, 3, 4})
    check_on_ranks(ranks, "parts", [&](const Communicator& comm) {
      const auto layout = activation_layout(make_grid(comm, {.depth = ranks}), {2, 8, 4, 4, 3});
      const auto whole = cast(random_normal(layout->global, {5}, 100, 1), DType::bfloat16);
      const auto gamma = full({3}, 2), beta = full({3}, 1);
      const auto result = batch_norm(part_of(whole, layout), gamma, beta);
      const auto expected = channel_moments(cast(whole, DType::float64));
      require_close("mean", result.statistics.mean, cast(expected.mean, DType::float32), 1e-6);
      require_close("variance", result.statistics.variance, cast(expected.m2 / (2.0 * 8 * 4 * 4), DType::float32), 1e-5);

      // 256 + 1 + ... is not a bfloat16.
      const auto x = constant(full({1, 1}, comm.rank() == 0 ? 256 : 1, DType::bfloat16));
      const auto grid = make_grid(comm, {.sample = ranks});
      const auto rows = split_layout(grid, {ranks, 1}, {0, -1, -1, -1});
      const auto w = full({1, 1}, 3).as_variable();
      Tape tape;
      const auto shared = x.with_layout(rows);
      const auto y = linear(shared, w) + linear(shared, w);
      // The two casts are of the results: products use the weight as it is.
      require(y.dtype() == DType::bfloat16 && count(tape, "cast") == 2 && count(tape, "replicate") == 1,
              "[test] {}, {} casts, {} replicate", y, count(tape, "cast"), count(tape, "replicate"));
      const auto g = tape.gradient(sum(cast(y, DType::float32)), {w})[0];
      require(g.dtype() == DType::float32 && g.item() == 2.0 * (255 + ranks), "[test] {}", g.item());
    });
  const auto sent = [](std::optional<DType> compute) {
    CosmoFlow net(small());
    return describe(net, {1, 32, 32, 32, 4}, {.grid = {.depth = 4}, .compute = compute});
  };
  const auto full_width = sent(std::nullopt), half = sent(DType::bfloat16);
  CHECK(full_width.halo_bytes > 0);
  CHECK(half.halo_bytes * 2 == full_width.halo_bytes);
  CHECK(half.activation_bytes * 2 == full_width.activation_bytes);
  CHECK(has(to_string(half), "computed in bfloat16"));
}

TEST_CASE("mixed precision: gradients are those of float32 within the noise of 16 bits, on any grid") {
  const auto reference = gradient_of({}, DType::float32);
  const auto bf16 = gradient_of({}, DType::bfloat16), f16 = gradient_of({}, DType::float16, 1024);
  const double noise = relative(bf16.values, reference.values);
  CHECK(noise < 0.03);
  CHECK(relative(f16.values, reference.values) < noise / 4);  // three digits more
  CHECK(noise > 1e-3);                                        // it has computed in 16 bits
  for (const GridExtents& grid : {GridExtents{.depth = 2}, GridExtents{.sample = 2, .depth = 2},
                                  GridExtents{.depth = 2, .width = 2}, GridExtents{.sample = 4}}) {
    const auto found = gradient_of(grid, DType::bfloat16);
    CHECK(relative(found.values, bf16.values) < noise);
    CHECK(relative(found.values, reference.values) < 0.03);
    CHECK(found.loss == doctest::Approx(bf16.loss).epsilon(0.01));
    // The input of the first norm is the same except for a few roundings.
    for (const char* name : {"norm1.running_mean", "norm1.running_variance"})
      CHECK(relative(found.buffers.at(name), bf16.buffers.at(name)) < 1e-5);
  }
}

TEST_CASE("mixed precision: what does not go together is refused") {
  CosmoFlow net(small());
  CHECK(has(error_text([&] {
              net.build(Shape{1, 16, 16, 16, 1}, {.dtype = DType::float64, .compute = DType::bfloat16});
            }),
            "[module] with parameters of float64, layers compute in float64, not in bfloat16"));
  CHECK(has(error_text([&] {
              net.build(Shape{1, 16, 16, 16, 1}, {.compute = DType::float64});
            }),
            "[module] with parameters of float32, layers compute in float32, bfloat16 or float16, not in float64"));
}

TEST_CASE("mixed precision: CosmoFlow trains as in float32") {
  const auto reference = train({});
  CHECK(mean_of_last(reference.losses, 5) < 0.1 * reference.losses[0]);
  for (const auto type : half_types) {
    const auto curve = train(type);
    CAPTURE(name_of(type));
    CHECK(curve.losses[0] == doctest::Approx(reference.losses[0]).epsilon(0.1));
    for (std::size_t end = 5; end <= curve.losses.size(); end += 5) {
      const auto until = [&](const Curve& c) {
        return mean_of_last({c.losses.begin(), c.losses.begin() + static_cast<std::ptrdiff_t>(end)}, 5);
      };
      CHECK(std::abs(until(curve) - until(reference)) < 0.1 * reference.losses[0]);
    }
    CHECK(mean_of_last(curve.losses, 5) < 0.1 * curve.losses[0]);
    if (type == DType::bfloat16) CHECK(curve.last.loss_scale == 1);
  }
  // A start value that is far too large costs some steps, but has no other effect.
  const auto late = train(DType::float16, 0x1p30, 1);
  CHECK(late.last.skipped_steps >= 5);
  CHECK(late.last.loss_scale < 0x1p31);
  CHECK(mean_of_last(late.losses, 5) < 0.1 * late.losses[0]);
}
