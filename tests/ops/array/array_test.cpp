// Statistics and special functions: derivatives where they are not smooth, refusals, and stored values.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "framework/engine/tape.h"
#include "ops/array/creation.h"
#include "ops/array/derivatives.h"
#include "ops/array/padding.h"
#include "ops/array/shapes.h"
#include "ops/array/statistics.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"
#include "tests/support/distributed.h"
#include "tests/support/errors.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

constexpr auto f64 = DType::float64;
constexpr double infinity = std::numeric_limits<double>::infinity(), none = std::numeric_limits<double>::quiet_NaN();
using Doubles = std::vector<double>;

Tensor vector(const Doubles& values, DType dtype = f64) {
  return from_vector({static_cast<std::int64_t>(values.size())}, values, dtype);
}
Doubles gradient_of(const FunctionOfTensor& f, const Tensor& x) { return grad(f)(x).to_vector(); }

}  // namespace

TEST_CASE("statistics: the derivatives of products with zeros") {
  const auto product = [](const Tensor& x) { return prod(x); };
  CHECK(gradient_of(product, vector({2, 0, 3})) == Doubles{0, 6, 0});
  CHECK(gradient_of(product, vector({0, 0, 3})) == Doubles{0, 0, 0});
  CHECK(hessian(product, vector({2, 0, 3})).to_vector() == Doubles{0, 3, 0, 3, 0, 2, 0, 2, 0});
  const auto products = [](const Tensor& x) { return sum(cumulative_prod(x, 0)); };  // x0 + x0 x1 + x0 x1 x2
  CHECK(gradient_of(products, vector({2, 0, 3})) == Doubles{1, 2 + 6, 0});
}

TEST_CASE("statistics: norms, and their derivative at 0") {
  const Tensor x = vector({3, -4, 0});
  CHECK(vector_norm(x).item() == 5);
  CHECK(vector_norm(x, 1).item() == 7);
  CHECK(vector_norm(x, 3).item() == doctest::Approx(std::cbrt(91)));
  CHECK(vector_norm(x, infinity).item() == 4);
  CHECK(vector_norm(x, -infinity).item() == 0);
  CHECK(vector_norm(x, 0).item() == 2);
  CHECK(std::isnan(vector_norm(vector({1, none})).item()));
  for (const double order : {1.0, 2.0, 3.0, infinity, -infinity}) {
    CAPTURE(order);
    CHECK(gradient_of([&](const Tensor& y) { return vector_norm(y, order); }, vector({0, 0})) == Doubles{0, 0});
  }
  CHECK(has(error_text([] { vector_norm(vector({1, 2}, DType::int32)); }), "[vector_norm] of order 2"));
}

TEST_CASE("statistics: a list of one dimension is not a number") {
  const Tensor x = reshape(arange(6, f64), {2, 3});
  CHECK(var(x, {1}).shape() == Shape{2});
  CHECK(stddev(x, {0}, 1, true).shape() == Shape{1, 3});
  CHECK(vector_norm(x, {1}, 1).to_vector() == Doubles{3, 12});
  CHECK(split(x, {2}).size() == 1);
  CHECK(split(x, 2).size() == 2);
  CHECK(var(x).item() == doctest::Approx(35.0 / 12));
  CHECK(var(x, 1).item() == doctest::Approx(3.5));
}

TEST_CASE("elementwise: logaddexp of infinities, and its derivatives") {
  const Tensor a = vector({-infinity, -infinity, infinity, infinity, 1000, 1}),
               b = vector({-infinity, 1, -infinity, infinity, 1000, none});
  Tape tape;
  const Tensor y = logaddexp(a, b);
  const auto values = y.to_vector();
  CHECK(values[0] == -infinity);
  CHECK(values[1] == 1);
  CHECK(values[2] == infinity);
  CHECK(values[3] == infinity);
  CHECK(values[4] == doctest::Approx(1000 + std::log(2)).epsilon(1e-15));
  CHECK(std::isnan(values[5]));
  const auto g = tape.vjp({y}, {ones_like(y)}, {a, b});
  const Doubles first{0.5, 0, 1, 0.5, 0.5}, second{0.5, 1, 0, 0.5, 0.5};
  for (std::size_t i = 0; i < first.size(); ++i) {
    CHECK(g[0].to_vector()[i] == first[i]);
    CHECK(g[1].to_vector()[i] == second[i]);
  }
}

