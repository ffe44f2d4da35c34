// Values of ops, calculated by hand, and messages of refusals. For derivatives see op_derivatives_test.cpp.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "comm/distributed/upsample.h"
#include "ops/conv/conv.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/loss/loss.h"
#include "ops/norm/channel_norm.h"
#include "ops/pool/pool.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"
#include "tests/support/relative_error.h"

using namespace mpigrad;

namespace {

constexpr auto f64 = DType::float64;
constexpr double infinity = std::numeric_limits<double>::infinity();

Tensor vector(std::initializer_list<double> values, DType dtype = f64) {
  return from_vector({static_cast<std::int64_t>(values.size())}, values, dtype);
}

// [1, 1, 1, n, 1]
Tensor line(std::initializer_list<double> values) {
  return reshape(vector(values), {1, 1, 1, static_cast<std::int64_t>(values.size()), 1});
}

void check(const Tensor& x, const Shape& shape, std::initializer_list<double> expected) {
  CHECK(x.shape() == shape);
  const auto values = x.to_vector();
  REQUIRE(values.size() == expected.size());
  std::size_t i = 0;
  for (const double value : expected) {
    CAPTURE(i);
    if (std::isnan(value)) CHECK(std::isnan(values[i]));
    else if (std::isinf(value)) CHECK(values[i] == value);
    else CHECK(values[i] == doctest::Approx(value).epsilon(1e-6));
    ++i;
  }
}
void check(const Tensor& x, std::initializer_list<double> expected) {
  check(x, {static_cast<std::int64_t>(expected.size())}, expected);
}

}  // namespace

#define CHECK_REFUSED(expression, text) CHECK_THROWS_WITH_AS(expression, text, Error)

TEST_CASE("ops: elementwise values") {
  for (const auto dtype : {DType::float32, f64}) {
    const auto x = vector({-2, -0.5, 0, 0.5, 2}, dtype);
    check(affine(x, 2, 1), {-3, 0, 1, 2, 5});
    check(exp(x), {std::exp(-2.0), std::exp(-0.5), 1, std::exp(0.5), std::exp(2.0)});
    check(abs(x), {2, 0.5, 0, 0.5, 2});
    check(sign(x), {-1, -1, 0, 1, 1});
    check(floor(x), {-2, -1, 0, 0, 2});
    check(ceil(x), {-2, 0, 0, 1, 2});
    check(relu(x), {0, 0, 0, 0.5, 2});
    check(leaky_relu(x, 0.1), {-0.2, -0.05, 0, 0.5, 2});
    check(clamp(x, -1, 0.5), {-1, -0.5, 0, 0.5, 0.5});
    check(sigmoid(vector({-1000, 0, 1000}, dtype)), {0, 0.5, 1});
    check(softplus(vector({-1000, 0, 1000}, dtype)), {0, std::log(2.0), 1000});
    check(tanh(vector({-1000, 1000}, dtype)), {-1, 1});
    check(erf(vector({0, 1}, dtype)), {0, 0.8427007929});
    check(pow(vector({-2, 3}, dtype), 3), {-8, 27});
    check(pow(vector({2, 9}, dtype), vector({10, 0.5}, dtype)), {1024, 3});
    check(reciprocal(vector({4, -0.5}, dtype)), {0.25, -2});
    check(expm1(vector({1e-10}, dtype)) * 1e10, {1});
    check(log1p(vector({1e-10}, dtype)) * 1e10, {1});
    check(1 - 2 / vector({4, 1}, dtype), {0.5, -1});
    check(relu(vector({NAN}, dtype)), {NAN});
  }
}

TEST_CASE("ops: broadcasting") {
  const auto a = from_vector({2, 1}, {10, 20}, f64), b = vector({1, 2, 3});
  check(a + b, {2, 3}, {11, 12, 13, 21, 22, 23});
  check(b - a, {2, 3}, {-9, -8, -7, -19, -18, -17});
  check(a * full({}, 2, f64), {2, 1}, {20, 40});
  check(full({}, 1, f64) / from_vector({1, 2, 1}, {2, 4}, f64), {1, 2, 1}, {0.5, 0.25});
  CHECK((ones({0, 3}) + ones({3})).shape() == Shape{0, 3});
  CHECK((ones({0, 1}) + ones({3})).shape() == Shape{0, 3});
  CHECK_REFUSED(ones({2, 3}) + ones({2}), "[add] shapes do not broadcast: [2, 3] and [2]");
  CHECK_REFUSED(ones({2}) + arange(2), "[add] element types differ, cast() one of them: float32 [2] and int64 [2]");
  CHECK_REFUSED(exp(arange(3)), "[exp] needs floating-point elements: int64 [3]");
  CHECK_REFUSED(leaky_relu(ones({1}), -1), "[leaky_relu] the slope is not negative, got -1");
  CHECK_REFUSED(clamp(ones({1}), 1, 0), "[clamp] low 1 is above high 0");
}

