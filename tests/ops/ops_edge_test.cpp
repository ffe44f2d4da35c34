// Ops on infinities, NaN, zeros, empty and extreme arguments: results or refusals by name.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "comm/distributed/distributed.h"
#include "ops/conv/conv.h"
#include "ops/elementwise/activation_adjoints.h"
#include "ops/elementwise/elementwise.h"
#include "ops/kernel/parallel_errors.h"
#include "ops/loss/loss.h"
#include "ops/pool/pool.h"
#include "ops/random/random.h"
#include "ops/recompute.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"
#include "tests/support/distributed.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

constexpr auto f64 = DType::float64;
constexpr double infinity = std::numeric_limits<double>::infinity();

Tensor vector(std::initializer_list<double> values, DType dtype = f64) {
  return from_vector({static_cast<std::int64_t>(values.size())}, values, dtype);
}

// Equal to the last bit, including the sign of zero; NaN equals NaN.
void check(const Tensor& x, std::initializer_list<double> expected) {
  const auto values = x.to_vector();
  REQUIRE(values.size() == expected.size());
  std::size_t i = 0;
  for (const double value : expected) {
    CAPTURE(i);
    CAPTURE(values[i]);
    if (std::isnan(value)) CHECK(std::isnan(values[i]));
    else CHECK((values[i] == value && std::signbit(values[i]) == std::signbit(value)));
    ++i;
  }
}

// One grid axis; dimension 0 cut at `cuts`.
LayoutPtr cut(const Shape& global, const std::vector<std::int64_t>& cuts, int rank) {
  auto grid = std::make_shared<GridShape>();
  grid->names = {"sample"};
  grid->extents = {static_cast<int>(cuts.size()) - 1};
  grid->rank = rank;
  auto result = std::make_shared<Layout>();
  result->grid = std::move(grid);
  result->global = global;
  result->axes = {{Placement::split, 0, cuts}};
  return result;
}
Tensor distributed_ones(const LayoutPtr& layout) { return ones(layout->box().extents()).with_layout(layout); }

// The split dimension of the result of f on each rank's block, or -1 if all ranks refuse; anything else fails.
int split_dimension(const Shape& global, const std::vector<std::int64_t>& cuts, const std::function<Tensor(const Tensor&)>& f) {
  std::vector<int> found;
  for (int rank = 0; rank + 1 < static_cast<int>(cuts.size()); ++rank) {
    const auto x = distributed_ones(cut(global, cuts, rank));
    try {
      found.push_back(f(x).layout()->axes[0].dimension);
    } catch (const Error& error) {
      CHECK(std::string(error.what()).starts_with("[reshape] does not tell on every rank which dimension is the split one"));
      found.push_back(-1);
    }
  }
  for (const int dimension : found) CHECK(dimension == found[0]);
  return found[0];
}

}  // namespace

#define CHECK_REFUSED(expression, text) CHECK_THROWS_WITH_AS(expression, text, Error)

TEST_CASE("edges: relu of infinities and zeros, and its adjoint of infinite cotangents") {
  for (const auto dtype : {DType::float32, f64}) {
    const auto x = vector({-infinity, -1, -0.0, 0, 1, infinity, NAN}, dtype);
    check(relu(x), {0, 0, 0, 0, 1, infinity, NAN});
    check(leaky_relu(x, 0.5), {-infinity, -0.5, -0.0, 0, 1, infinity, NAN});
    check(sign(x), {-1, -1, 0, 0, 1, 1, NAN});
    Tape tape;
    const auto y = relu(x);
    check(tape.vjp({y}, {full({7}, infinity, dtype)}, {x})[0], {0, 0, 0, 0, infinity, infinity, infinity});
    check(leaky_relu_adjoint(full({7}, 2, dtype), leaky_relu(x, 0.5), {0.5}), {1, 1, 1, 1, 2, 2, 2});
  }
}

