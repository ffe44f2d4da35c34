// bfloat16 and float16: the conversions against definitions in double precision, casts between all types, and the threads
// transport, which rounds at each step.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "comm/transport/transport.h"
#include "framework/tensor/random.h"
#include "ops/elementwise/elementwise.h"
#include "tests/framework/half_values.h"
#include "tests/support/errors.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

template <class T>
struct Format;
template <>
struct Format<BFloat16> {
  static constexpr int exponent_bits = 8, digits = 8, unit = -133;  // unit: the smallest subnormal, as a power of 2
};
template <>
struct Format<Float16> {
  static constexpr int exponent_bits = 5, digits = 11, unit = -24;
};

// x rounded to the nearest number of the format, ties to even; by the definition, in double.
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

// The number that a bit pattern represents.
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
  // Numbers between all neighbours, slightly on either side of the tie (float32 would round them to the tie), and beyond the
  // largest.
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
  CHECK(static_cast<int>(DType::bfloat16) == static_cast<int>(DType::boolean) + 1);  // the other types keep their numbers
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
            // The sign of a NaN that the processor makes from two NaNs is not specified.
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

TEST_CASE("to_vector<T>: elements as another type, if that holds them") {
  const auto x = from_vector({3}, {1.5, -2, std::nan("")}, DType::bfloat16);
  const auto floats = x.to_vector<float>();
  CHECK((floats[0] == 1.5F && floats[1] == -2 && std::isnan(floats[2])));
  CHECK(from_vector({2}, {-1, 300}, DType::int16).to_vector<std::int64_t>() == std::vector<std::int64_t>{-1, 300});
  CHECK(from_vector({2}, {0, 1}, DType::boolean).to_vector<bool>() == std::vector<bool>{false, true});
  CHECK(from_vector({1}, {0.1}, DType::float64).to_vector<float>() == std::vector<float>{0.1F});
  CHECK(has(error_text([&] { x.to_vector<std::int32_t>(); }), "1.5, which is not converted to int32"));
  const auto negative = from_vector({1}, {-1}, DType::int16);
  CHECK(has(error_text([&] { negative.to_vector<std::uint16_t>(); }), "not converted to uint16"));
  const auto large = from_vector({1}, {16777217}, DType::int64);
  CHECK(large.to_vector<double>() == std::vector<double>{16777217});
  CHECK(has(error_text([&] { large.to_vector<float>(); }), "not converted to float32"));
  const auto huge = full({1}, 1e300, DType::float64);
  CHECK(has(error_text([&] { huge.to_vector<float>(); }), "not converted to float32"));
}