TEST_CASE("ops: integers, comparisons, where, cast") {
  check(arange(4) + arange(4), {0, 2, 4, 6});
  check(vector({7, 8}, DType::int32) * vector({2, 3}, DType::int32), {14, 24});
  const auto a = vector({1, 2, 3}), b = vector({3, 2, 1});
  check(less(a, b), {1, 0, 0});
  check(less_equal(a, b), {1, 1, 0});
  check(greater(a, b), {0, 0, 1});
  check(equal(a, b), {0, 1, 0});
  check(not_equal(a, b), {1, 0, 1});
  check(logical_and(less_equal(a, b), less_equal(b, a)), {0, 1, 0});
  check(logical_or(less(a, b), less(b, a)), {1, 0, 1});
  check(logical_not(less(a, b)), {0, 1, 1});
  check(where(less(a, b), a, full({}, -1, f64)), {1, -1, -1});
  check(maximum(a, b), {3, 2, 3});
  check(minimum(a, b), {1, 2, 1});
  check(cast(vector({1.7, -1.7, 0}), DType::int32), {1, -1, 0});
  check(cast(vector({2, 0}), DType::boolean), {1, 0});
  CHECK(less(a, b).dtype() == DType::boolean);
  CHECK_REFUSED(where(a, a, b), "[where] the condition is boolean: float64 [3]");
}

TEST_CASE("ops: reductions") {
  const auto x = from_vector({2, 3}, {1, 5, 3, 4, 2, 6}, f64);
  check(sum(x), {}, {21});
  check(sum(x, {0}), {5, 7, 9});
  check(sum(x, {-1}, true), {2, 1}, {9, 12});
  check(sum(x, {}), {2, 3}, {1, 5, 3, 4, 2, 6});
  check(mean(x, {1}), {3, 4});
  check(max(x, {1}), {5, 6});
  check(min(x, {0}, true), {1, 3}, {1, 2, 3});
  check(max(x), {}, {6});
  check(argmax(x, 1), {1, 2});
  check(argmax(x, 0), {1, 0, 1});
  check(argmax(vector({2, 7, 7}), 0), {}, {1});
  check(sum(ones({0, 3}), {0}), {0, 0, 0});
  check(sum(ones({0})), {}, {0});
  check(dot(vector({1, 2}), vector({3, 4})), {}, {11});
  check(broadcast_to(vector({1, 2}), {2, 2}), {2, 2}, {1, 2, 1, 2});
  // float32 sums accumulate in double
  CHECK(sum(ones({1 << 25})).item() == 1 << 25);
  CHECK_REFUSED(max(ones({0})), "[max/min] of nothing, dimension 0 is empty: float32 [0]");
  CHECK_REFUSED(argmax(ones({2, 0}), 1), "[argmax] of nothing, dimension 1 is empty: float32 [2, 0]");
  CHECK_REFUSED(sum(x, {2}), "[sum] dimension 2 is outside a tensor of 2 dimensions");
  CHECK_REFUSED(sum(x, {1, -1}), "[sum] a dimension is named twice: 1, -1");
  CHECK_REFUSED(broadcast_to(vector({1, 2}), {3}), "[broadcast_to] shapes do not broadcast: [2] and [3]");
  CHECK_REFUSED(dot(ones({2}), ones({1})), "[dot] shapes differ: float32 [2] and float32 [1]");
}

TEST_CASE("ops: ties share the cotangent of an extremum, equal operands share theirs") {
  const auto x = vector({2, 7, 7});
  Tape tape;
  check(tape.gradient(max(x), {x})[0], {0, 0.5, 0.5});
  Tape second;
  const auto y = vector({2, 1, 9});
  const auto z = sum(maximum(x, y) * 3);
  const auto g = second.gradient(z, {x, y});
  check(g[0], {1.5, 3, 0});
  check(g[1], {1.5, 0, 3});
}

