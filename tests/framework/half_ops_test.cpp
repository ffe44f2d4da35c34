// bfloat16 and float16: ops compared with float32 rounded once, their gradients, and refused uses.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "framework/engine/parameter.h"
#include "framework/engine/tape.h"
#include "ops/conv/conv.h"
#include "ops/elementwise/activation_adjoints.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/loss/loss.h"
#include "ops/norm/channel_norm.h"
#include "ops/pool/pool_ops.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"
#include "tests/framework/half_values.h"
#include "tests/support/errors.h"
#include "tests/support/relative_error.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

Tensor numbers(const Shape& shape, DType dtype, std::uint64_t key = 1) { return random_normal(shape, {.key = key}, 0, 2, dtype); }
Tensor wide(const Tensor& x) { return cast(x, DType::float32); }

}  // namespace

TEST_CASE("half: elementwise ops are float32 ones, rounded once") {
  // Sizes of less than one block, and of several blocks that do not end at rows.
  const std::pair<Shape, Shape> shapes[] = {{{7, 40}, {7, 40}},     {{7, 40}, {40}},       {{7, 40}, {7, 1}},     {{7, 40}, {}},
                                            {{5, 3001}, {5, 3001}}, {{5, 3001}, {3001}},   {{5, 3001}, {5, 1}},   {{5, 3001}, {}},
                                            {{2, 3, 701}, {3, 1}},  {{701, 3, 4}, {3, 1}}, {{701, 3}, {2, 1, 3}}, {{0, 3}, {3}}};
  for (const auto type : half_types)
    for (const auto& two : shapes) {
      const auto &shape = two.first, &other = two.second;
      INFO(fmt::format("{} and {}", shape, other));
      const Tensor a = numbers(shape, type), b = numbers(other, type, 2);
      const auto check = [&](const Tensor& y, const Tensor& y32) { CHECK(same(y, cast(y32, type))); };
      check(a + b, wide(a) + wide(b));
      check(a - b, wide(a) - wide(b));
      check(a * b, wide(a) * wide(b));
      check(a / b, wide(a) / wide(b));
      check(maximum(a, b), maximum(wide(a), wide(b)));
      check(minimum(a, b), minimum(wide(a), wide(b)));
      check(pow(abs(a), b), pow(abs(wide(a)), wide(b)));
      check(affine(a, 0.3, 1.7), affine(wide(a), 0.3, 1.7));
      for (Tensor (*f)(const Tensor&) : {exp, log, sqrt, square, sin, tanh, sigmoid, softplus, relu, floor, reciprocal, erf})
        check(f(a), f(wide(a)));
      check(clamp(a, -1, 1), clamp(wide(a), -1, 1));
      CHECK(same(less(a, b), less(wide(a), wide(b))));
      CHECK(same(equal(a, a), ones(a.shape(), DType::boolean)));
      CHECK(same(logical_not(a), logical_not(wide(a))));
      check(where(less(a, b), a, b), minimum(wide(a), wide(b)));
      check(leaky_relu_adjoint(a, b, {0.25}), leaky_relu_adjoint(wide(a), wide(b), {0.25}));
    }
  CHECK(has(error_text([] { zeros({1}, DType::float16) + zeros({1}, DType::bfloat16); }), "[add] element types differ"));
}

TEST_CASE("half: elementwise ops take the memory of their results and no more") {
  for (const auto type : half_types) {
    const Shape shape{64, 8192};
    const Tensor a = numbers(shape, type), row = numbers({8192}, type, 2);
    const auto check = [&](const char* name, const std::function<Tensor()>& f) {
      INFO(std::string(name));
      const auto before = memory_statistics(DeviceKind::cpu).current_bytes;
      reset_peak_memory(DeviceKind::cpu);
      const Tensor y = f();
      CHECK(memory_statistics(DeviceKind::cpu).peak_bytes - before == y.bytes());
    };
    check("exp", [&] { return exp(a); });
    check("relu", [&] { return relu(a); });
    check("affine", [&] { return affine(a, 2, 1); });
    check("add", [&] { return a + a; });
    check("multiply by a row", [&] { return a * row; });
    check("maximum of a row", [&] { return maximum(row, a); });
    check("less", [&] { return less(a, a); });
    check("equal to a row", [&] { return equal(a, row); });
    check("leaky_relu_adjoint", [&] { return leaky_relu_adjoint(a, a, {0.5}); });
  }
}

