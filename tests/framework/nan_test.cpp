// Where a function is not smooth and its argument is NaN, the cotangent passes (ops/elementwise/elementwise.h): on the CPU and on
// GPUs, by every kernel of the function. For reductions over ranks see nan_ranks_test.cpp.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "framework/engine/tape.h"
#include "ops/conv/conv.h"
#include "ops/elementwise/activation.h"
#include "ops/elementwise/activation_ops.h"
#include "ops/elementwise/scalar.h"
#include "ops/linear/matmul.h"
#include "ops/norm/channel_norm.h"
#include "ops/pool/pool.h"
#include "ops/reduce/reduce.h"
#include "ops/views/to_device.h"
#include "tests/support/gpu.h"
#include "tests/support/random.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

constexpr double slopes[] = {0, 0.25};
using Values = std::vector<double>;
using Function = std::function<Tensor(const Tensors&)>;

struct Device {
  DeviceKind kind;
  DType type;
  double tolerance;  // of what is added up
  Tensor operator()(const Shape& shape, const Values& values) const { return to(from_vector(shape, values, type), kind); }
};

// The cotangents of all inputs; the cotangent of the result is 1, 2, 3, ... (up to 100, which all types represent).
Tensors cotangents(const Function& f, const Tensors& in,
                   const std::function<Tensor(const Tensor& y, const Tensor& g)>& change = {}) {
  Tensors x;
  for (const auto& input : in) x.push_back(input.as_variable());
  Tape tape;
  const auto y = f(x);
  Values g(static_cast<std::size_t>(y.elements()));
  for (std::size_t i = 0; i < g.size(); ++i) g[i] = static_cast<double>(i % 100 + 1);
  auto ybar = to(from_vector(y.shape(), g, y.dtype()), y.device());
  if (change) ybar = change(y, ybar);
  return tape.vjp({y}, {ybar}, x);
}

// Compares all elements; the message names the first that differs.
void check_equal(const Tensor& found, const Values& expected, double tolerance = 0) {
  const auto values = found.to_vector();
  REQUIRE(values.size() == expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(expected[i]) && std::isnan(values[i])) continue;
    if (std::abs(values[i] - expected[i]) <= tolerance * std::max(1.0, std::abs(expected[i]))) continue;
    FAIL_CHECK("element " << i << " is " << values[i] << ", not " << expected[i]);
    return;
  }
}

// A third NaN, the rest on both sides of every kink and on it; `with` in place of NaN.
Values mixed(std::int64_t n, double with = NAN) {
  const double numbers[] = {-1.5, 0.5, 0, 2, -0.25, -0.0, 1};
  Values values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(i % 3 == 1 ? with : numbers[i % 7]);
  return values;
}
std::size_t nans_in(const Tensor& x) {
  std::size_t count = 0;
  for (const double value : x.to_vector()) count += std::isnan(value);
  return count;
}

void check_unary(const Device& on) {
  constexpr std::int64_t n = 53;
  struct Named {
    std::string name;
    std::function<Tensor(const Tensor&)> f;
  };
  for (const auto& named :
       {Named{"relu", relu}, Named{"leaky_relu", [](const Tensor& x) { return leaky_relu(x, 0.25); }},
        Named{"abs", [](const Tensor& x) { return abs(x); }}, Named{"clamp", [](const Tensor& x) { return clamp(x, -1, 1); }}}) {
    INFO(named.name);
    const Function of_one = [&call = named.f](const Tensors& x) { return call(x[0]); };
    const auto x = on({n}, mixed(n));
    CHECK(nans_in(of_one({x})) == nans_in(x));
    // NaN elements have the cotangent of slope 1, the others the same as without NaN.
    check_equal(cotangents(of_one, {x})[0], cotangents(of_one, {on({n}, mixed(n, 0.5))})[0].to_vector());
  }
}