TEST_CASE("ops: views") {
  const auto x = from_vector({2, 3}, {1, 2, 3, 4, 5, 6}, f64);
  check(reshape(x, {3, -1}), {3, 2}, {1, 2, 3, 4, 5, 6});
  CHECK(reshape(x, {6}).storage() == x.storage());
  check(transpose(x), {3, 2}, {1, 4, 2, 5, 3, 6});
  check(permute(reshape(x, {1, 2, 3}), {2, 0, -2}), {3, 1, 2}, {1, 4, 2, 5, 3, 6});
  check(slice(x, {0, 1}, {2, 3}), {2, 2}, {2, 3, 5, 6});
  check(slice(x, {0, 0}, {2, 3}, {1, 2}), {2, 2}, {1, 3, 4, 6});
  check(slice(x, -1, 1, 2), {2, 1}, {2, 5});
  check(pad(vector({1, 2}), {1}, {2}, 9), {9, 1, 2, 9, 9});
  check(concatenate({x, x}, 0), {4, 3}, {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6});
  check(concatenate({x, from_vector({2, 1}, {8, 9}, f64)}, -1), {2, 4}, {1, 2, 3, 8, 4, 5, 6, 9});
  check(flip(x, {1}), {2, 3}, {3, 2, 1, 6, 5, 4});
  check(flip(x, {0, 1}), {2, 3}, {6, 5, 4, 3, 2, 1});
  check(take(x, vector({1, 0, 1}, DType::int64)), {3, 3}, {4, 5, 6, 1, 2, 3, 4, 5, 6});
  check(scatter_add(x, vector({2, 2}, DType::int64), 3), {3, 3}, {0, 0, 0, 0, 0, 0, 5, 7, 9});
  check(one_hot(vector({1, 5, -1}, DType::int64), 2), {3, 2}, {0, 1, 0, 0, 0, 0});
  check(squeeze(reshape(x, {2, 1, 3, 1}), {1, 3}), {2, 3}, {1, 2, 3, 4, 5, 6});
  CHECK(unsqueeze(x, -1).shape() == Shape{2, 3, 1});
  check(flip(arange(3), {0}), {2, 1, 0});
  check(concatenate({less(x, x), less(x, x + 1)}, 0), {4, 3}, {0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1});
}

TEST_CASE("ops: views refuse by name") {
  const auto x = ones({2, 3});
  CHECK_REFUSED(reshape(x, {4, -1}), "[reshape] float32 [2, 3] does not fit [4, -1]");
  CHECK_REFUSED(reshape(x, {-1, -1}), "[reshape] only one extent may be -1: [-1, -1]");
  CHECK_REFUSED(reshape(x, Shape{5}), "[reshape] 6 elements into [5]: float32 [2, 3]");
  CHECK_REFUSED(permute(x, {0, 0}), "[permute] (0, 0) is not a permutation of the dimensions of float32 [2, 3]");
  CHECK_REFUSED(transpose(ones({2})), "[transpose] a matrix is needed: float32 [2]");
  CHECK_REFUSED(slice(x, 1, 1, 4), "[slice] 1:4:1 is outside dimension 1 of float32 [2, 3]");
  CHECK_REFUSED(squeeze(x, {0}), "[squeeze] dimension 0 is not 1: float32 [2, 3]");
  CHECK_REFUSED(concatenate({x, ones({3, 2})}, 0),
                "[concatenate] parts differ outside dimension 0: float32 [2, 3] and float32 [3, 2]");
  CHECK_REFUSED(concatenate({}, 0), "[concatenate] of nothing");
  CHECK_REFUSED(take(x, arange(2, DType::int32)), "[take] indices are int64 and one-dimensional: int32 [2]");
  CHECK_REFUSED(scatter_add(x, arange(3), 4), "[scatter_add] one index for each row: float32 [2, 3] and int64 [3]");
  CHECK_THROWS_AS(take(x, vector({2}, DType::int64)), Error);
  CHECK_THROWS_AS(scatter_add(x, vector({0, -1}, DType::int64), 4), Error);
  CHECK_THROWS_AS(pad(x, {1}, {1}), Error);
}

