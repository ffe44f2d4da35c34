// C++ numbers as operands, type promotion, operators, and conditions.

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "framework/engine/tape.h"
#include "ops/array/creation.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "tests/support/errors.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

template <class T>
concept Condition = requires(const T& x) {
  x ? 1 : 0;
};
static_assert(Condition<Tensor> && !Condition<Mask> && !Condition<decltype(all(Tensor()))> &&
              !Condition<decltype(isnan(Tensor()))>);

constexpr auto f32 = DType::float32, f64 = DType::float64;
using Doubles = std::vector<double>;
using Longs = std::vector<std::int64_t>;

Tensor integers(DType dtype) { return from_vector({3}, {1, 2, 100}, dtype); }

bool refuses(const std::string& part, const std::function<void()>& body) {
  const auto text = error_text(body);
  INFO(text);
  CHECK(has(text, part));
  return has(text, part);
}

}  // namespace

TEST_CASE("numbers: they take the type of the tensor beside them") {
  for (const auto type : {f32, f64, DType::bfloat16, DType::int64, DType::int32, DType::int16, DType::uint8}) {
    const Tensor x = integers(type);
    CAPTURE(name_of(type));
    const std::vector<Tensor> results{x + 1,
                                      1 + x,
                                      x - 1,
                                      200 - x,
                                      x * 2,
                                      2 * x,
                                      x / 2,
                                      100 / x,
                                      x % 7,
                                      7 % x,
                                      maximum(x, 3),
                                      minimum(3, x),
                                      floor_divide(x, 2),
                                      pow(x, 2),
                                      clamp(x, 2, 5),
                                      full_like(x, 7),
                                      where(x < 2, x, 1),
                                      where(x < 2, 1, x)};
    for (const auto& y : results) CHECK(y.type() == x.type());
    CHECK((x + 1).to_vector() == Doubles{2, 3, 101});
    CHECK((200 - x).to_vector() == Doubles{199, 198, 100});
    CHECK((x % 7).to_vector() == Doubles{1, 2, 2});
    CHECK((7 % x).to_vector() == Doubles{0, 1, 7});
    CHECK(clamp(x, 2, 5).to_vector() == Doubles{2, 2, 5});
    CHECK((x == 2).to_vector() == Doubles{0, 1, 0});
    CHECK((2 == x).to_vector() == Doubles{0, 1, 0});
    CHECK(((1 != x) & (x != 100)).to_vector() == Doubles{0, 1, 0});
    CHECK((50 > x).to_vector() == Doubles{1, 1, 0});
    CHECK((2 >= x).to_vector() == Doubles{1, 1, 0});
    CHECK((2 < x).to_vector() == Doubles{0, 0, 1});
  }
}

TEST_CASE("numbers: what a type does not hold is refused by name") {
  refuses("[add] 0.5 with integers, which cannot hold it: cast(", [] { integers(DType::int32) + 0.5; });
  refuses("[less] 0.5 with integers", [] { integers(DType::int32) < 0.5; });
  refuses("[add] 300 is out of the range of uint8", [] { integers(DType::uint8) + 300; });
  refuses("[subtract] -1 is out of the range of uint8", [] { -1 - integers(DType::uint8); });
  refuses("[multiply] 3000000000 is out of the range of int32", [] { integers(DType::int32) * 3000000000; });
  refuses("with booleans: cast(", [] { integers(DType::boolean) + 1; });
  refuses("with booleans", [] { integers(DType::boolean) == 1; });
  CHECK((integers(DType::boolean) == true).to_vector() == Doubles{1, 1, 1});
  refuses("with integers, which cannot hold it", [] { integers(DType::int64) < std::numeric_limits<std::uint64_t>::max(); });
  refuses("[clamp] low", [] { clamp(integers(f64), 3, 2); });
}

TEST_CASE("numbers: integers of 64 bits are exact") {
  const Tensor zero = zeros({1}, DType::int64);
  for (const std::int64_t n :
       {std::int64_t{1} << 60, (std::int64_t{1} << 60) + 1, -(std::int64_t{1} << 60) - 1, (std::int64_t{1} << 53) + 1,
        std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::lowest()}) {
    CHECK((zero + n).to_vector<std::int64_t>() == Longs{n});
    CHECK((zero + n == n).item() == 1);
    CHECK((zero + n == (n ^ 1)).item() == 0);
    CHECK(full_like(zero, n).to_vector<std::int64_t>() == Longs{n});
  }
  CHECK(sum(full_like(zeros({3}, DType::int64), (std::int64_t{1} << 53) + 1)).to_vector<std::int64_t>() ==
        Longs{3 * ((std::int64_t{1} << 53) + 1)});
}