TEST_CASE("edges: NaN wins from either side") {
  const auto a = vector({NAN, 1, 2}), b = vector({1, NAN, 3});
  check(maximum(a, b), {NAN, NAN, 3});
  check(minimum(a, b), {NAN, NAN, 2});
  check(argmax(vector({1, NAN, 2, NAN}), 0), {1});
  check(argmax(vector({NAN, 5}), 0), {0});
  check(max(vector({1, NAN, 2})), {NAN});
}

TEST_CASE("edges: divisions") {
  check(vector({49, 1}) / 49.0, {1, 1 / 49.0});
  check(vector({1e-310}) / 1e-310, {1});
  check(3.0 / vector({3e-310, 7}), {3.0 / 3e-310, 3.0 / 7.0});
  for (const auto dtype : {DType::int64, DType::int32, DType::int16, DType::uint8, DType::boolean}) {
    check(vector({1, 0, 1}, dtype) / vector({0, 0, 1}, dtype), {0, 0, 1});
  }
  check(vector({-7, 7}, DType::int32) / vector({2, -2}, DType::int32), {-3, -3});
  const auto lowest = static_cast<double>(std::numeric_limits<std::int32_t>::min());
  check(vector({lowest, 5}, DType::int32) / vector({-1, -1}, DType::int32), {lowest, -5});
  check(vector({-32768}, DType::int16) / vector({-1}, DType::int16), {-32768});
  CHECK_REFUSED(arange(3) / 2.0, "[divide] 2 with integers, which cannot hold it: cast(x, DType::float64) first; x is int64 [3]");
}

TEST_CASE("edges: derivatives of a power with exponents that are 0") {
  const auto a = vector({0, 2, 3, 0}), b = vector({0, 0, 2, 3});
  Tape tape;
  const auto g = tape.gradient(sum(pow(a, constant(b))), {a}, Record::yes)[0];
  check(g, {0, 0, 6, 0});
  check(abs(tape.gradient(sum(g), {a})[0]), {0, 0, 2, 0});
  const auto c = vector({2, 4}), none = vector({0, 0});
  Tape mixed;
  const auto first = mixed.gradient(sum(pow(c, none)), {c}, Record::yes)[0];
  check(mixed.gradient(sum(first), {none})[0], {0.5, 0.25});  // d/db of b a^(b-1)
}

TEST_CASE("edges: cross-entropy with infinite scores of other classes") {
  for (const auto dtype : {DType::float32, f64}) {
    const auto scores = from_vector({2, 3}, {0, -infinity, 0, -infinity, 5, -infinity}, dtype);
    const auto labels = vector({0, 1}, DType::int64);
    Tape tape;
    const auto loss = cross_entropy(scores, labels, {.reduction = Reduction::sum});
    CHECK(loss.item() == doctest::Approx(std::log(2.0)).epsilon(1e-6));
    const auto g = tape.gradient(loss, {scores}, Record::yes)[0];
    check(g, {-0.5, 0, 0.5, 0, 0, 0});
    const auto second = tape.gradient(sum(square(g)), {scores})[0];  // of 2 (p - 1)^2 for two classes: -p (1 - p) 4 (1 - p)
    const auto values = second.to_vector();
    CHECK(values[0] == doctest::Approx(-0.5));
    CHECK(values[2] == doctest::Approx(0.5));
    for (const auto i : {1, 3, 4, 5}) CHECK(values[static_cast<std::size_t>(i)] == 0);
    check(cross_entropy(scores, labels, {.weights = vector({1, 0, infinity}, dtype), .reduction = Reduction::none}),
          {loss.item(), -0.0});
  }
}