void check_binary(const Device& on) {
  const Values a{NAN, 1, NAN, 1, 2, 3, 3}, b{1, NAN, NAN, 2, 1, 3, NAN};
  const auto n = static_cast<std::int64_t>(a.size());
  const Tensors in{on({n}, a), on({n}, b)};
  const auto of_max = cotangents([](const Tensors& x) { return maximum(x[0], x[1]); }, in);
  check_equal(of_max[0], {1, 2, 3, 0, 5, 3, 7});
  check_equal(of_max[1], {1, 2, 3, 4, 0, 3, 7});
  const auto of_min = cotangents([](const Tensors& x) { return minimum(x[0], x[1]); }, in);
  check_equal(of_min[0], {1, 2, 3, 4, 0, 3, 7});
  check_equal(of_min[1], {1, 2, 3, 0, 5, 3, 7});
}

void check_reductions(const Device& on) {
  constexpr std::int64_t rows = 4, columns = 5;
  Values values(rows * columns, 1.0);
  values[1] = values[11] = NAN;        // two of column 1
  values[2] = 7, values[7] = -7;       // column 2
  values[4] = NAN, values[14] = -2.0;  // one of column 4
  const auto x = on({rows, columns}, values);
  for (const bool largest : {true, false}) {
    INFO(std::string(largest ? "max" : "min"));
    const auto reduced = [&](std::vector<int> axes) {
      return cotangents([=](const Tensors& in) { return largest ? max(in[0], axes) : min(in[0], axes); }, {x})[0];
    };
    Values expected(rows * columns, 0.0);
    for (const std::size_t row : {0, 5, 10, 15}) expected[row] = 0.25, expected[row + 3] = 1;
    expected[1] = expected[11] = 1;  // half of 2
    expected[largest ? 2 : 7] = 3;
    expected[4] = 5;
    check_equal(reduced({0}), expected);
    std::fill(expected.begin(), expected.end(), 0.0);
    expected[1] = expected[4] = 0.5, expected[11] = 3;  // half of 1 each, the whole of 3
    expected[largest ? 5 : 7] = 2;
    if (largest) expected[5] = expected[6] = expected[8] = expected[9] = 0.5;
    for (const std::size_t i : {15, 16, 17, 18, 19}) expected[i] = 0.8;
    check_equal(reduced({1}), expected, on.type == DType::float64 ? 1e-15 : 1e-2);
    std::fill(expected.begin(), expected.end(), 0.0);
    expected[1] = expected[4] = expected[11] = 1.0 / 3;
    check_equal(reduced({0, 1}), expected, on.type == DType::float64 ? 1e-15 : 1e-2);
  }
}

void check_pools(const Device& on) {
  for (const std::int64_t channels : {3, 11, 16}) {
    const Shape shape{1, 2, 4, 4, channels};
    CAPTURE(channels);
    // The first NaN of a window wins.
    const PoolAttributes pairs{.kernel = 2, .stride = 2};
    Values values(static_cast<std::size_t>(shape.elements())), expected(values.size(), 0.0);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 13);
    const auto place = [&](std::int64_t h, std::int64_t w) { return static_cast<std::size_t>((h * 4 + w) * channels); };
    for (const auto& [h, w] : {std::pair{0, 1}, std::pair{1, 0}, std::pair{2, 3}}) values[place(h, w)] = NAN;
    const auto found =
        cotangents([&](const Tensors& x) { return local::max_pool(x[0], pairs); }, {on(shape, values)})[0].to_vector();
    CHECK(found[place(0, 1)] == 1);
    CHECK(found[place(1, 0)] == 0);
    CHECK(found[place(2, 3)] == static_cast<double>(3 * channels % 100 + 1));
    // An activation fused before an average passes NaN there, too.
    for (const double slope : slopes)
      for (const auto& pool : {pairs, PoolAttributes{.kernel = 3, .stride = 2, .padding = 1}}) {
        CAPTURE(slope);
        const auto x = on(shape, mixed(shape.elements()));
        const auto of_x = mixed(shape.elements());
        auto mean = cotangents([&](const Tensors& in) { return local::avg_pool(in[0], pool); }, {x})[0].to_vector();
        for (std::size_t i = 0; i < mean.size(); ++i) mean[i] *= of_x[i] <= 0 ? slope : 1;
        check_equal(
            cotangents([&](const Tensors& in) { return local::activated_avg_pool(in[0], Activation::leaky_relu(slope), pool); },
                       {x})[0],
            mean, on.tolerance);
      }
  }
}

