// bfloat16 and float16: the conversions against definitions in double precision, the ops against float32 rounded once, and what
// is refused.

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "comm/launch.h"
#include "framework/engine/parameter.h"
#include "framework/engine/tape.h"
#include "ops/conv/conv.h"
#include "ops/elementwise/activation_adjoints.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/loss/loss.h"
#include "ops/pool/pool.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"
#include "tests/support/errors.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr DType half_types[] = {DType::bfloat16, DType::float16};

template <class T>
struct Format;
template <>
struct Format<BFloat16> {
  static constexpr int exponent_bits = 8, digits = 8, unit = -133;  // unit: of the subnormals, as a power of 2
};
template <>
struct Format<Float16> {
  static constexpr int exponent_bits = 5, digits = 11, unit = -24;
};

// x to the nearest number of the format, ties to even; by the definition, in double.
template <class T>
double nearest(double x) {
  using F = Format<T>;
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent = 0;
  std::frexp(x, &exponent);
  const int unit = std::max(exponent - F::digits, F::unit);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(x, -unit)), unit);
  return std::abs(rounded) >= std::ldexp(1.0, 1 << (F::exponent_bits - 1)) ? std::copysign(infinity, x) : rounded;
}

// The number that a bit pattern stands for.
template <class T>
double meaning(std::uint16_t bits) {
  using F = Format<T>;
  const int fraction_bits = F::digits - 1, fraction = bits & ((1 << fraction_bits) - 1);
  const int exponent = (bits >> fraction_bits) & ((1 << F::exponent_bits) - 1);
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == (1 << F::exponent_bits) - 1) return fraction == 0 ? sign * infinity : std::nan("");
  if (exponent == 0) return sign * std::ldexp(fraction, F::unit);
  return sign * std::ldexp((1 << fraction_bits) + fraction, F::unit + exponent - 1);
}

// Equal, the sign of zero included, or both NaN.
bool same(double a, double b) { return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b); }

bool same(const Tensor& a, const Tensor& b) {
  if (a.type() != b.type()) return false;
  const auto x = a.to_vector(), y = b.to_vector();
  for (std::size_t i = 0; i < x.size(); ++i)
    if (!same(x[i], y[i])) return false;
  return true;
}

Tensor numbers(const Shape& shape, DType dtype, std::uint64_t key = 1) { return random_normal(shape, {.key = key}, 0, 2, dtype); }
Tensor wide(const Tensor& x) { return cast(x, DType::float32); }

}  // namespace

TEST_CASE_TEMPLATE("half: every bit pattern means what the format says, and converts there and back", T, BFloat16, Float16) {
  for (int i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const float x = T::from_bits(bits);
    const double expected = meaning<T>(bits);
    bool right = same(x, expected);
    if (std::isnan(expected)) {
      const T back(x);
      right = right && std::isnan(float(back)) && std::isnan(float(T(double{x}))) && (back.bits() & 0x8000) == (bits & 0x8000);
    } else {
      right = right && T(x).bits() == bits && T(double{x}).bits() == bits;
    }
    if (!right) FAIL_CHECK("pattern ", i, " is ", x, ", not ", expected);
  }
}

TEST_CASE_TEMPLATE("half: rounding is to the nearest, ties to even, once", T, BFloat16, Float16) {
  int wrong = 0;
  const auto check = [&](double x) {
    if (!same(float(T(x)), nearest<T>(x))) ++wrong;
    const auto narrow = static_cast<float>(x);
    if (!same(float(T(narrow)), nearest<T>(narrow))) ++wrong;
  };
  // Between all neighbours, a little to either side of the tie, which in float32 would be one; and beyond the largest.
  for (std::uint16_t bits = 0; bits + 1 < (meaning<T>(0x7C00) == infinity ? 0x7C00 : 0x7F80); ++bits) {
    const double a = meaning<T>(bits), b = meaning<T>(static_cast<std::uint16_t>(bits + 1)), middle = (a + b) / 2;
    for (const double x : {a, middle, std::nextafter(middle, a), std::nextafter(middle, b),
                           double{std::nextafter(static_cast<float>(middle), 0.0F)},
                           double{std::nextafter(static_cast<float>(middle), std::numeric_limits<float>::infinity())}})
      check(x), check(-x);
  }
  for (const double x : {65504.0, 65519.99, 65520.0, 65536.0, 3.3895313892515355e38, 3.3961775292304601e38, 3.4e38, 1e300, 1e-300,
                         infinity, 5e-324, 2.9802322387695312e-08, 2.98023223876954e-08, 4.59e-41, 4.6e-41})
    check(x), check(-x);
  const Philox random{.key = 7};
  for (std::uint64_t i = 0; i < 500000; ++i) {
    const auto words = random.words(i);
    float x = 0;
    std::memcpy(&x, &words[0], sizeof x);
    if (!std::isnan(x)) check(x);
    check((random.uniform(i) - 0.5) * std::ldexp(1.0, static_cast<int>(words[1] % 60) - 40));
  }
  CHECK(wrong == 0);
}