TEST_CASE("shapes: an index out of range names no other element") {
  const Tensor x = reshape(arange(12, f64), {3, 4});
  for (const int axis : {0, 1})
    for (const double wrong : {-1.0, axis == 0 ? 3.0 : 4.0, 1e12}) {
      CAPTURE(axis);
      CAPTURE(wrong);
      auto index = zeros(axis == 0 ? Shape{1, 4} : Shape{3, 1}, DType::int64).to_vector();
      CHECK(take_along_axis(x, from_vector(axis == 0 ? Shape{1, 4} : Shape{3, 1}, index, DType::int64), axis).elements() ==
            static_cast<std::int64_t>(index.size()));
      index[1] = wrong;
      const Tensor indices = from_vector(axis == 0 ? Shape{1, 4} : Shape{3, 1}, index, DType::int64);
      CHECK(has(error_text([&] { take_along_axis(x, indices, axis); }), "outside"));
    }
  CHECK(has(error_text([&] { take_along_axis(x, arange(4), 1); }), "[take_along_axis] indices"));
}

TEST_CASE("shapes: padding by other modes") {
  const Tensor x = vector({1, 2, 3});
  const auto padded = [&](PaddingMode mode) { return pad(x, Shape{2}, Shape{2}, mode).to_vector(); };
  CHECK(padded(PaddingMode::replicate) == Doubles{1, 1, 1, 2, 3, 3, 3});
  CHECK(padded(PaddingMode::reflect) == Doubles{3, 2, 1, 2, 3, 2, 1});
  CHECK(padded(PaddingMode::symmetric) == Doubles{2, 1, 1, 2, 3, 3, 2});
  CHECK(padded(PaddingMode::circular) == Doubles{2, 3, 1, 2, 3, 1, 2});
  CHECK(has(error_text([&] { pad(x, Shape{3}, Shape{0}, PaddingMode::reflect); }),
            "[pad] reflect padding adds at most 2 elements at an end of dimension 0, which has 3; 3 are asked for"));
}

TEST_CASE("statistics: a histogram counts") {
  auto values = global_tensor({200}, 3).to_vector();
  values.insert(values.end(), {-1, 1, 0.25, -0.5, 1.5, -1.5, none, infinity, -infinity});
  constexpr int bins = 8;
  Doubles counts(bins);
  for (const double value : values)
    for (int i = 0; i < bins; ++i) {
      const double low = -1 + 0.25 * i, high = low + 0.25;
      if (value >= low && (value < high || (i == bins - 1 && value == high))) ++counts[static_cast<std::size_t>(i)];
    }
  const Tensor found = histogram(vector(values), bins, -1, 1);
  CHECK(found.dtype() == DType::int64);
  CHECK(found.to_vector() == counts);
  CHECK(histogram(vector({1, 2, 2}, DType::uint8), 2, 0, 4).to_vector() == Doubles{1, 2});
  CHECK(histogram(vector({}), 3, 0, 1).to_vector() == Doubles{0, 0, 0});
  CHECK(has(error_text([] { histogram(vector({1}), 0, 0, 1); }), "[histogram] 0 bins"));
}