TEST_CASE("edges: labels outside the classes") {
  const auto scores = zeros({2, 3});
  CHECK_REFUSED(cross_entropy(scores, vector({0, 3}, DType::int32)),
                "[cross_entropy] label 3 is not one of 3 classes and not ignored: labels int32 [2]");
  CHECK_REFUSED(cross_entropy(scores, vector({-1, 0}, DType::int64), {.ignore_index = -100}),
                "[cross_entropy] label -1 is not one of 3 classes and not ignored: labels int64 [2]");
  CHECK_REFUSED(cross_entropy(scores, ones({2})), "[cross_entropy] labels are integers: float32 [2]");
  // -100 is not a uint8; it would become 156.
  const auto wide = zeros({2, 200});
  const auto labels = vector({156, 1}, DType::uint8);
  CHECK(cross_entropy(wide, labels, {.ignore_index = -100}).item() == doctest::Approx(std::log(200.0)));
  CHECK(cross_entropy(wide, labels, {.ignore_index = 156, .reduction = Reduction::sum}).item() ==
        doctest::Approx(std::log(200.0)));
}

TEST_CASE("edges: views refuse by name what is outside") {
  const auto x = ones({2, 3});
  CHECK_REFUSED(slice(x, 1, -1, 2), "[slice] -1:2:1 is outside dimension 1 of float32 [2, 3]");
  CHECK_REFUSED(slice(x, 1, 2, 1), "[slice] 2:1:1 is outside dimension 1 of float32 [2, 3]");
  Shape below{0, 0};
  below[1] = -1;
  CHECK_REFUSED(mpigrad::apply(ops::SlicePut{.begin = below, .step = {1, 1}, .shape = {4, 4}}, {x}),
                "[pad] float32 [2, 3] does not fit in [4, 4] from [0, -1] by [1, 1], dimension 1");
  CHECK_REFUSED(pad(x, {0, -1}, {0, 2}), "[pad] amounts are not negative, got -1: float32 [2, 3]");
  CHECK_REFUSED(pad(x, below, Shape{0, 2}), "[pad] amounts are not negative, -1 and 2 in dimension 1: float32 [2, 3]");
  CHECK_REFUSED(take(ones({}), arange(1)), "[take] a tensor with rows is needed: float32 []");
  CHECK_REFUSED(scatter_add(x, arange(2), -1), "[scatter_add] the number of rows is not negative, got -1: float32 [2, 3]");
  CHECK_REFUSED(concatenate({x}, 7), "[concatenate] dimension 7 is outside a tensor of 2 dimensions");
  CHECK(flatten_from(ones({2, 3, 4}), 1).shape() == Shape{2, 12});
  CHECK(flatten_from(ones({2, 3, 4}), -1).shape() == Shape{2, 3, 4});
}

TEST_CASE("edges: functions refuse under their own names") {
  CHECK_REFUSED(mean(arange(3)), "[mean] needs floating-point elements: int64 [3]");
  CHECK_REFUSED(log_softmax(arange(2)), "[log_softmax] needs floating-point elements and a dimension: int64 [2]");
  CHECK_REFUSED(log_softmax(ones({2}), 1), "[log_softmax] dimension 1 is outside a tensor of 1 dimensions");
  CHECK_REFUSED(softmax(ones({})), "[softmax] needs floating-point elements and a dimension: float32 []");
  CHECK_REFUSED(dropout(arange(2), 0.5, {}), "[dropout] needs floating-point elements: int64 [2]");
  CHECK_REFUSED(local::conv_transpose(ones({1, 1, 1, 2, 3}), ones({2, 1, 1, 2, 1})),
                "[conv_transpose] input has 3 channels, weight takes 2: float32 [1, 1, 1, 2, 3] and float32 [2, 1, 1, 2, 1]");
  CHECK_REFUSED(local::conv_transpose(ones({1, 1, 1, 2, 3}), ones({3, 1, 1, 2, 1}), {.groups = 2}),
                "[conv_transpose] 3 channels are not a multiple of 2 groups: weight float32 [3, 1, 1, 2, 1]");
  CHECK_REFUSED(softmax(distributed_ones(cut({3, 2, 2}, {0, 1, 3}, 1)), 0),
                "[softmax] across dimension 0, which is split; redistribute it so that the dimension is whole on every rank: "
                "float32 [2, 2, 2] of [3, 2, 2] sample: split dim 0 at 0|1|3");
}