TEST_CASE("half: reductions accumulate in more digits and round once") {
  for (const auto type : half_types) {
    const Tensor x = numbers({6, 50, 8}, type);
    const Tensor x64 = cast(x, DType::float64);
    for (const auto& axes : {std::vector<int>{0}, {1}, {2}, {0, 1}, {1, 2}, {0, 1, 2}}) {
      CHECK(same(sum(x, axes), cast(sum(x64, axes), type)));
      CHECK(same(max(x, axes), cast(max(x64, axes), type)));
      CHECK(same(min(x, axes), cast(min(x64, axes), type)));
    }
    CHECK(same(argmax(x, 1), argmax(x64, 1)));
    CHECK(sum(full({4096}, 1, type)).item() == 4096);    // adding 1 in the type itself stops at 256 or 2048
    CHECK(mean(full({4096}, 100, type)).item() == 100);  // the sum overflows float16
    CHECK(sum(full({70000}, 0x1p-3, type)).item() == (type == DType::float16 ? 8752 : 8768));  // 8750
    const Tensor row = numbers({1, 8}, type);
    CHECK(same(broadcast_to(row, {3, 8}), cast(broadcast_to(wide(row), {3, 8}), type)));
    const Tensor y = numbers({3, 5}, type);
    CHECK(logsumexp(full({1, 2}, -infinity, type), {1}).item() == -infinity);
    CHECK(std::abs(logsumexp(y, {1}).to_vector()[0] - logsumexp(wide(y), {1}).to_vector()[0]) < 0.1);
  }
}

TEST_CASE("half: norms, activations and pools of random shapes are float32 ones, rounded once") {
  for (const auto type : half_types) {
    CAPTURE(name_of(type));
    // Allows half a unit in the last digit, and another order of sums in float32.
    const auto check = [&](const auto& op, const Tensors& in) {
      CAPTURE(std::string(op.traits().name));
      Tensors in32;
      for (const auto& x : in) in32.push_back(x && is_half(x.dtype()) ? wide(x) : x);
      const auto found = apply_all(op, in), expected = apply_all(op, in32);
      for (std::size_t i = 0; i < found.size(); ++i) {
        const auto got = found[i].to_vector(), wanted = expected[i].to_vector();
        REQUIRE(found[i].shape() == expected[i].shape());
        if (!is_half(found[i].dtype())) {  // statistics, signs, winners
          CHECK(relative_error(got, wanted) < 1e-6);
          continue;
        }
        double largest = 0, worst = 0;
        for (const double value : wanted) largest = std::max(largest, std::abs(value));
        const double unit = type == DType::bfloat16 ? 0x1.01p-9 : 0x1.01p-12;
        for (std::size_t j = 0; j < got.size(); ++j)
          worst = std::max(worst, std::abs(got[j] - wanted[j]) / (2 * unit * std::abs(wanted[j]) + 1e-6 * largest + 1e-7));
        CHECK(worst <= 1);
      }
      return found;
    };
    for (std::uint64_t i = 0; i < 30; ++i) {
      std::uint64_t drawn = 16 * i;
      const auto pick = [&](std::int64_t low, std::int64_t high) {
        return low + static_cast<std::int64_t>(Philox{.key = 5}.below(drawn++, static_cast<std::uint64_t>(high - low + 1)));
      };
      const auto channels = pick(1, i % 2 == 0 ? 40 : 9);
      // Every tenth shape has several blocks of rows, which threads share.
      const Shape shape =
          i % 10 == 0 ? Shape{2, 20, 30, 20, channels} : Shape{pick(1, 3), pick(2, 9), pick(2, 9), pick(2, 9), channels};
      CAPTURE(shape);
      const Tensor x = numbers(shape, type, 10 * i + 1), g = numbers(shape, type, 10 * i + 2),
                   bias = numbers({channels}, type, 3);
      const bool per_sample = i % 3 == 0;
      const Shape of_channels = per_sample ? Shape{shape[0], channels} : Shape{channels};
      const auto of = [&](std::uint64_t key) { return numbers(of_channels, DType::float32, key); };
      const auto m = of(4), a = of(5), b = of(6), r = abs(of(7));
      const scalar::Fused fused{i % 4 == 0 ? 0.0 : i % 4 == 1 ? 0.25 : 1.0};
      check(ops::ChannelMoments{per_sample}, {x});
      check(ops::ChannelDots{}, {g, x, m});
      check(ops::ChannelAffine{fused}, {x, m, a, b});
      check(ops::NormAdjoint{fused}, {g, x, m, a, b, r});
      const auto y = check(ops::BiasActivation{fused}, {x, bias})[0];
      check(ops::BiasActivationAdjoint{fused}, {g, y});
      const auto kernel = pick(1, 3), stride = pick(1, 3), padding = pick(0, kernel - 1);
      const PoolAttributes pool{.kernel = kernel, .stride = stride, .padding = padding};
      const Extent3 in = spatial_extent(x);
      const ops::Window window{.kernel = pool.kernel,
                               .stride = {stride, stride, stride},
                               .dilation = {1, 1, 1},
                               .low = {padding, padding, padding},
                               .in = in,
                               .out = pool_outputs(in, pool)};
      const auto pooled = check(ops::LeakyAvgPool{window, fused}, {x});
      const Tensor of_outputs = numbers(pooled[0].shape(), type, 10 * i + 8);
      check(ops::LeakyAvgPoolAdjoint{window, fused}, {of_outputs, pooled[1]});
      check(ops::AvgPool{window}, {x});
      check(ops::AvgPoolAdjoint{window}, {of_outputs});
      const auto largest = check(ops::MaxPool{window}, {x});
      check(ops::MaxPoolScatter{window}, {of_outputs, largest[1]});
      check(ops::MaxPoolGather{window}, {x, largest[1]});
    }
  }
}

