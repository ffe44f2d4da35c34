// Fused ops against the equivalent separate ops: values, first and second derivatives, whole and on split grids; memory kept by a
// tape.

#include <cmath>
#include <limits>
#include <optional>

#include "comm/distributed/distributed.h"
#include "comm/distributed/invariant.h"
#include "models/nn/layers.h"
#include "ops/elementwise/activation.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/pool/pool_ops.h"
#include "ops/reduce/reduce.h"
#include "ops/views/to_device.h"
#include "tests/models/nn/layer_cases.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

// Convolution, bias, activation and pooling.
struct Block {
  Shape input, weight;
  ConvAttributes conv;
  PoolAttributes pool;
  bool maximum = false, bias = true;
  Activation activation = Activation::leaky_relu(0.25);
};

Extent3 three(Dice& dice, std::int64_t first, std::int64_t last) {
  return {dice(first, last), dice(first, last), dice(first, last)};
}

Block random_block(Dice& dice, bool maximum) {
  for (;;) {
    Block b{.input = {dice(1, 2), dice(4, 8), dice(4, 8), dice(4, 8), dice(1, 2)},
            .weight = {},
            .conv = {.stride = three(dice, 1, 2), .padding = Padding::sides(three(dice, 0, 1), three(dice, 0, 1))},
            .pool = {.kernel = three(dice, 1, 3), .stride = three(dice, 1, 3), .ceil_mode = dice(0, 1) == 1},
            .maximum = maximum,
            .bias = dice(0, 1) == 1,
            .activation = dice(0, 2) == 0 && !maximum ? Activation::relu : Activation::leaky_relu(0.25)};
    const auto k = three(dice, 1, 3);
    b.weight = {dice(1, 2) * (dice(0, 1) ? 4 : 3), k[0], k[1], k[2], b.input[4]};
    for (std::size_t i = 0; i < 3; ++i)
      b.pool.padding.low[i] = dice(0, b.pool.kernel[i] / 2), b.pool.padding.high[i] = dice(0, b.pool.kernel[i] / 2);
    Extent3 between{};
    bool fits = true;
    for (std::size_t i = 0; i < 3; ++i) {
      between[i] = window_outputs(b.input[static_cast<int>(i) + 1], k[i], b.conv.stride[i], 1, b.conv.padding.low[i],
                                  b.conv.padding.high[i]);
      fits = fits && between[i] > 0;
    }
    if (!fits) continue;
    const auto out = pool_outputs(between, b.pool);
    if (out[0] * out[1] * out[2] > 0) return b;
  }
}

Tensor plain(const Block& b, const Tensors& in) {
  auto y = local::conv(in[0], in[1], b.conv);
  if (b.bias) y = y + in[2];
  y = activate(y, b.activation);
  return b.maximum ? local::max_pool(y, b.pool) : local::avg_pool(y, b.pool);
}
Tensor fused(const Block& b, const Tensors& in) {
  const auto bias = b.bias ? in[2] : Tensor();
  const auto y = conv(in[0], in[1], b.maximum ? Tensor() : bias, b.conv);
  return b.maximum ? bias_activation(max_pool(y, b.pool), bias, b.activation) : avg_pool(y, b.pool, b.activation);
}

struct Result {
  Tensor y;
  Tensors first, second;
};
Tensor weights_like(const Tensor& y, std::uint64_t seed) {
  return constant(global_tensor(y.layout() ? y.layout()->global : y.shape(), seed, y.layout()));
}
// Derivatives of a random weighted sum of values and squares, and derivatives of the sum of squares of these.
Result derivatives(const TensorFunction& f, const Tensors& in) {
  Tape tape;
  const auto y = f(in)[0];
  auto first = tape.gradient(sum(y * weights_like(y, 3)) + sum(square(y) * weights_like(y, 4)), in, Record::yes);
  Tensor objective = sum(square(first[0]) * weights_like(first[0], 5));
  for (std::size_t i = 1; i < first.size(); ++i) {
    const auto term = sum(square(first[i]));
    objective = objective + (objective.layout() ? once(term, objective) : term);
  }
  auto second = tape.gradient(objective, in);
  return {y, std::move(first), std::move(second)};
}
void require_equal(const std::string& what, const Result& found, const Result& expected, double second_tolerance = 1e-12) {
  const auto mine = [](const Tensor& x, const LayoutPtr& layout) { return layout ? part_of(x, layout) : x; };
  require_close(what + ": value", found.y, mine(expected.y, found.y.layout()), 1e-12);
  for (std::size_t i = 0; i < found.first.size(); ++i) {
    require_close(fmt::format("{}: gradient {}", what, i), found.first[i], mine(expected.first[i], found.first[i].layout()),
                  1e-12);
    require_close(fmt::format("{}: second derivative {}", what, i), found.second[i],
                  mine(expected.second[i], found.second[i].layout()), second_tolerance);
  }
}

