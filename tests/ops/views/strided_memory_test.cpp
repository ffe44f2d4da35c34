// Copies between tensors and arrays with gaps, in all element types.

#include "ops/views/strided_memory.h"

#include <doctest/doctest.h>

#include <numeric>

#include "ops/views/to_device.h"
#include "ops/views/views.h"
#include "tests/support/errors.h"
#include "tests/support/gpu.h"
#include "tests/support/random.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

// A random array and a random strided part of it: the offset of its first element and its strides.
struct Part {
  Shape whole, shape;
  std::vector<std::int64_t> strides;
  std::int64_t offset = 0;
  // The place in the array of the element with row-major index i.
  std::int64_t place(std::int64_t i) const {
    std::int64_t at = offset;
    for (int d = shape.rank() - 1; d >= 0; --d) {
      at += i % shape[d] * strides[static_cast<std::size_t>(d)];
      i /= shape[d];
    }
    return at;
  }
};

Part random_part(std::uint64_t seed) {
  const Philox random{.key = seed};
  std::uint64_t next = 0;
  const auto pick = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random.below(next++, static_cast<std::uint64_t>(n)));
  };
  Part part;
  const auto rank = static_cast<int>(pick(5));
  for (int d = 0; d < rank; ++d) part.whole.push_back(1 + pick(7));
  const auto own = part.whole.strides();
  for (int d = 0; d < rank; ++d) {  // ghost layers, every second element, backwards
    const auto ghosts = part.whole[d] > 2 ? pick(2) : 0, step = 1 + pick(2),
               extent = (part.whole[d] - 2 * ghosts + step - 1) / step;
    const bool backwards = pick(4) == 0;
    part.shape.push_back(extent);
    part.strides.push_back((backwards ? -step : step) * own[static_cast<std::size_t>(d)]);
    part.offset += (ghosts + (backwards ? (extent - 1) * step : 0)) * own[static_cast<std::size_t>(d)];
  }
  return part;
}

// One part in one type: the tensor has the array's elements, and what it writes goes where it came from and nowhere else.
void check_part(const Part& part, DType dtype, DeviceKind device) {
  visit_any(dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto in_memory = to(cast(arange(part.whole.elements(), DType::int32), dtype), device);
    const auto* first = in_memory.raw() + part.offset * size_of(dtype);
    const auto x = from_strided(first, part.shape, part.strides, dtype, device);
    const auto values = to(in_memory, DeviceKind::cpu), taken = to(x, DeviceKind::cpu);
    REQUIRE(x.type() == TensorType{part.shape, dtype});
    for (std::int64_t i = 0; i < x.elements(); ++i)
      REQUIRE(static_cast<double>(taken.data<T>()[i]) == static_cast<double>(values.data<T>()[part.place(i)]));

    const UseDevice here(device);
    const auto target = full(part.whole, 1, dtype);
    to_strided(x, target.raw() + part.offset * size_of(dtype), part.strides);
    const auto written = to(target, DeviceKind::cpu);
    std::vector<double> expected(static_cast<std::size_t>(part.whole.elements()), 1);
    for (std::int64_t i = 0; i < x.elements(); ++i)
      expected[static_cast<std::size_t>(part.place(i))] = static_cast<double>(values.data<T>()[part.place(i)]);
    REQUIRE(written.to_vector() == expected);
  });
}

void check_parts(DeviceKind device, int count) {
  for (int i = 0; i < count; ++i) {
    const auto part = random_part(static_cast<std::uint64_t>(i));
    CAPTURE(part.whole);
    CAPTURE(part.shape);
    for (const DType dtype : {DType::float64, DType::float32, DType::bfloat16, DType::uint8}) check_part(part, dtype, device);
  }
}

}  // namespace

TEST_CASE("strided memory: random parts of random arrays, in and out") { check_parts(DeviceKind::cpu, 60); }
TEST_CASE("gpu: strided memory: random parts of random arrays, in and out") {
  if (no_gpu("strided memory on a GPU")) return;
  check_parts(DeviceKind::cuda, cases(40));
}

TEST_CASE("strided memory: the interior of a Fortran array a(nx, ny) with ghost cells is [ny, nx]") {
  constexpr std::int64_t nx = 3, ny = 2;
  std::vector<double> a((nx + 2) * (ny + 2));
  for (std::int64_t j = 0; j < ny + 2; ++j)
    for (std::int64_t i = 0; i < nx + 2; ++i) a[static_cast<std::size_t>(i + j * (nx + 2))] = static_cast<double>(10 * i + j);
  const auto x = from_strided(&a[1 + (nx + 2)], {ny, nx}, {nx + 2, 1}, DType::float64);
  CHECK(x.to_vector() == std::vector<double>{11, 21, 31, 12, 22, 32});
}

TEST_CASE("strided memory: what cannot be meant is refused") {
  std::vector<double> a(12);
  const auto f64 = DType::float64;
  CHECK(error_text([&] {
          from_strided(a.data(), {2, 3}, {3}, f64);
        }) == "[from_strided] 1 strides for float64 [2, 3]: one for each dimension");
  CHECK(error_text([&] {
          from_strided(nullptr, {2, 3}, {3, 1}, f64);
        }) == "[from_strided] the memory is a null pointer: float64 [2, 3]");
  CHECK(error_text([&] { from_strided(a.data(), {2}, {1}, f64, DeviceKind::dry); }).starts_with("[from_strided] the dry device"));
  const auto x = ones({2, 3}, f64);
  CHECK(error_text([&] {
          to_strided(x, a.data(), {2, 1});
        }) == "[to_strided] with the strides 2, 1 two elements may share a place: float64 [2, 3]");
  CHECK(error_text([&] { to_strided(x, a.data(), {0, 1}); }).find("may share a place") != std::string::npos);
  CHECK(error_text([&] { to_strided({}, a.data(), {}); }) == "[to_strided] this is no tensor");
  CHECK(from_strided(a.data(), {2, 3}, {0, 1}, f64).elements() == 6);  // reading an element twice is allowed
  CHECK(from_strided(nullptr, {0, 3}, {3, 1}, f64).elements() == 0);
  to_strided(zeros({3, 0, 2}, f64), a.data(), {3, 3, 3});  // no elements share a place
}