TEST_CASE("elementwise: special functions against values of 40 digits") {
  enum Function { psi, inverse, gamma, complement };
  struct Value {
    Function f;
    int order;
    double x, y;
  };
  // Values of mpmath 1.4.1, mp.dps = 40, at the double x: polygamma(order, x), erfinv(x), log(abs(gamma(x))), erfc(x).
  const std::vector<Value> stored{
      {psi, 0, 0.001, -1000.5755719318103},
      {psi, 0, 1.0, -0.57721566490153286},
      {psi, 0, 3.5, 1.1031566406452432},
      {psi, 0, 11.75, 2.4206968934226321},
      {psi, 0, 1000000.0, 13.815510057964191},
      {psi, 0, -0.25, 2.9141391202135278},
      {psi, 0, -3.75, -1.6923885983113303},
      {psi, 1, 0.001, 1.0000016425331958e+6},
      {psi, 1, 1.0, 1.6449340668482264},
      {psi, 1, 3.5, 0.33035775610023486},
      {psi, 1, 11.75, 0.088830522079623873},
      {psi, 1, 1000000.0, 1.0000005000001667e-6},
      {psi, 1, -0.25, 18.541879647671606},
      {psi, 1, -3.75, 19.504980060599575},
      {psi, 2, 0.001, -2.0000000023976322e+9},
      {psi, 2, 1.0, -2.4041138063191886},
      {psi, 2, 3.5, -0.1082040516417274},
      {psi, 2, 11.75, -7.8856985059073842e-3},
      {psi, 2, 1000000.0, -1.0000010000005e-12},
      {psi, 2, -0.25, 122.69736678366236},
      {psi, 2, -3.75, -124.07972713378925},
      {psi, 7, 0.001, 5.0399999999999992e+27},
      {psi, 7, 1.0, 5060.5498752376395},
      {psi, 7, 3.5, 0.26222195252313135},
      {psi, 7, 11.75, 3.099902484602115e-5},
      {psi, 7, 1000000.0, 7.2000252000336e-40},
      {psi, 7, -0.25, 3.3035184214649966e+8},
      {psi, 7, -3.75, 3.3035269583002256e+8},
      {inverse, 0, 1e-12, 8.86226925452758e-13},
      {inverse, 0, 1e-07, 8.8622692545276029e-8},
      {inverse, 0, 0.1, 0.088855990494257692},
      {inverse, 0, 0.45, 0.42268023864756189},
      {inverse, 0, 0.55, 0.53415908774970242},
      {inverse, 0, 0.999, 2.3267537655135245},
      {inverse, 0, 0.999999999, 4.320005388105362},
      {inverse, 0, 0.9999999999999999, 5.8635847487551679},
      {inverse, 0, -0.3, -0.27246271472675435},
      {inverse, 0, -0.99, -1.8213863677184495},
      {gamma, 0, 1e-08, 18.420680738180209},
      {gamma, 0, 0.5, 0.57236494292470009},
      {gamma, 0, 3.5, 1.2009736023470742},
      {gamma, 0, 170.25, 702.72066167768046},
      {gamma, 0, 10000000000.0, 2.2025850928881058e+11},
      {gamma, 0, -0.5, 1.2655121234846454},
      {gamma, 0, -3.75, -1.3172679424463637},
      {gamma, 0, -20.25, -41.600961915340524},
      {complement, 0, -2.0, 1.9953222650189527},
      {complement, 0, 0.5, 0.47950012218695346},
      {complement, 0, 3.0, 2.2090496998585441e-5},
      {complement, 0, 10.0, 2.0884875837625448e-45},
      {complement, 0, 26.0, 5.6631924088561428e-296},
  };
  for (const auto& [f, order, x, y] : stored) {
    const Tensor at = full({1}, x, f64);
    const Tensor found = f == psi ? polygamma(order, at) : f == inverse ? erfinv(at) : f == gamma ? lgamma(at) : erfc(at);
    INFO("function ", static_cast<int>(f), " of order ", order, " at ", x);
    CHECK(std::abs(found.item() - y) <= 3e-14 * std::abs(y));
  }
  CHECK(digamma(full({1}, 1.4616321449683623, f64)).item() == doctest::Approx(0).epsilon(1e-15));  // the zero of digamma
  CHECK(erfinv(vector({1, -1, 0})).to_vector() == Doubles{infinity, -infinity, 0});
  CHECK(std::isnan(erfinv(vector({1.5})).item()));
  CHECK(std::isnan(polygamma(0, vector({-2})).item()));
  CHECK(polygamma(1, vector({0})).item() == infinity);
  CHECK(lgamma(vector({-2})).item() == infinity);
  CHECK(has(error_text([] { polygamma(-1, vector({1})); }), "[polygamma] the order is from 0 to 100"));
}

TEST_CASE("statistics: of 16 bits and of equal elements") {
  CHECK(var(from_vector({2}, {256, 258}, DType::bfloat16)).item() == 1);
  CHECK(stddev(full({1000}, 100, DType::float16)).item() == 0);
  CHECK(vector_norm(full({1000}, 100, DType::float16)).item() == doctest::Approx(3162).epsilon(1e-3));
  const Tensor x = full({3}, 2, DType::float64);
  Tape tape;
  CHECK(tape.gradient(stddev(x), {x})[0].to_vector() == std::vector<double>{0, 0, 0});
}