TEST_CASE("edges: a kernel that does not fit is refused, but not of an empty input") {
  const auto w = ones({1, 1, 1, 6, 1});
  CHECK_REFUSED(local::conv(ones({1, 1, 1, 5, 1}), w),
                "[conv] the kernel reaches over 6 elements, the padded input has 5 in dimension 3: input (1, 1, 5), kernel "
                "(1, 1, 6), padding (0, 0, 0) and (0, 0, 0), dilation (1, 1, 1)");
  CHECK(local::conv(ones({1, 1, 1, 5, 1}), w, {.padding = Padding::sides(0, {0, 0, 1})}).shape() == Shape{1, 1, 1, 1, 1});
  CHECK(local::conv(ones({1, 1, 1, 0, 1}), w).shape() == Shape{1, 1, 1, 0, 1});
}

TEST_CASE("edges: a window larger than the input is a partial one in ceil mode") {
  const PoolAttributes a{.kernel = 2, .stride = 2, .ceil_mode = true};
  CHECK(pool_outputs({1, 2, 0}, a) == Extent3{1, 1, 0});
  CHECK(pool_outputs({1, 2, 3}, {.kernel = 4, .stride = 2, .ceil_mode = true}) == Extent3{0, 0, 1});
  CHECK(pool_outputs({1, 2, 3}, {.kernel = 4, .stride = 2}) == Extent3{0, 0, 0});
  for (const auto dtype : {DType::float32, f64}) {
    const auto x = full({1, 1, 1, 1, 1}, 8, dtype);
    check(local::max_pool(x, a), {8});
    check(local::avg_pool(x, a), {8});
  }
  for (const int ranks : {2, 3})
    check_on_ranks(ranks, "pools", [&](const Communicator& comm) {
      const auto grid = make_grid(comm, {.sample = 1, .depth = 1, .height = 1, .width = comm.size()});
      const Shape global{2, 1, 3, 7, 2};
      const PoolAttributes wide{.kernel = {2, 4, 3}, .stride = 2, .ceil_mode = true, .count_include_pad = false};
      const auto whole = global_tensor(global, 1);
      const auto x = part_of(whole, activation_layout(grid, global));
      for (const bool maximum : {true, false}) {
        const auto expected = maximum ? max_pool(whole, wide) : avg_pool(whole, wide);
        const auto y = maximum ? max_pool(x, wide) : avg_pool(x, wide);
        require(expected.shape() == Shape{2, 1, 1, 3, 2}, "[test] shape {}", expected);
        require(y.layout()->global == expected.shape(), "[test] layout of {}", y);
        require(y.to_vector() == part_of(expected, y.layout()).to_vector(), "[test] values");
      }
    });
}