// A function followed by an activation, as one op and as two.
void check_fused(const std::string& name, const Device& on, const std::function<Tensor(const Tensors&, double)>& fused,
                 const Tensors& in, std::size_t expected_nans) {
  INFO(name);
  for (const double slope : slopes) {
    CAPTURE(slope);
    const Function one = [&](const Tensors& x) { return fused(x, slope); };
    CHECK(nans_in(one(in)) == expected_nans);
    const auto passes = [&](const Tensor& y, const Tensor& g) {
      auto values = g.to_vector();
      const auto of_y = y.to_vector();
      for (std::size_t i = 0; i < values.size(); ++i) values[i] *= of_y[i] <= 0 ? slope : 1;
      return to(from_vector(g.shape(), values, g.dtype()), g.device());
    };
    const auto found = cotangents(one, in);
    const auto expected = cotangents([&](const Tensors& x) { return fused(x, 1); }, in, passes);
    for (std::size_t i = 0; i < in.size(); ++i) {
      CAPTURE(i);
      check_equal(found[i], expected[i].to_vector(), on.tolerance);
    }
  }
}

Tensor numbers(const Device& on, const Shape& shape, std::uint64_t seed) {
  return on(shape, random_tensor(shape, seed).to_vector());
}
Tensor with_nan(const Device& on, const Shape& shape, std::uint64_t seed, std::initializer_list<std::size_t> places) {
  auto values = random_tensor(shape, seed).to_vector();
  for (const auto place : places) values[place] = NAN;
  return on(shape, values);
}

void check_rows(const Device& on) {
  for (const std::int64_t channels : {5, 16}) {
    const Shape x{37, channels}, per_channel{channels};
    const auto width = static_cast<std::size_t>(channels);
    check_fused(
        "bias_activation", on,
        [](const Tensors& in, double slope) { return local::bias_activation(in[0], in[1], Activation::leaky_relu(slope)); },
        {with_nan(on, x, 1, {0, 3, 2 * width, 36 * width + 4}), numbers(on, per_channel, 2)}, 4);
    auto wide = on;
    wide.type = computed_in(on.type);  // of what there is of each channel
    check_fused(
        "channel_affine", on,
        [&](const Tensors& in, double slope) {
          return channel_affine(in[0], in[1], in[2], in[3], Activation::leaky_relu(slope));
        },
        {with_nan(on, x, 3, {1, 4 * width + 2}), numbers(wide, per_channel, 4), numbers(wide, per_channel, 5),
         numbers(wide, per_channel, 6)},
        2);
  }
}

// One NaN in 16 channels makes the outputs around it NaN: 3 x 3 x 3 times 16.
void check_conv(const Device& on, const Extent3& extent) {
  const Shape x{1, extent[0], extent[1], extent[2], 16};
  const auto middle = static_cast<std::size_t>(((1 * extent[1] + 1) * extent[2] + 1) * 16);
  for (const bool with_bias : {true, false})
    check_fused(
        with_bias ? "convolution with bias" : "convolution", on,
        [&](const Tensors& in, double slope) {
          return local::conv_bias_activation(in[0], in[1], with_bias ? in[2] : Tensor(), Activation::leaky_relu(slope),
                                             {.padding = 1});
        },
        {with_nan(on, x, 7, {middle}), numbers(on, {16, 3, 3, 3, 16}, 8), numbers(on, {16}, 9)}, 27 * 16);
}
void check_linear(const Device& on) {
  check_fused(
      "linear", on,
      [](const Tensors& in, double slope) { return local::linear(in[0], in[1], in[2], Activation::leaky_relu(slope)); },
      {with_nan(on, {6, 8}, 10, {17}), numbers(on, {24, 8}, 11), numbers(on, {24}, 12)}, 24);
}

void check_all(const Device& on) {
  INFO(std::string(name_of(on.type)));
  check_unary(on);
  check_binary(on);
  check_reductions(on);
  check_pools(on);
  check_rows(on);
}

constexpr std::pair<DType, double> types[] = {
    {DType::float64, 1e-12}, {DType::float32, 1e-5}, {DType::bfloat16, 0.05}, {DType::float16, 0.01}};

}  // namespace

