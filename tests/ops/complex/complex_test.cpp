// Complex tensors on one rank: values by NumPy 2.4, the convention of cotangents, refusals, files, printing. Derivatives of all
// ops are in the table of ops (op_rows_complex.cpp).

#include "ops/complex/complex.h"

#include <doctest/doctest.h>

#include <complex>
#include <filesystem>

#include "comm/check/taylor_test.h"
#include "models/data/sources/npy.h"
#include "ops/array/creation.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/gradient_check.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

using Values = std::vector<double>;

Tensor z_of(const Shape& shape, const Values& values, DType dtype = DType::complex128) {
  return from_vector(shape, values, dtype);
}
void check_values(const Tensor& z, const Values& expected, double tolerance = 1e-14) {
  const auto values = z.to_vector();
  REQUIRE(values.size() == expected.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    CHECK(std::abs(values[i] - expected[i]) <= tolerance * (1 + std::abs(expected[i])));
}

const Values a{1, 2, -3, 0.5, 0.25, -4}, b{2, -1, 0.5, 0.25, -1, 3};

}  // namespace

TEST_CASE("complex: arithmetic has NumPy's values, in both precisions") {
  for (const auto& [dtype, tolerance] : {std::pair{DType::complex128, 1e-14}, std::pair{DType::complex64, 1e-6}}) {
    const Tensor x = z_of({3}, a, dtype), y = z_of({3}, b, dtype);
    check_values(x * y, {4.0, 3.0, -1.625, -0.5, 11.75, 4.75}, tolerance);
    check_values(x / y, {0.0, 1.0, -4.4, 3.2, -1.225, 0.325}, tolerance);
    check_values(abs(x), {2.23606797749979, 3.0413812651491092, 4.00780488547035}, tolerance);
    check_values(x + 2, {3, 2, -1, 0.5, 2.25, -4}, tolerance);
    check_values(3 - x, {2, -2, 6, -0.5, 2.75, 4}, tolerance);
    check_values(2 / x, {0.4, -0.8, -0.6486486486486486, -0.10810810810810809, 0.0311284046692607, 0.4980544747081712},
                 tolerance);
    check_values(conj(x), {1, -2, -3, -0.5, 0.25, 4}, tolerance);
    check_values(x - y, {-1, 3, -3.5, 0.25, 1.25, -7}, tolerance);
    CHECK(abs(x).dtype() == real_type(dtype));
    CHECK((x * y).dtype() == dtype);
    CHECK(dot(x, y).item() == doctest::Approx(2 - 2 - 1.5 + 0.125 - 0.25 - 12));
  }
  const Tensor huge = z_of({1}, {3e200, 4e200});
  check_values(abs(huge), {5e200});
  check_values(huge / huge, {1, 0});
}

TEST_CASE("complex: promotion, conversions, special values") {
  const Tensor z64 = z_of({1}, {1, 2}, DType::complex64), z128 = z_of({1}, {1, 2});
  const Tensor f32 = ones({1}), f64 = ones({1}, DType::float64);
  CHECK((z64 + z128).dtype() == DType::complex128);
  CHECK((z64 * f32).dtype() == DType::complex64);
  CHECK((f64 * z64).dtype() == DType::complex128);
  CHECK((z64 / f64).dtype() == DType::complex128);
  check_values(cast(f32, DType::complex128), {1, 0});
  check_values(cast(z64, DType::complex128), {1, 2});
  check_values(ones({2}, DType::complex64), {1, 0, 1, 0});
  check_values(complex(f64, 3 * f64), {1, 3});
  check_values(imag(f64), {0});
  CHECK(z128.data<std::complex<double>>()[0] == std::complex<double>(1, 2));
  CHECK(std::isnan(abs(z_of({1}, {NAN, 1})).item()));
  check_values(sum(z_of({2, 2}, {1, 2, 3, 4, 5, 6, 7, 8}), {0}), {6, 8, 10, 12});
  check_values(mean(z_of({2}, {1, 2, 3, 4})), {2, 3});
  CHECK(has(error_text([&] { z64 + arange(1); }), "element types differ"));
}

TEST_CASE("complex: matmul has NumPy's values") {
  const Tensor x = z_of({2, 3}, {1, 1, 2, 0, 0, -1, 0, 0.5, -1, 0, 3, 2}),
               y = z_of({3, 2}, {1, 0, 0, 2, 0, -1, 1, 1, 2, 0, 0.5, -0.5});
  check_values(matmul(x, y), {1, -3, -0.5, 3.5, 6, 5.5, 0.5, -1.5});
  check_values(matmul(x, real(y)), {1, -1, 2, -0.5, 6, 4.5, 0.5, 1});
  check_values(matmul(transpose(y), x, {.transpose_b = true}), matmul(transpose(y), transpose(x)).to_vector());
  CHECK(has(error_text([&] { matmul(x, x); }), "inner extents differ"));
}