TEST_CASE("edges: the split dimension of a reshaped tensor is the same on all ranks") {
  const Shape global{3, 4};
  const std::vector<std::int64_t> uneven{0, 1, 3};
  CHECK(split_dimension(global, uneven, [](const Tensor& x) { return reshape(x, {1, x.dim(0), 4}); }) == -1);
  CHECK(split_dimension(global, uneven, [](const Tensor& x) { return reshape(x, {x.dim(0), 1, 4}); }) == -1);
  CHECK(split_dimension({3, 1, 4}, uneven, [](const Tensor& x) { return reshape(x, {1, x.dim(0), 4}); }) == -1);
  CHECK(split_dimension(global, {0, 1, 2, 3}, [](const Tensor& x) { return reshape(x, {1, x.dim(0), 4}); }) == 0);
  CHECK(split_dimension({6, 4}, {0, 2, 6}, [](const Tensor& x) { return reshape(x, {1, x.dim(0), 4}); }) == 1);
  CHECK(split_dimension(global, uneven, [](const Tensor& x) { return reshape(x, {x.dim(0), 2, 2}); }) == 0);
  CHECK(split_dimension(global, {0, 0, 1, 3}, [](const Tensor& x) { return reshape(x, {x.dim(0), 2, 2, 1}); }) == 0);
  CHECK(split_dimension(global, uneven, [](const Tensor& x) { return unsqueeze(x, 0); }) == 1);
  CHECK(split_dimension({3, 1, 1}, uneven, [](const Tensor& x) { return flatten_from(x, 1); }) == 0);
  CHECK_REFUSED(flatten_from(distributed_ones(cut(global, uneven, 1)), 0),
                "[reshape] merges or cuts dimension 0, which is split; redistribute it so that the dimension is whole on every "
                "rank: float32 [2, 4] of [3, 4] sample: split dim 0 at 0|1|3 to local shape [8]");
}

TEST_CASE("edges: recompute of what f did not compute, and of constants") {
  const auto x = vector({1, 2}), p = vector({3, 4});
  Tape tape;
  const auto y = recompute([p](const Tensor&) { return p; }, x);
  const auto z = recompute([](const Tensor& t) { return t; }, x);
  const auto g = tape.gradient(sum(y * 5) + sum(z * 7), {x, p});
  check(g[0], {7, 7});
  check(g[1], {5, 5});
  Tape another;
  CHECK(recompute([](const Tensor& t) { return t * 2; }, constant(x)).is_constant());
  CHECK(another.entries().empty());
  CHECK(!recompute([p](const Tensor& t) { return t * p; }, constant(x)).is_constant());
}

TEST_CASE("edges: random numbers stay below the bound, and shapes are global ones") {
  // Number 27392120 of this key is 1 - 2^-26 or closer to 1, which rounds to 1.
  constexpr std::int64_t at = 27392119;
  const Philox random{.key = 1};
  const auto layout = cut({at + 1}, {0, at, at + 1}, 1);
  CHECK(static_cast<float>(random.uniform(at)) == 1);
  CHECK(random_uniform({at + 1}, random, 0, 1, DType::float32, layout).item() == 1 - 0x1p-24);
  CHECK(random_uniform({at + 1}, random, -3, 0.1, DType::float32, layout).item() < 0.1);
  check(random_uniform({2}, random, 2, 2), {2, 2});
  CHECK_REFUSED(random_uniform({1}, random, 0, 1, DType::float32, layout),
                "[random_uniform] the shape is the global one of the layout: [1], layout of [27392120]");
  CHECK_REFUSED(random_normal({1}, random, 0, 1, DType::float32, layout),
                "[random_normal] the shape is the global one of the layout: [1], layout of [27392120]");
}

TEST_CASE("edges: a product keeps only what its derivative reads") {
  const auto x = vector({1, 2}), c = constant(vector({3, 4}));
  Tape tape;
  const auto y = x * c, z = c * x, w = x * x, d = dropout(x, 0.5, {.key = 2});
  std::vector<std::pair<bool, bool>> kept;
  for (const auto& entry : tape.entries())
    kept.emplace_back(entry.inputs[0].storage() != nullptr, entry.inputs[1].storage() != nullptr);
  CHECK((kept == std::vector<std::pair<bool, bool>>{{false, true}, {true, false}, {true, true}, {false, true}}));
}

TEST_CASE("edges: an exception in a parallel region arrives behind it") {
  cpu::ParallelErrors errors;
#pragma omp parallel for num_threads(2)
  for (int i = 0; i < 8; ++i) errors.guard([&] { fail("[test] thread of {}", i / 8); });
  CHECK_REFUSED(errors.rethrow(), "[test] thread of 0");
  cpu::ParallelErrors none;
  none.guard([] {});
  none.rethrow();
}