void check_blocks(bool maximum, int cases, std::optional<Activation> activation = {}) {
  for (const int size : {1, 2, 3, 4, 6})
    check_on_ranks(size, maximum ? "maximum" : "average", [&](const Communicator& comm) {
      for (int i = 0; i < cases; ++i) {
        Dice dice(static_cast<std::uint64_t>(comm.size() * 1000 + i));
        auto block = random_block(dice, maximum);
        if (activation) block.activation = *activation;
        const auto what = fmt::format("block {} on rank {}", i, comm.rank());
        Tensors whole{global_tensor(block.input, 1), global_tensor(block.weight, 2)};
        if (block.bias) whole.push_back(global_tensor({block.weight[0]}, 6));
        const auto expected = derivatives([&](const Tensors& in) { return Tensors{plain(block, in)}; }, whole);
        const auto of_fused = [&](const Tensors& in) { return Tensors{fused(block, in)}; };
        require_equal(what + ", whole", derivatives(of_fused, whole), expected);
        auto mine = whole;
        mine[0] = global_tensor(block.input, 1, random_layout(comm, dice, block.input));
        require_equal(what + ", split", derivatives(of_fused, mine), expected, 1e-11);
      }
    });
}

}  // namespace

TEST_CASE("fused: average pooling behind an activation") { check_blocks(false, 20); }
TEST_CASE("fused: average pooling behind an activation that is an op of its own") { check_blocks(false, 3, Activation::gelu); }
TEST_CASE("fused: bias and activation behind max pooling") { check_blocks(true, 20); }

TEST_CASE("fused: what max pooling and activation make of ties, infinities and NaN does not depend on their order") {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const double special[] = {0, -0.0, 1, 1, -1, -1, NAN, infinity, -infinity, 2};
  Dice dice(3);
  std::vector<double> values;
  for (int i = 0; i < 3 * 6 * 6 * 6 * 2; ++i) values.push_back(special[dice(0, 9)]);
  const auto x = from_vector({3, 6, 6, 6, 2}, values, DType::float64).as_variable(),
             bias = from_vector({2}, {0.5, -1}, DType::float64).as_variable();
  const PoolAttributes pool{.kernel = 2, .stride = 2};
  const auto run = [&](bool pool_first) {
    Tape tape;
    const auto y = pool_first ? local::bias_activation(local::max_pool(x, pool), bias, Activation::leaky_relu(0.3))
                              : local::max_pool(leaky_relu(x + bias, 0.3), pool);
    auto result = tape.vjp({y}, {weights_like(y, 1)}, {x, bias});
    result.push_back(y);
    return result;
  };
  const auto first = run(true), last = run(false);
  for (std::size_t i = 0; i < first.size(); ++i) {
    const auto a = first[i].to_vector(), b = last[i].to_vector();
    for (std::size_t j = 0; j < a.size(); ++j) {
      CAPTURE(i);
      CAPTURE(j);
      CHECK((a[j] == doctest::Approx(b[j]).epsilon(1e-12) || a[j] == b[j] || (std::isnan(a[j]) && std::isnan(b[j]))));
    }
  }
}

TEST_CASE("fused: signs are those of x, and NaN passes") {
  const std::vector<double> values{1, -1, 0, -0.0, NAN, std::numeric_limits<double>::infinity(), -2, 3, 4, -5, 6};
  for (const DType type : {DType::float64, DType::float32}) {
    const auto x = from_vector({1, 1, 1, 1, 11}, values, type);
    const auto signs = apply_all(ops::LeakyAvgPool{{.in = {1, 1, 1}, .out = {1, 1, 1}}, 0.5}, {x})[1];
    CHECK(signs.to_vector() == std::vector<double>{0b10110001, 0b00000101});
  }
  // Inputs that no window reads have signs, too; without outputs no gradient depends on them.
  const auto x = from_vector({1, 1, 1, 5, 1}, {-1, 2, 3, -4, 5}, DType::float64);
  const auto wide = apply_all(ops::LeakyAvgPool{{.stride = {1, 1, 4}, .in = {1, 1, 5}, .out = {1, 1, 1}}, 0.5}, {x})[1];
  CHECK(wide.to_vector() == std::vector<double>{0, 1, 1, 0, 1});
  const auto none = apply_all(ops::LeakyAvgPool{{.in = {1, 1, 5}, .out = {1, 1, 0}}, 0.5}, {x})[1];
  CHECK(none.to_vector() == std::vector<double>(5, 0));
}