// Values of PyTorch: torch.autograd.grad(L, z) of L = |w z|^2 is 2 |w|^2 z, of L = Re(w z) is conj(w), of L = Im(z) is i.
TEST_CASE("complex: cotangents have PyTorch's convention") {
  const Tensor z = z_of({1}, {0.5, -1.5}), w = constant(z_of({1}, {2, 3}));
  const auto gradient = [&](const std::function<Tensor(const Tensor&)>& f) {
    const Tensor x = z.as_variable();
    Tape tape;
    return tape.gradient(sum(f(x)), {x})[0];
  };
  check_values(gradient([&](const Tensor& x) { return square(abs(w * x)); }), {13, -39}, 1e-13);
  check_values(gradient([&](const Tensor& x) { return real(w * x); }), {2, -3});
  check_values(gradient([&](const Tensor& x) { return imag(x); }), {0, 1});
  check_values(gradient([&](const Tensor& x) { return real(conj(x)); }), {1, 0});
  check_values(gradient([&](const Tensor& x) { return abs(x - constant(z)); }), {0, 0});  // at 0
  const Tensor r = ones({1}, DType::float64);
  Tape tape;
  const Tensor g = tape.gradient(sum(real(w * r)), {r})[0];
  CHECK(g.dtype() == DType::float64);
  CHECK(g.item() == 2);
}

TEST_CASE("complex: what is not defined is refused by name") {
  const Tensor z = z_of({2}, {1, 2, 3, 4});
  for (const auto& [name, f] : std::vector<std::pair<std::string, std::function<Tensor()>>>{
           {"exp", [&] { return exp(z); }},
           {"floor", [&] { return floor(z); }},
           {"sign", [&] { return sign(z); }},
           {"where", [&] { return where(constant(ones({2}, DType::boolean)), z, z); }},
           {"maximum", [&] { return maximum(z, z); }},
           {"less", [&] { return Tensor(z < z); }},
           {"max/min", [&] { return max(z); }},
           {"leaky_relu", [&] { return relu(z); }},
           {"pow", [&] { return pow(z, 3); }},
           {"argmax", [&] { return argmin(z, 0); }},
           {"bitwise_invert", [&] { return bitwise_invert(z); }},
           {"cast", [&] { return cast(z, DType::float64); }},
           {"pad", [&] { return pad(z, {1}, {0}, 2); }},
           {"item", [&] { return full({}, slice(z, 0, 0, 1).item()); }},
           {"view_as_complex", [&] { return view_as_complex(ones({2, 3})); }},
           {"complex", [&] { return complex(ones({2}), ones({2}, DType::float64)); }}}) {
    const auto text = error_text([&f = f] { f(); });
    INFO(name, ": ", text);
    CHECK(has(text, "[" + name + "]"));
    CHECK(has(text, name == "item" || name == "view_as_complex" || name == "complex" ? "" : "complex"));
  }
  Tape tape;
  const Tensor x = z.as_variable();
  const Tensor y = sum(x * x);
  CHECK(has(error_text([&] { tape.gradient(y, {x}); }), "the objective is real"));
}

TEST_CASE("complex: views, memory and files keep the numbers") {
  const Tensor x = random_normal({4, 3, 2}, {.key = 3}, 0, 1, DType::float64);
  const Tensor z = view_as_complex(x);
  CHECK(z.raw() == x.raw());
  CHECK(view_as_real(z).raw() == x.raw());
  CHECK(random_normal({4, 3}, {.key = 3}, 0, 1, DType::complex128).to_vector() == x.to_vector());
  CHECK(permute(z, {1, 0}).to_vector() == permute(x, {1, 0, 2}).to_vector());
  CHECK(slice(z, 0, 1, 3).to_vector() == slice(x, 0, 1, 3).to_vector());
  CHECK(pad(z, {1, 0}, {0, 2}).to_vector() == pad(x, {1, 0, 0}, {0, 2, 0}).to_vector());
  CHECK(take(z, from_vector({2}, {3, 0}, DType::int64)).to_vector() ==
        take(x, from_vector({2}, {3, 0}, DType::int64)).to_vector());
  // Real numbers that begin in the middle of a complex one are copied.
  Values numbers(7);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>(i);
  for (const std::int64_t first : {0, 1}) {
    const Tensor part = Tensor::over(numbers.data() + first, {3, 2}, DType::float64);
    CHECK(view_as_complex(part).to_vector() == part.to_vector());
  }
  const Folder folder;
  for (const auto dtype : {DType::complex64, DType::complex128}) {
    const Tensor saved = cast(z, dtype);
    const auto path = folder.path / (std::string(name_of(dtype)) + ".npy");
    write_npy(path, saved);
    const Tensor loaded = read_npy(path);
    CHECK(loaded.type() == saved.type());
    CHECK(loaded.to_vector() == saved.to_vector());
  }
  CHECK(fmt::format("{}", z_of({2}, {1, -2.5, 0, 3})) == "[1.0-2.5i 0.0+3.0i] complex128 [2]");
}