TEST_CASE("numbers: types of operands meet, or are refused") {
  const auto meet = [](DType a, DType b) { return (integers(a) + integers(b)).dtype(); };
  CHECK(meet(DType::int32, DType::int64) == DType::int64);
  CHECK(meet(DType::uint8, DType::int16) == DType::int16);
  CHECK((integers(f32) * integers(f64)).dtype() == f64);
  CHECK(where(integers(f32) < integers(f64), integers(f32), integers(f64)).dtype() == f64);
  CHECK((integers(DType::int32) == integers(DType::int64)).to_vector() == Doubles{1, 1, 1});
  const std::vector<std::pair<DType, DType>> strangers{{DType::int32, f32},
                                                       {f64, DType::int64},
                                                       {DType::boolean, DType::uint8},
                                                       {DType::boolean, f32},
                                                       {DType::bfloat16, DType::float16}};
  for (const auto& [a, b] : strangers) {
    CHECK(!result_type(a, b));
    refuses("cast() one of them", [a = a, b = b] { integers(a) + integers(b); });
    refuses("cast() one of them", [a = a, b = b] { integers(a) < integers(b); });
  }
  // The derivative has the type of the operand.
  const Tensor x = integers(f32), y = integers(f64);
  Tape tape;
  const auto g = tape.gradient(sum(x * y), {x, y});
  CHECK(g[0].dtype() == f32);
  CHECK(g[1].dtype() == f64);
  CHECK(g[0].to_vector() == Doubles{1, 2, 100});
}

TEST_CASE("numbers: += leaves other handles and the tape alone") {
  Tensor x = from_vector({2}, {1, 2}, f64);
  const Tensor before = x;
  Tape tape;
  const Tensor y = x * x;
  x += 1;
  x *= before;
  x -= 0.5;
  x /= 2;
  CHECK(before.to_vector() == Doubles{1, 2});
  CHECK(x.to_vector() == Doubles{0.75, 2.75});
  CHECK(tape.gradient(sum(y) + sum(x), {before})[0].to_vector() == Doubles{3.5, 6.5});  // of x^2 + ((x + 1) x - 1/2) / 2
  Tensor n = integers(DType::int32);
  n %= 3;
  CHECK(n.to_vector() == Doubles{1, 2, 1});
}

TEST_CASE("numbers: bits") {
  const Tensor x = from_vector({3}, {200, 3, 255}, DType::uint8), eight = full_like(x, 8);
  CHECK(bitwise_right_shift(x, eight).to_vector() == Doubles{0, 0, 0});
  CHECK(bitwise_left_shift(x, eight).to_vector() == Doubles{0, 0, 0});
  CHECK(abs(x).to_vector() == Doubles{200, 3, 255});
  CHECK((~x).to_vector() == Doubles{55, 252, 0});
  const Tensor negative = from_vector({2}, {-8, 8}, DType::int32);
  CHECK(bitwise_right_shift(negative, full_like(negative, 40)).to_vector() == Doubles{-1, 0});
  CHECK((x & 3).to_vector() == Doubles{0, 3, 3});
  CHECK((1 | x).to_vector() == Doubles{201, 3, 255});
  CHECK((x ^ 255).to_vector() == Doubles{55, 252, 0});
  CHECK(((x == 3) & true).to_vector() == Doubles{0, 1, 0});
  CHECK(bitwise_left_shift(1, from_vector({3}, {0, 1, 7}, DType::uint8)).to_vector() == Doubles{1, 2, 128});
  CHECK(hypot(3, full({1}, 4, f64)).item() == 5);
  CHECK(copysign(full({1}, 4, f64), -0.0).item() == -4);
  refuses("[bitwise_and] needs integers or booleans", [] { integers(f64) & integers(f64); });
  refuses("[bitwise_left_shift] needs integers", [] { bitwise_left_shift(integers(DType::boolean), integers(DType::boolean)); });
  refuses("[nextafter] has no bfloat16 form", [] { nextafter(integers(DType::bfloat16), integers(DType::bfloat16)); });
}