TEST_CASE("fused: norm and activation, linear and convolution with bias") {
  const auto apart = [](const Tensor& x) { return x + sign(x) * 0.1; };
  const Tensors in{global_tensor({2, 3, 4, 5, 6}, 1), global_tensor({6}, 2), global_tensor({6}, 3)};
  const auto compare = [&](const std::string& what, const TensorFunction& found, const TensorFunction& expected,
                           const Tensors& x) { require_equal(what, derivatives(found, x), derivatives(expected, x)); };
  for (const auto activation : {Activation::none, Activation::relu, Activation::leaky_relu(0.2), Activation::elu(0.7),
                                Activation::gelu, Activation::gelu_tanh, Activation::silu, Activation::sigmoid, Activation::tanh,
                                Activation::softplus, Activation::hard_swish}) {
    CAPTURE(to_string(activation));
    CHECK_NOTHROW(compare(
        "batch norm", [&](const Tensors& x) { return Tensors{local::norm(x[0], x[1], x[2], 1e-2, activation).first}; },
        [&](const Tensors& x) { return Tensors{activate(local::norm(x[0], x[1], x[2], 1e-2).first, activation)}; }, in));
    CHECK_NOTHROW(compare(
        "bias", [&](const Tensors& x) { return Tensors{local::bias_activation(x[0], x[1], activation)}; },
        [&](const Tensors& x) { return Tensors{activate(x[0] + x[1], activation)}; }, in));
    const Tensors of_conv{apart(global_tensor({2, 3, 4, 3, 2}, 4)), global_tensor({7, 2, 2, 2, 2}, 5), global_tensor({7}, 6)};
    CHECK_NOTHROW(compare(
        "convolution", [&](const Tensors& x) { return Tensors{local::conv_bias_activation(x[0], x[1], x[2], activation)}; },
        [&](const Tensors& x) { return Tensors{activate(local::conv(x[0], x[1]) + x[2], activation)}; }, of_conv));
    const Tensors of_linear{global_tensor({5, 6}, 7), global_tensor({4, 6}, 8), global_tensor({4}, 9)};
    CHECK_NOTHROW(compare(
        "linear", [&](const Tensors& x) { return Tensors{local::linear(x[0], x[1], x[2], activation)}; },
        [&](const Tensors& x) { return Tensors{activate(local::linear(x[0], x[1], x[2]), activation)}; }, of_linear));
    const PoolAttributes pool{.kernel = 3, .stride = 2, .padding = Padding::sides(1, 0)};
    CHECK_NOTHROW(compare(
        "average pooling", [&](const Tensors& x) { return Tensors{local::activated_avg_pool(x[0], activation, pool)}; },
        [&](const Tensors& x) { return Tensors{local::avg_pool(activate(x[0], activation), pool)}; }, {of_conv[0]}));
  }
}

TEST_CASE("fused: a tape keeps signs or places of the large tensor, not the tensor") {
  struct Net : nn::Module {
    nn::Pooling pooling;
    nn::Conv3d conv{*this, "conv", {.out = 32, .kernel = 3, .padding = 1, .activation = Activation::leaky_relu(0.3)}};
    explicit Net(nn::Pooling of) : pooling(of) {}
    Tensor operator()(const Tensor& x) override { return conv.pooled(x, "pool", pooling, {.kernel = 2, .stride = 2}); }
  };
  for (const auto pooling : {nn::Pooling::average, nn::Pooling::maximum}) {
    Net net(pooling);
    net.build(Shape{1, 16, 16, 16, 4}, {.seed = 1});
    const auto x = constant(global_tensor({1, 16, 16, 16, 4}, 1, {}, DType::float32));
    constexpr std::int64_t large = std::int64_t{16} * 16 * 16 * 32 * 4, pooled = large / 8;
    Tape tape(net);
    const auto before = memory_statistics(DeviceKind::cpu).current_bytes;
    const auto y = net(x);
    const auto kept = memory_statistics(DeviceKind::cpu).current_bytes - before;
    CHECK(kept <= pooled + std::max(large / 32, pooled) + 4096);
    CHECK(kept >= pooled + large / 32);
    CHECK(tape.gradient(sum(y)).size() == 2);
  }
}