TEST_CASE("half: integers round once, whatever their size") {
  CHECK(float(Float16(2049)) == 2048);
  CHECK(float(Float16(2051)) == 2052);
  CHECK(float(BFloat16(true)) == 1);
  CHECK(std::isinf(float(Float16(65520))));
  const std::int64_t tie = (std::int64_t{1} << 62) + (std::int64_t{1} << 54);  // between two bfloat16
  CHECK(float(BFloat16(tie)) == 0x1p62F);
  CHECK(float(BFloat16(tie + 1)) == 0x1.02p62F);
  CHECK(float(BFloat16(-tie)) == -0x1p62F);
  CHECK(float(BFloat16(-tie - 1)) == -0x1.02p62F);
  CHECK(float(BFloat16(tie - 1)) == 0x1p62F);
  CHECK(float(BFloat16(std::numeric_limits<std::int64_t>::min())) == -0x1p63F);
}

TEST_CASE("half: types, names and tensors") {
  CHECK(name_of(DType::bfloat16) == "bfloat16");
  CHECK(name_of(DType::float16) == "float16");
  CHECK(static_cast<int>(DType::bfloat16) == static_cast<int>(DType::boolean) + 1);  // the others keep their numbers
  for (const auto type : half_types) {
    CHECK(size_of(type) == 2);
    CHECK(is_floating(type));
    CHECK(full({3}, 1.5, type).to_vector() == std::vector<double>{1.5, 1.5, 1.5});
    CHECK(zeros({2}, type).to_vector() == std::vector<double>{0, 0});
    CHECK(ones_like(zeros({1}, type)).item() == 1);
    CHECK(arange(4, type).to_vector() == std::vector<double>{0, 1, 2, 3});
    CHECK(from_vector({2}, {1 + 0x1p-12, -3}, type).to_vector() == std::vector<double>{1, -3});
  }
  CHECK(to_string(zeros({2, 3}, DType::bfloat16)).starts_with("bfloat16 [2, 3]"));
  CHECK(from_vector({1}, {70000}, DType::float16).item() == infinity);
  CHECK(zeros({1}, DType::float16).data<Float16>()->bits() == 0);
  CHECK(has(error_text([] { zeros({1}, DType::float16).data<BFloat16>(); }), "elements are float16, accessed as bfloat16"));
}

TEST_CASE("half: cast between all types") {
  const std::vector<double> values{0, 1, 2.5, 100, 255};
  const Tensor x = from_vector({5}, values, DType::float64);
  for (const auto half : half_types)
    for (const auto other : {DType::float32, DType::float64, DType::int64, DType::int32, DType::int16, DType::uint8,
                             DType::boolean, DType::bfloat16, DType::float16, DType::uint16}) {
      CAPTURE(name_of(other));
      CHECK(same(cast(cast(x, half), other), cast(x, other)));
      CHECK(same(cast(cast(x, other), half), cast(cast(cast(x, other), DType::float64), half)));
    }
  CHECK(cast(from_vector({1}, {1 + 0x1p-8 + 0x1p-40}, DType::float64), DType::bfloat16).item() == 1 + 0x1p-7);  // rounded once
  CHECK(same(cast(from_vector({3}, {infinity, std::nan(""), 1e30}), DType::float16),
             from_vector({3}, {infinity, std::nan(""), infinity}, DType::float16)));
}