TEST_CASE_ON_DEVICES("NaN: every function that is not smooth passes the cotangent", no_gpu) {
  const UseDevice use(device);
  for (const auto& [type, tolerance] : types) check_all({device, type, tolerance});
}

TEST_CASE_ON_DEVICES("NaN: activations behind convolutions pass the cotangent", no_cudnn) {
  const UseDevice use(device);
  for (const auto& [type, tolerance] : types) {
    if (device == DeviceKind::cpu) check_conv({device, type, tolerance}, {5, 6, 6});  // the library's kernels, in float32
    check_conv({device, type, tolerance}, {3, 3, 3});                                 // the kernels for few outputs
  }
}

TEST_CASE_ON_DEVICES("NaN: activations behind products pass the cotangent", no_cublas) {
  const UseDevice use(device);
  for (const auto& [type, tolerance] : types) check_linear({device, type, tolerance});
}

namespace {

// A function of NaN is NaN, and a cotangent of 1 does not become 0 on its way to `inputs`.
void check_seen(const std::string& name, const Function& f, const Tensors& in, std::initializer_list<std::size_t> inputs) {
  INFO(name);
  Tape tape;
  const auto y = f(in);
  CHECK(std::isnan(y.item()));
  const auto found = tape.vjp({y}, {ones_like(y)}, in);
  for (const auto i : inputs) CHECK(found[i].item() != 0);
}

template <class F>
void check_seen_unary() {
  constexpr bool flat = std::is_same_v<F, ops::Sign> || std::is_same_v<F, ops::Floor> || std::is_same_v<F, ops::Ceil> ||
                        std::is_same_v<F, ops::Round> || std::is_same_v<F, ops::Trunc>;
  const auto f = [](const Tensors& x) { return apply(ops::Unary<F>{}, {x[0]}); };
  const auto x = full({1}, NAN, DType::float64);
  if constexpr (flat) check_seen(std::string(F::row.name), f, {x}, {});
  else check_seen(std::string(F::row.name), f, {x}, {0});
}

}  // namespace

TEST_CASE("NaN: no elementwise function hides it from the gradient") {
  {
    using namespace ops;
#define MPIGRAD_MAKE(F, ...) check_seen_unary<F>();
    MPIGRAD_UNARY_FUNCTIONS(MPIGRAD_MAKE)
#undef MPIGRAD_MAKE
  }
  using BinaryFunction = Tensor (*)(const Tensor&, const Tensor&);
  const std::pair<const char*, BinaryFunction> binary[] = {
      {"add", add},     {"subtract", subtract}, {"multiply", multiply},  {"divide", divide},
      {"pow", pow},     {"maximum", maximum},   {"minimum", minimum},    {"remainder", remainder},
      {"atan2", atan2}, {"hypot", hypot},       {"logaddexp", logaddexp}};
  const auto x = full({1}, NAN, DType::float64), two = full({1}, 2, DType::float64);
  for (const auto& [name, f] : binary) {
    const auto of_two = [call = f](const Tensors& x) { return call(x[0], x[1]); };
    check_seen(name, of_two, {x, two}, {0, 1});
    check_seen(name, of_two, {two, x}, {0, 1});
  }
  // These have no derivative with respect to one operand, or to either. The sign of NaN is a sign.
  check_seen("floor_divide", [](const Tensors& in) { return floor_divide(in[0], in[1]); }, {x, two}, {});
  check_seen("copysign", [](const Tensors& in) { return copysign(in[0], in[1]); }, {x, two}, {0});
  check_seen("nextafter", [](const Tensors& in) { return nextafter(in[0], in[1]); }, {x, two}, {0});
  check_seen("nextafter", [](const Tensors& in) { return nextafter(in[0], in[1]); }, {two, x}, {0});
  // leaky_relu has a test of its adjoint in this file; add new functions above, too.
#define MPIGRAD_MAKE(F, ...) +1
  static_assert(MPIGRAD_ARITHMETIC_FUNCTIONS(MPIGRAD_MAKE) MPIGRAD_FLOATING_FUNCTIONS(MPIGRAD_MAKE) == std::size(binary) + 3 + 1);
#undef MPIGRAD_MAKE
}