TEST_CASE("half: views and moves carry bits") {
  for (const auto type : half_types) {
    const Tensor x = numbers({4, 6, 5}, type);
    const auto moves = std::vector<std::function<Tensor(const Tensor&)>>{
        [](const Tensor& t) {
          return reshape(t, {24, 5});
        },
        [](const Tensor& t) {
          return permute(t, {2, 0, 1});
        },
        [](const Tensor& t) { return slice(t, 1, 1, 5); },
        [](const Tensor& t) {
          return flip(t, {0, 2});
        },
        [](const Tensor& t) {
          return concatenate({t, t}, 1);
        },
        [](const Tensor& t) {
          return take(t, from_vector({3}, {3, 0, 3}, DType::int64));
        },
    };
    for (const auto& move : moves) CHECK(same(move(x), cast(move(wide(x)), type)));
    CHECK(one_hot(from_vector({2}, {1, 0}, DType::int64), 2, type).to_vector() == std::vector<double>{0, 1, 1, 0});
    const Tensor rows = from_vector({3, 1}, {256, 1, 1}, type), where_to = zeros({3}, DType::int64);
    CHECK(scatter_add(rows, where_to, 1).item() == 258);
  }
}

TEST_CASE("half: random numbers are of the type and inside the bounds") {
  for (const auto type : half_types) {
    const auto values = random_uniform({4000}, {.key = 3}, 0.5, 1, type).to_vector();
    for (const double x : values) CHECK((x >= 0.5 && x < 1));
    for (const double x : random_uniform({400}, {.key = 3}, -1, 0, type).to_vector()) CHECK(x < 0);
    for (const double x : random_uniform({400}, {.key = 3}, -2, -1, type).to_vector()) CHECK(x < -1);
    const Tensor x = ones({1000}, type);
    const double kept = mean(wide(dropout(x, 0.5, {.key = 5}))).item();
    CHECK((kept > 0.8 && kept < 1.2));
  }
}

TEST_CASE("half: gradients of float32 parameters through 16-bit products") {
  for (const auto type : half_types) {
    const Tensor w = numbers({5, 8}, DType::float32, 4).as_variable(), b = numbers({8}, DType::float32, 5).as_variable();
    const Tensor x = constant(numbers({5, 8}, type, 6));
    Tape tape;
    const Tensor low = cast(w, type);
    const Tensor y = sum(low * x + low * cast(b, type));  // low is used twice: its cotangents are added in its type
    const auto g = tape.gradient(y, {w, b});
    CHECK(y.dtype() == type);
    REQUIRE(g[0].type() == w.type());
    REQUIRE(g[1].type() == b.type());
    CHECK(same(g[0], wide(x + broadcast_to(cast(b, type), {5, 8}))));
    CHECK(same(g[1], wide(sum(cast(w, type), {0}))));
  }
}