TEST_CASE("ops: matrices") {
  const auto a = from_vector({2, 3}, {1, 2, 3, 4, 5, 6}, f64), b = from_vector({3, 2}, {1, 0, 0, 1, 1, 1}, f64);
  check(matmul(a, b), {2, 2}, {4, 5, 10, 11});
  check(matmul(a, a, {.transpose_b = true}), {2, 2}, {14, 32, 32, 77});
  check(matmul(a, a, {.transpose_a = true}), {3, 3}, {17, 22, 27, 22, 29, 36, 27, 36, 45});
  check(matmul(reshape(a, {2, 1, 3}), reshape(a, {2, 3, 1})), {2, 1, 1}, {14, 77});
  check(matmul(ones({2, 0}), ones({0, 2})), {2, 2}, {0, 0, 0, 0});
  check(local::linear(a, from_vector({2, 3}, {1, 0, 0, 0, -1, 0}, f64), vector({10, 1}), Activation::leaky_relu(0.5)), {2, 2},
        {11, -0.5, 14, -2});
  CHECK_REFUSED(matmul(a, a), "[matmul] inner extents differ, 3 and 2: float64 [2, 3] and float64 [2, 3]");
  CHECK_REFUSED(matmul(a, full({}, 1, f64)), "[matmul] operands have at least two dimensions: float64 [2, 3] and float64 []");
  CHECK_REFUSED(matmul(ones({2, 1, 1}), ones({3, 1, 1})), "[matmul] shapes do not broadcast: [2] and [3]");
  CHECK_REFUSED(local::linear(a, b), "[linear] weight has 2 inputs, x has 3: x float64 [2, 3], weight float64 [3, 2]");
  CHECK_REFUSED(local::linear(a, ones({2, 3}, f64), vector({1})),
                "[linear] bias has one element for each of 2 outputs, of the weight's type float64: float64 [1]");
  CHECK_REFUSED(local::linear(a, ones({1, 3}, f64), ones({1})),
                "[linear] bias has one element for each of 1 outputs, of the weight's type float64: float32 [1]");
  CHECK_REFUSED(logsumexp(arange(2), {0}), "[logsumexp] needs floating-point elements: int64 [2]");
}

TEST_CASE("ops: convolutions of a line") {
  const auto x = line({1, 2, 3, 4, 5}), w = line({1, 10});
  const auto values = [](const Tensor& y) { return reshape(y, {-1}); };
  check(values(local::conv(x, w)), {21, 32, 43, 54});
  check(values(local::conv(x, w, {.stride = {1, 1, 2}})), {21, 43});
  check(values(local::conv(x, w, {.dilation = {1, 1, 3}})), {41, 52});
  check(values(local::conv(x, w, {.padding = Padding::sides({0, 0, 1}, {0, 0, 2})})), {10, 21, 32, 43, 54, 5, 0});
  check(values(local::conv(x, w, {.padding = {0, 0, -1}})), {32, 43});
  check(values(local::conv_bias_activation(x, w, vector({-40}), Activation::leaky_relu(0.1))), {-1.9, -0.8, 3, 14});
  check(values(conv_data(line({1, 2}), w, {1, 1, 3})), {1, 12, 20});
  check(values(conv_weight(x, line({1, 0, 0, 1}), {1, 1, 2})), {5, 7});
  check(values(local::conv_transpose(line({1, 2}), w, {.stride = {1, 1, 2}})), {1, 10, 2, 20});
  check(values(local::conv_transpose(
            line({1, 2}), w, {.stride = {1, 1, 3}, .padding = Padding::sides({0, 0, 1}, 0), .output_padding = {0, 0, 2}})),
        {10, 0, 2, 20, 0, 0});
  CHECK_REFUSED(local::conv(ones({8, 32, 32, 32, 4}), ones({16, 3, 3, 3, 3})),
                "[conv] weight has 3 input channels, input has 4: input [8, 32, 32, 32, 4], weight [16, 3, 3, 3, 3], groups 1");
  CHECK_REFUSED(local::conv(ones({1, 2, 2, 2, 4}), ones({3, 1, 1, 1, 2}), {.groups = 2}),
                "[conv] 3 output channels are not a multiple of 2 groups: weight [3, 1, 1, 1, 2]");
  CHECK_REFUSED(local::conv(x, w, {.stride = {1, 0, 1}}),
                "[conv] kernel, stride and dilation are at least 1: (1, 1, 2), (1, 0, 1), (1, 1, 1)");
  CHECK_REFUSED(local::conv(ones({2, 2}), ones({2, 2})),
                "[conv] operands have five dimensions, channels last: float32 [2, 2] and float32 [2, 2]");
  CHECK_THROWS_AS(conv_data(line({1, 2}), w, {1, 1, 4}), Error);
  CHECK_THROWS_AS(conv_weight(x, line({1}), {1, 1, 2}), Error);
}