TEST_CASE("half: elementwise ops are float32 ones, rounded once") {
  // Of less than a block, and of several blocks, whose ends are not those of rows.
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
      check(leaky_relu_adjoint(a, b, 0.25), leaky_relu_adjoint(wide(a), wide(b), 0.25));
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
    check("leaky_relu_adjoint", [&] { return leaky_relu_adjoint(a, a, 0.5); });
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
    CHECK(mean(full({4096}, 100, type)).item() == 100);  // the sum is beyond float16
    CHECK(sum(full({70000}, 0x1p-3, type)).item() == (type == DType::float16 ? 8752 : 8768));  // 8750
    const Tensor row = numbers({1, 8}, type);
    CHECK(same(broadcast_to(row, {3, 8}), cast(broadcast_to(wide(row), {3, 8}), type)));
    const Tensor y = numbers({3, 5}, type);
    CHECK(logsumexp(full({1, 2}, -infinity, type), {1}).item() == -infinity);
    CHECK(std::abs(logsumexp(y, {1}).to_vector()[0] - logsumexp(wide(y), {1}).to_vector()[0]) < 0.1);
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
    const Tensor y = sum(low * x + low * cast(b, type));  // low is used twice: its cotangents are added in the type
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

TEST_CASE_TEMPLATE("half: the threads transport reduces in rank order and rounds at each step", T, BFloat16, Float16) {
  constexpr std::int64_t n = 3000;
  const auto number = [](int rank, std::int64_t i) {
    if (i % 11 == 0 && rank == i % 5) return T(std::numeric_limits<float>::quiet_NaN());
    return T(1.0F / static_cast<float>(1 + i + 1000 * rank) - 1e-3F);
  };
  for (const int ranks : {1, 2, 3, 4, 5})
    for (const auto op : {CombineOp::sum, CombineOp::max, CombineOp::min, CombineOp::prod}) {
      std::vector<T> expected;
      for (std::int64_t i = 0; i < n; ++i) {
        T total = number(0, i);
        for (int r = 1; r < ranks; ++r) {
          const float a = total, b = number(r, i);
          const float larger = std::isnan(a) || a > b ? a : b, smaller = std::isnan(a) || a < b ? a : b;
          total = T(op == CombineOp::sum ? a + b : op == CombineOp::prod ? a * b : op == CombineOp::max ? larger : smaller);
        }
        expected.push_back(total);
      }
      run_threads(ranks, [&](std::shared_ptr<Transport> t) {
        constexpr auto type = dtype_of<T>();
        std::vector<T> x, all(n), later(n), part(n);
        for (std::int64_t i = 0; i < n; ++i) x.push_back(number(t->rank(), i));
        const auto check = [&](const std::vector<T>& got, std::int64_t first, std::int64_t count, const char* call) {
          for (std::int64_t i = 0; i < count; ++i) {
            const auto a = got[static_cast<std::size_t>(i)], b = expected[static_cast<std::size_t>(first + i)];
            // The sign of a NaN that the processor makes from two is nobody's business.
            require(a.bits() == b.bits() || (a != a && b != b), "[test] {} {} of {}: {} is {}, not {}", call, name_of(op), ranks,
                    first + i, float(a), float(b));
          }
        };
        auto pending = t->start_allreduce(x.data(), later.data(), n, type, op);
        t->allreduce(x.data(), all.data(), n, type, op);
        pending.wait();
        check(all, 0, n, "allreduce");
        check(later, 0, n, "start_allreduce");
        std::vector<T> rooted(n);
        t->reduce(x.data(), rooted.data(), n, type, op, 0);
        if (t->rank() == 0) check(rooted, 0, n, "reduce");
        std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks), n / ranks);
        counts.back() += n % ranks;
        t->reduce_scatter(x.data(), part.data(), counts, type, op);
        check(part, t->rank() * (n / ranks), counts[static_cast<std::size_t>(t->rank())], "reduce_scatter");
      });
    }
}
