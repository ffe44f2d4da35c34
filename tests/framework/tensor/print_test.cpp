// Tensors as text: values when printed, only the type in messages; reading a partial sum warns.

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <cmath>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "comm/collectives/collectives.h"
#include "comm/distributed/grid.h"
#include "framework/base/warning.h"
#include "ops/elementwise/number.h"
#include "ops/reduce/reduce.h"
#include "tests/support/errors.h"
#include "tests/support/gpu.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

GridPtr line_of(const Communicator& world) {
  return std::make_shared<Grid>(world, std::vector<std::string>{"sample"}, std::vector{world.size()});
}

}  // namespace

TEST_CASE("print: values in aligned columns, then the type") {
  const auto text = [](const Tensor& x) { return fmt::format("{}", x); };
  CHECK(text({}) == "none");
  CHECK(text(from_vector({}, {3.25})) == "3.25 float32 []");
  CHECK(text(from_vector({2, 3}, {1, 2.5, -3, 4, 5, 60})) == "[[ 1.0  2.5 -3.0]\n [ 4.0  5.0 60.0]]\nfloat32 [2, 3]");
  CHECK(text(from_vector({2}, {1, -3}, DType::bfloat16)) == "[ 1. -3.] bfloat16 [2]");
  CHECK(text(from_vector({2}, {0.1, 1.0 / 3})) == "[0.10000 0.33333] float32 [2]");
  CHECK(text(from_vector({3}, {12345.678, 12.5, 100}, DType::float64)) == "[12345.678    12.500   100.000] float64 [3]");
  CHECK(text(from_vector({2}, {1e-9, 0.25})) == "[1.0e-09 2.5e-01] float32 [2]");
  CHECK(text(from_vector({4}, {HUGE_VAL, -HUGE_VAL, std::nan(""), 0})) == "[ inf -inf  nan   0.] float32 [4]");
  CHECK(text(from_vector({2}, {1, 0}, DType::boolean)) == "[ true false] boolean [2]");
  CHECK(fmt::format("{}", arange(3) < 2) == "[ true  true false] boolean [3]");
  CHECK(text(from_vector({2, 2, 1}, {1, 2, 3, 40}, DType::int32)) == "[[[ 1]\n  [ 2]]\n\n [[ 3]\n  [40]]]\nint32 [2, 2, 1]");
  CHECK(text(zeros({0, 3})) == "[] float32 [0, 3]");
  CHECK(fmt::format("{:.8}", from_vector({1}, {1.0 / 3}, DType::float64)) == "[0.33333333] float64 [1]");
  CHECK(fmt::format("{}", std::vector<Tensor>{ones({1}), zeros({1})}) == "[1.] float32 [1]\n[0.] float32 [1]");
  std::ostringstream stream;
  stream << ones({1}) << '\n' << std::vector<Tensor>{zeros({1})};
  CHECK(stream.str() == "[1.] float32 [1]\n[0.] float32 [1]");

  CHECK(text(ones({2}).without_storage()) == "float32 [2]; its values were not kept");
  const UseDevice dry(DeviceKind::dry);
  CHECK(text(ones({2})) == "float32 [2]; on device dry, without values");
}

TEST_CASE("print: of more than 1000 elements the first and last three along each dimension") {
  CHECK(fmt::format("{}", arange(1001)) == "[   0    1    2 ...  998  999 1000] int64 [1001]");
  CHECK(fmt::format("{}", arange(1000)).find("...") == std::string::npos);
  const auto numbers = arange(1002, DType::int32);
  CHECK(fmt::format("{}", Tensor({{167, 6}, DType::int32}, numbers.storage())) ==
        "[[   0    1    2    3    4    5]\n [   6    7    8    9   10   11]\n [  12   13   14   15   16   17]\n ...\n"
        " [ 984  985  986  987  988  989]\n [ 990  991  992  993  994  995]\n [ 996  997  998  999 1000 1001]]\nint32 [167, 6]");
}

TEST_CASE("gpu: print: values are copied for it") {
  if (no_gpu("print")) return;
  for (const std::int64_t n : {2, 2000}) {
    const auto x = arange(n);
    CHECK(fmt::format("{}", detail::copied(x, DeviceKind::cuda)) == fmt::format("{}; on device cuda", x));
  }
}

TEST_CASE("print: messages have the type of a tensor, not its values") {
  const auto x = ones({2, 3});
  CHECK(error_text([&] { require(false, "[test] {} and {}", x, x.shape()); }) == "[test] float32 [2, 3] and [2, 3]");
  CHECK(error_text([&] { fail("[test] {}", Tensor()); }) == "[test] none");
}

TEST_CASE("print: a distributed tensor shows its block; a partial sum is read with one warning, except by total()") {
  detail::take_warnings();
  on_ranks(2, [](const Communicator& world) {
    const auto grid = line_of(world);
    const auto x = full({1}, world.rank() + 1).with_layout(split_layout(grid, {2}, {0}));
    CHECK(fmt::format("{}", x) == fmt::format("[{}.] float32 [1] of [2] sample: split dim 0 at 0|1|2; the block of rank {} of 2",
                                              world.rank() + 1, world.rank()));
    CHECK(x.to_vector().size() == 1);
    CHECK(total(sum(x)) == 3);
  });
  CHECK(detail::take_warnings().empty());
  for (const auto& [name, read] : std::vector<std::pair<std::string, void (*)(const Tensor&)>>{
           {"item", [](const Tensor& x) { x.item(); }},
           {"to_vector", [](const Tensor& x) { x.to_vector<float>(); }},
           {"print", [](const Tensor& x) { static_cast<void>(fmt::format("{}", x)); }}}) {
    on_ranks(2, [&](const Communicator& world) {
      const auto grid = line_of(world);
      read(sum(ones({1}).with_layout(split_layout(grid, {2}, {0}))));
    });
    CHECK(detail::take_warnings() ==
          std::vector{"[" + name +
                      "] this rank's part of a sum over ranks; total(x) is the sum: float32 [] of [] sample: partial sum"});
  }
  on_ranks(1, [](const Communicator& world) {  // one rank: the partial sum is the sum
    sum(ones({1}).with_layout(split_layout(line_of(world), {1}, {0}))).item();
  });
  CHECK(detail::take_warnings().empty());
}