TEST_CASE("half: gradients of reductions, selections and moves") {
  for (const auto type : half_types) {
    const Tensor x = numbers({4, 6}, DType::float32, 9).as_variable();
    const auto gradient_of = [&](auto f, DType in) {
      Tape tape;
      return tape.gradient(wide(f(cast(x, in))), {x})[0];
    };
    const auto f = [](const Tensor& t) {
      return sum(max(t, {1})) + sum(mean(slice(t, 1, 1, 5), {0})) + sum(relu(permute(t, {1, 0})));
    };
    const auto half = gradient_of(f, type).to_vector(), full_width = gradient_of(f, DType::float32).to_vector();
    for (std::size_t i = 0; i < half.size(); ++i) CHECK(half[i] == doctest::Approx(full_width[i]).epsilon(0.01));
  }
}

TEST_CASE("half: losses are those of the same numbers in float32, with 16-bit gradients") {
  for (const auto type : half_types) {
    const auto numbers = from_vector({2, 3}, {0.25, 0.5, 0.75, 0.125, 0.625, 0.375});
    const auto labels = from_vector({2}, {2, 0}, DType::int64);
    const auto target = from_vector({2, 3}, {0, 1, 0.5, 1, 0, 0.25});
    const std::vector<std::function<Tensor(const Tensor&)>> losses{
        [&](const Tensor& x) { return mse(x, target); },
        [&](const Tensor& x) { return mae(x, target); },
        [&](const Tensor& x) { return mse(x, cast(target, type)); },
        [&](const Tensor& x) { return cross_entropy(x, labels); },
        [&](const Tensor& x) { return negative_log_likelihood(log_softmax(cast(x, DType::float32)), labels); },
        [&](const Tensor& x) { return binary_cross_entropy(x, target); },
        [&](const Tensor& x) { return binary_cross_entropy_with_logits(x, target); }};
    for (const auto& loss : losses) {
      Tape tape;
      const auto narrow = cast(numbers, type), y = loss(narrow), expected = loss(numbers);
      CHECK(y.dtype() == DType::float32);
      CHECK(y.item() == expected.item());
      const auto g = tape.gradient(y, {narrow}, Record::yes)[0], whole = tape.gradient(expected, {numbers})[0];
      CHECK(g.dtype() == type);
      CHECK(g.to_vector() == cast(whole, type).to_vector());
    }
  }
}

TEST_CASE("half: beside 16-bit numbers a float32 parameter is rounded, a constant is refused") {
  for (const auto type : half_types) {
    const auto x = cast(from_vector({2, 2}, {1.5, -2, 0.25, 3}), type);
    const auto w = from_vector({2}, {1.0009765625, 3});
    Tape tape;
    const auto y = x * w + exp(w);
    CHECK(y.dtype() == type);
    CHECK(y.to_vector() == (x * cast(w, type) + cast(exp(w), type)).to_vector());
    const auto g = tape.gradient(sum(cast(y, DType::float32)), {w})[0];
    CHECK(g.dtype() == DType::float32);
    CHECK(g.to_vector()[1] == doctest::Approx(1 + 2 * std::exp(3.0)).epsilon(0.01));
    CHECK(where(less(x, cast(ones({2, 2}), type)), x, w).dtype() == type);
    CHECK(has(error_text([&] { return x + constant(w); }), "[add] element types differ"));
    CHECK(has(error_text([&] { return less(x, w); }), "[less] element types differ"));
  }
}

TEST_CASE("half: what has no 16-bit form says so by name") {
  for (const auto type : half_types) {
    const Tensor m = zeros({2, 2}, type);
    CHECK(has(error_text([&] { matmul(m, zeros({2, 2})); }), "[matmul] operands are floating-point of one type"));
    Parameters parameters;
    CHECK(has(error_text([&] { parameters.add("w", m, true); }), "[parameter] w is to be float32 or float64"));
    UseDevice dry(DeviceKind::dry);
    CHECK(sum(zeros({3}, type)).dtype() == type);
  }
}
