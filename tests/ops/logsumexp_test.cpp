// exp_scaled and sums of exponentials against the C library's exp in double: accuracy of our own exponential, ends of its range,
// long rows and columns, infinities and NaN.

#include "ops/softmax/logsumexp.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"
#include "ops/softmax/softmax.h"
#include "ops/views/views.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("exp_scaled: our exponential is that of the C library, to 2e-7") {
  std::vector<double> values;
  for (int i = -87 * 1024; i < 88 * 1024; ++i) values.push_back(static_cast<float>(i / 1024.0 + 1e-5 * (i % 7)));
  const auto n = static_cast<std::int64_t>(values.size());
  const auto x = from_vector({1, n}, values, DType::float32);
  for (const bool row : {true, false}) {
    const Shape shape = row ? Shape{1, 1} : Shape{1, n};
    const auto y = exp_scaled(x, zeros(shape, DType::float32), full(shape, 0.5, DType::float32)).to_vector();
    double worst = 0;
    for (std::size_t i = 0; i < values.size(); ++i) worst = std::max(worst, std::abs(2 * y[i] / std::exp(values[i]) - 1));
    CHECK(worst < 2e-7);
    CHECK(worst > 0);
  }
}

TEST_CASE("exp_scaled: the ends of its range") {
  const auto of = [](double x) {
    const auto one = ones({1, 1}, DType::float32);
    return exp_scaled(full({1, 1}, x, DType::float32), zeros_like(one), one).item();
  };
  CHECK(of(-infinity) == 0);
  CHECK(of(-88) == 0);
  CHECK(of(-87.3) > 0);
  CHECK(of(0) == 1);
  CHECK(of(88.7) == doctest::Approx(std::exp(88.7)).epsilon(1e-5));
  CHECK(of(89) == infinity);
  CHECK(of(infinity) == infinity);
  CHECK(std::isnan(of(std::nan(""))));
  const auto x = zeros({2, 3}, DType::float32), column = zeros({2, 1}, DType::float32), row = zeros({1, 3}, DType::float32);
  CHECK(has(error_text([&] { exp_scaled(x, column, row); }), "[exp_scaled] shift and scale must be a column or a row"));
  CHECK(has(error_text([&] { exp_scaled(x, cast(row, DType::float64), cast(row, DType::float64)); }), "[exp_scaled]"));
  CHECK(
      has(error_text([&] { exp_scaled(cast(x, DType::bfloat16), cast(column, DType::bfloat16), cast(column, DType::bfloat16)); }),
          "[exp_scaled] has no bfloat16 form"));
  CHECK(exp_scaled(zeros({0, 3}), zeros({0, 1}), zeros({0, 1})).elements() == 0);
}

TEST_CASE("logsumexp: rows and columns of any length") {
  for (const auto dtype : {DType::float32, DType::float64})
    for (const std::int64_t rows : {1, 7, 2500})
      for (const std::int64_t columns : {1, 33, 1300}) {
        const auto x = random_normal({rows, columns}, {.key = 7}, 0, 20, dtype);
        const auto values = x.to_vector(), of_rows = logsumexp(x, {1}).to_vector(), of_columns = logsumexp(x, {0}).to_vector();
        const double tolerance = dtype == DType::float64 ? 1e-13 : 1e-6;
        const auto expected = [&](std::int64_t first, std::int64_t step, std::int64_t count) {
          double largest = -infinity, sum = 0;
          for (std::int64_t i = 0; i < count; ++i)
            largest = std::max(largest, values[static_cast<std::size_t>(first + i * step)]);
          for (std::int64_t i = 0; i < count; ++i) sum += std::exp(values[static_cast<std::size_t>(first + i * step)] - largest);
          return largest + std::log(sum);
        };
        CAPTURE(rows);
        CAPTURE(columns);
        for (std::int64_t i = 0; i < rows; i += 97)
          CHECK(of_rows[static_cast<std::size_t>(i)] == doctest::Approx(expected(i * columns, 1, columns)).epsilon(tolerance));
        for (std::int64_t j = 0; j < columns; j += 97)
          CHECK(of_columns[static_cast<std::size_t>(j)] == doctest::Approx(expected(j, columns, rows)).epsilon(tolerance));
      }
}

TEST_CASE("logsumexp: NaN stays, nothing gives minus infinity and no NaN in derivatives") {
  for (const auto dtype : {DType::float32, DType::float64}) {
    const auto x = from_vector({2, 2}, {1, std::nan(""), -infinity, -infinity}, dtype);
    CHECK(std::isnan(logsumexp(x, {1}).to_vector()[0]));
    CHECK(std::isnan(logsumexp(x, {0}).to_vector()[1]));
    CHECK(logsumexp(x, {1}).to_vector()[1] == -infinity);
    CHECK(logsumexp(zeros({2, 0}, dtype), {1}).to_vector() == std::vector<double>{-infinity, -infinity});
    CHECK(logsumexp(zeros({0, 2}, dtype), {0}).to_vector() == std::vector<double>{-infinity, -infinity});
    const auto nothing = full({1, 3}, -infinity, dtype);
    Tape tape;
    const auto y = logsumexp(nothing, {1});
    CHECK(tape.vjp({y}, {ones_like(y)}, {nothing})[0].to_vector() == std::vector<double>{0, 0, 0});
  }
}

// Several dimensions, and 16-bit types, use another composition.
TEST_CASE("logsumexp: over several dimensions and in 16 bits as over one") {
  for (const auto dtype : {DType::float32, DType::float64, DType::bfloat16, DType::float16}) {
    INFO(std::string(name_of(dtype)));
    const double largest = dtype == DType::float64    ? std::numeric_limits<double>::max()
                           : dtype == DType::float16  ? 65504
                           : dtype == DType::bfloat16 ? 0x1.FEp127
                                                      : std::numeric_limits<float>::max();
    const std::vector<double> one[] = {
        {-infinity, -infinity}, {infinity, 1}, {-infinity, 2}, {largest, 0}, {-largest, -infinity}};
    const double values[] = {-infinity, infinity, 2, largest, -largest};
    for (std::size_t i = 0; i < 5; ++i) {
      CAPTURE(i);
      const auto x = from_vector({1, 1, 2}, one[i], dtype);
      Tape tape;
      const auto y = logsumexp(x, {1, 2});
      CHECK(y.item() == values[i]);
      const auto found = tape.vjp({y}, {ones_like(y)}, {x})[0].to_vector();
      if (i == 1) CHECK(std::isnan(found[0]));  // like infinity - infinity
      else CHECK(found[0] == (i == 0 || i == 2 ? 0 : 1));
      CHECK(found[1] == (i == 2 ? 1 : 0));
    }
    CHECK(std::isnan(logsumexp(from_vector({2, 1}, {infinity, std::nan("")}, dtype), {0, 1}).item()));
  }
}