TEST_CASE("ops: pools of a line") {
  const auto x = line({1, 5, 3, 4, 2});
  const auto values = [](const Tensor& y) { return reshape(y, {-1}); };
  check(values(local::max_pool(x, {.kernel = {1, 1, 2}, .stride = {1, 1, 2}})), {5, 4});
  check(values(local::max_pool(x, {.kernel = {1, 1, 2}, .stride = {1, 1, 2}, .ceil_mode = true})), {5, 4, 2});
  check(values(local::max_pool(x * -1, {.kernel = {1, 1, 3}, .stride = {1, 1, 2}, .padding = {0, 0, 1}})), {-1, -3, -2});
  check(values(max_pool_with_winner(x, {.kernel = {1, 1, 3}}).second), {1, 0, 1});
  check(values(local::avg_pool(x, {.kernel = {1, 1, 2}, .stride = {1, 1, 2}})), {3, 3.5});
  const PoolAttributes padded{.kernel = {1, 1, 3}, .stride = {1, 1, 2}, .padding = {0, 0, 1}};
  check(values(local::avg_pool(x, padded)), {2, 4, 2});
  auto without = padded;
  without.count_include_pad = false;
  check(values(local::avg_pool(x, without)), {3, 4, 3});
  // The last, partial window divides by its size inside the padded input.
  check(values(local::avg_pool(x, {.kernel = {1, 1, 2}, .stride = {1, 1, 2}, .ceil_mode = true})), {3, 3.5, 2});
  CHECK(pool_outputs({5, 6, 7}, {.kernel = 2, .stride = 2}) == Extent3{2, 3, 3});
  CHECK(pool_outputs({5, 6, 7}, {.kernel = 2, .stride = 2, .ceil_mode = true}) == Extent3{3, 3, 4});
  CHECK(pool_outputs({3, 4, 5}, {.kernel = 2, .stride = 2, .padding = Padding::sides(0, 2), .ceil_mode = true}) ==
        Extent3{2, 3, 3});
  // The first of equal maxima takes the whole cotangent.
  const auto tied = line({7, 7});
  Tape tape;
  check(values(tape.gradient(sum(local::max_pool(tied, {.kernel = {1, 1, 2}})), {tied})[0]), {1, 0});
  CHECK_REFUSED(local::max_pool(ones({2}), {}), "[pool] needs [N, D, H, W, C]: float32 [2]");
  CHECK_REFUSED(local::max_pool(x, {.kernel = 0}),
                "[pool] kernel, stride and dilation are at least 1: (0, 0, 0), (1, 1, 1), (1, 1, 1)");
}

TEST_CASE("ops: statistics and normalisation per channel") {
  const auto x = from_vector({4, 2}, {1, 10, 2, 10, 3, 10, 6, 10}, f64);
  const auto moments = channel_moments(x);
  check(moments.mean, {3, 10});
  check(moments.m2, {14, 0});
  const auto [y, statistics] = local::norm(x, vector({2, 1}), vector({0, 5}), 0);
  check(statistics.variance, {3.5, 0});
  check(slice(y, 1, 0, 1), {4, 1}, {-4 / std::sqrt(3.5), -2 / std::sqrt(3.5), 0, 6 / std::sqrt(3.5)});
  check(local::normalise(x, {vector({1, 0}), vector({3, 99})}, vector({1, 1}), vector({0, 0}), 1), {4, 2},
        {0, 1, 0.5, 1, 1, 1, 2.5, 1});
  // One number for all channels gets the sum of their cotangents.
  const auto gradients = [&](const Tensor& gamma) {
    Tape tape;
    const auto scaled = local::norm(x, gamma, vector({0, 5}), 1).first;
    return tape.gradient(sum(scaled * x), {x, gamma});
  };
  const auto of_each = gradients(vector({2, 2})), of_all = gradients(vector({2}));
  check(of_all[1], {of_each[1].to_vector()[0] + of_each[1].to_vector()[1]});
  CHECK(testing::relative_error(of_all[0].to_vector(), of_each[0].to_vector()) < 1e-12);
  check(channel_moments(ones({0, 2})).m2, {0, 0});
  // Sums of squares would lose all digits here.
  check(channel_moments(from_vector({4, 1}, {1e6, 1e6 + 1, 1e6 + 2, 1e6 + 3})).m2, {5});
  CHECK_REFUSED(channel_affine(x, ones({2}, f64), ones({3}, f64), ones({2}, f64)),
                "[channel_affine] one value for each of 2 channels: float64 [3] for float64 [4, 2]");
}

TEST_CASE("ops: softmax of extreme values") {
  for (const auto dtype : {DType::float32, f64}) {
    check(softmax(vector({1000, 1000, -1000}, dtype)), {0.5, 0.5, 0});
    check(log_softmax(vector({1000, 0}, dtype)), {0, -1000});
    check(logsumexp(vector({1000, 1000}, dtype), {0}), {}, {1000 + std::log(2.0)});
    check(logsumexp(vector({-infinity, 3}, dtype), {0}), {}, {3});
    check(logsumexp(vector({-infinity, -infinity}, dtype), {0}), {}, {-infinity});
    check(logsumexp(vector({infinity, 0}, dtype), {0}), {}, {infinity});
    check(softmax(from_vector({2, 2}, {0, 0, std::log(3.0), 0}, dtype), 0), {2, 2}, {0.25, 0.5, 0.75, 0.5});
  }
  CHECK_REFUSED(softmax(ones({2}), 1), "[softmax] dimension 1 is outside a tensor of 1 dimensions");
  CHECK_REFUSED(softmax(arange(2)), "[softmax] needs floating-point elements and a dimension: int64 [2]");
}

TEST_CASE("ops: losses") {
  const auto p = vector({1, 2, 5}), t = vector({1, 4, 4});
  check(mse(p, t), {}, {5.0 / 3});
  check(mae(p, t), {}, {1});
  check(mae(p, t, Reduction::sum), {}, {3});
  check(mse(p, t, Reduction::none), {0, 4, 1});
  const auto scores = log(from_vector({3, 2}, {0.25, 0.75, 0.5, 0.5, 0.9, 0.1}, f64));
  const auto labels = vector({1, 0, 1}, DType::int64);
  const double a = -std::log(0.75), b = -std::log(0.5), c = -std::log(0.1);
  check(cross_entropy(scores, labels, {.reduction = Reduction::none}), {a, b, c});
  check(cross_entropy(scores, labels), {}, {(a + b + c) / 3});
  check(cross_entropy(scores, labels, {.ignore_index = 0}), {}, {(a + c) / 2});
  check(cross_entropy(scores, labels, {.weights = vector({3, 1})}), {}, {(a + 3 * b + c) / 5});
  check(cross_entropy(scores, labels, {.weights = vector({3, 1}), .reduction = Reduction::sum}), {}, {a + 3 * b + c});
  check(cross_entropy(scores, vector({7, 7, 7}, DType::int64), {.ignore_index = 7}), {}, {0});
  check(negative_log_likelihood(scores, cast(labels, DType::int32)), {}, {(a + b + c) / 3});
  for (const auto dtype : {DType::float32, f64}) {
    const auto logits = vector({0, 1000, -1000}, dtype), target = vector({1, 1, 1}, dtype);
    check(binary_cross_entropy_with_logits(logits, target, Reduction::none), {std::log(2.0), 0, 1000});
    check(binary_cross_entropy(vector({0.5, 1, 0}, dtype), target, Reduction::none), {std::log(2.0), 0, 100});
    check(binary_cross_entropy(vector({0.25, 1}, dtype), vector({0, 0}, dtype), Reduction::none), {-std::log(0.75), 100});
    const auto p0 = vector({0, 1, 0.5}, dtype);
    Tape tape;
    check(tape.gradient(binary_cross_entropy(p0, target, Reduction::sum), {p0})[0], {0, -1, -2});
  }
  CHECK_REFUSED(mse(p, ones({2}, f64)), "[mse] shapes differ: prediction float64 [3], target float64 [2]");
  CHECK_REFUSED(
      cross_entropy(scores, ones({3, 2})),
      "[cross_entropy] labels have the dimensions of the scores but the last: scores float64 [3, 2], labels float32 [3, 2]");
  CHECK_REFUSED(cross_entropy(scores, labels, {.weights = ones({3}, f64)}),
                "[cross_entropy] one weight for each of 2 classes: float64 [3]");
}

TEST_CASE("ops: random numbers and dropout") {
  const Philox random{.key = 1, .stream = 2};
  const auto u = random_uniform({100, 100}, random, 2, 4, f64), z = random_normal({100, 100}, random, 1, 3, f64);
  CHECK(mean(u).item() == doctest::Approx(3).epsilon(0.01));
  CHECK(min(u).item() >= 2);
  CHECK(max(u).item() < 4);
  CHECK(mean(z).item() == doctest::Approx(1).epsilon(0.1));
  CHECK(mean(square(z - 1)).item() == doctest::Approx(9).epsilon(0.05));
  CHECK(random_uniform({100, 100}, random, 2, 4, f64).to_vector() == u.to_vector());
  CHECK(random_uniform({100, 100}, {.key = 1, .stream = 3}, 2, 4, f64).to_vector() != u.to_vector());
  const auto kept = dropout(ones({10000}), 0.8, random);
  CHECK(mean(kept).item() == doctest::Approx(1).epsilon(0.03));
  CHECK(max(kept).item() == doctest::Approx(1.25));
  CHECK(min(kept).item() == 0);
  const auto x = ones({3});
  CHECK(dropout(x, 1, random).id() == x.id());
  CHECK_REFUSED(dropout(x, 0, random), "[dropout] the probability to keep is in (0, 1], got 0");
}

TEST_CASE("ops: operands on different devices are refused") {
  const auto here = ones({2});
  UseDevice dry(DeviceKind::dry);
  CHECK_REFUSED(here + ones({2}), "[add] operands are on different devices: cpu and dry");
  CHECK_REFUSED(exp(ones({2})).to_vector(), "[tensor] elements of a tensor on device dry cannot be read here");
}

// Values of torch.nn.functional.interpolate (align_corners = false).
TEST_CASE("upsample: any number of places, nearest and linear") {
  const auto along = [](const Tensor& values, std::int64_t m, Interpolation mode) {
    const auto n = values.dim(0);
    return reshape(upsample(reshape(values, {1, 1, n, 1, 1}), Extent3{1, m, 1}, mode), {m});
  };
  const auto four = vector({1, 2, 3, 4});
  check(along(four, 8, Interpolation::nearest), {1, 1, 2, 2, 3, 3, 4, 4});
  check(along(four, 6, Interpolation::nearest), {1, 1, 2, 3, 3, 4});
  check(along(four, 3, Interpolation::nearest), {1, 2, 3});
  check(along(four, 8, Interpolation::linear), {1, 1.25, 1.75, 2.25, 2.75, 3.25, 3.75, 4});
  check(along(four, 6, Interpolation::linear), {1, 1.5, 2 + 1.0 / 6, 2 + 5.0 / 6, 3.5, 4});
  check(along(four, 2, Interpolation::linear), {1.5, 3.5});
  check(along(four, 1, Interpolation::linear), {2.5});
  check(along(four, 4, Interpolation::linear), {1, 2, 3, 4});
  // Three dimensions with channels: means of eight cells.
  const auto cube =
      reshape(from_vector({16}, std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, f64), {1, 2, 2, 2, 2});
  check(upsample_by(cube, {0.5, 0.5, 0.5}, Interpolation::linear), {1, 1, 1, 1, 2}, {7, 8});
  CHECK(upsample_by(cube, {1.5, 2, 3}).shape() == Shape{1, 3, 4, 6, 2});
  CHECK_REFUSED(upsample(cube, Extent3{0, 1, 1}), "[upsample] from 2 to 0 places in dimension 1: float64 [1, 2, 2, 2, 2]");
  CHECK_REFUSED(upsample_by(cube, {1, -1, 1}), "[upsample] factors are positive, got -1");
}
