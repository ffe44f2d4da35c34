// Functions of the array API on random split tensors: the result of one rank, or a refusal that names redistribute().

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "comm/collectives/collectives.h"
#include "comm/distributed/distributed.h"
#include "comm/halos/periodic.h"
#include "ops/array/creation.h"
#include "ops/array/padding.h"
#include "ops/array/shapes.h"
#include "ops/array/statistics.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "tests/support/distributed.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

using Function = std::function<Tensor(const Tensor& x, const Tensor& y, int axis)>;

#define F(name, ...)                                                                                                       \
  {                                                                                                                        \
    name, [](const Tensor& x, [[maybe_unused]] const Tensor& y, [[maybe_unused]] int axis) { return Tensor(__VA_ARGS__); } \
  }

// x and y have three dimensions and values from 0.3 to 0.9.
const std::map<std::string, Function>& elementwise() {
  static const std::map<std::string, Function> functions{F("clone", clone(x)),
                                                         F("round", round(4 * x)),
                                                         F("trunc", trunc(4 * x)),
                                                         F("exp2", exp2(x)),
                                                         F("log2", log2(x)),
                                                         F("log10", log10(x)),
                                                         F("rsqrt", rsqrt(x)),
                                                         F("tan", tan(x)),
                                                         F("asin", asin(x)),
                                                         F("acos", acos(x)),
                                                         F("atan", atan(x)),
                                                         F("sinh", sinh(x)),
                                                         F("cosh", cosh(x)),
                                                         F("asinh", asinh(x)),
                                                         F("acosh", acosh(1 + x)),
                                                         F("atanh", atanh(x)),
                                                         F("erfc", erfc(x)),
                                                         F("erfinv", erfinv(x)),
                                                         F("lgamma", lgamma(x)),
                                                         F("polygamma", polygamma(1, x)),
                                                         F("isnan", isnan(x)),
                                                         F("isinf", isinf(x)),
                                                         F("isfinite", isfinite(x)),
                                                         F("signbit", signbit(x - y)),
                                                         F("remainder", remainder(x, y)),
                                                         F("floor_divide", floor_divide(3 * x, y)),
                                                         F("atan2", atan2(x, y)),
                                                         F("hypot", hypot(x, y)),
                                                         F("copysign", copysign(x, y - 0.6)),
                                                         F("nextafter", nextafter(x, y)),
                                                         F("logaddexp", logaddexp(x, y)),
                                                         F("maximum", maximum(x, 0.6)),
                                                         F("remainder by a number", x % 0.4),
                                                         F("a number to a power", pow(2, x)),
                                                         F("less", x < y),
                                                         F("greater_equal", x >= 0.5),
                                                         F("clamp", clamp(x, 0.4, 0.6)),
                                                         F("whole numbers", cast(8 * x, DType::int32) * 3 - 1),
                                                         F("bits", cast(8 * x, DType::int32) & cast(8 * y, DType::int32)),
                                                         F("invert", ~cast(8 * x, DType::uint8)),
                                                         F("where", where(x < y, x, 1))};
  return functions;
}
const std::map<std::string, Function>& others() {
  static const std::map<std::string, Function> functions{
      F("sum", sum(x, {axis})),
      F("mean", mean(x, {axis}, true)),
      F("sum of whole numbers", sum(cast(8 * x, DType::uint8), {axis})),
      F("any", any(x < 0.5, {axis})),
      F("all", all(x < 0.8, {axis})),
      F("all of all", all(x < 2)),
      F("count_nonzero", count_nonzero(cast(2 * x, DType::int32), {axis})),
      F("argmax", argmax(x, axis)),
      F("argmin", argmin(x, axis)),
      F("max", max(x, {axis})),
      F("prod", prod(x, {axis})),
      F("var", var(x, {axis}, 0, true)),
      F("stddev", stddev(x + y, {axis})),
      F("cumulative_sum", cumulative_sum(x, axis)),
      F("cumulative_prod", cumulative_prod(x, axis)),
      F("diff", diff(x, axis)),
      F("vector_norm", vector_norm(x, {axis})),
      F("vector_norm of order 3", vector_norm(x, {axis}, 3, true)),
      F("histogram", histogram(x, 4, 0, 1)),
      F("stack", stack({x, y}, axis)),
      F("split", split(x, std::vector<std::int64_t>{1, x.dim(axis) - 1}, axis)[0]),
      F("unbind", unbind(x, axis)[0]),
      F("roll", roll(x, 2, axis)),
      F("repeat", repeat(x, 2, axis)),
      F("tile", tile(x, {2})),
      F("moveaxis", moveaxis(x, axis, 0)),
      F("swapaxes", swapaxes(x, axis, 1)),
      F("flip", flip(x, {axis})),
      F("pad", pad(x, Shape{0, 1, 0}, Shape{0, 0, 1}, PaddingMode::circular)),
      F("tril", tril(x)),
      F("triu", triu(x, 1)),
      F("diagonal", diagonal(x)),
      F("take", take(x, from_vector({2}, {0, 0}, DType::int64), axis)),
      F("squeeze", squeeze(sum(x, {axis}, true)))};
  return functions;
}
#undef F

LayoutPtr random_layout(const Communicator& comm, const Shape& global, Dice& dice) {
  std::vector<int> extents, dimensions;
  std::vector<std::string> names;
  int rest = comm.size();
  for (int a = 0; a < 3; ++a) {
    int extent = a == 2 ? rest : static_cast<int>(dice(1, rest));
    while (rest % extent != 0) --extent;
    extents.push_back(extent), names.push_back(fmt::format("axis{}", a));
    rest /= extent;
    int d = static_cast<int>(dice(-1, global.rank() - 1));
    if (std::find(dimensions.begin(), dimensions.end(), d) != dimensions.end()) d = -1;
    dimensions.push_back(d);
  }
  auto layout = split_layout(std::make_shared<Grid>(comm, names, extents), global, dimensions);
  return dice(0, 1) ? with_random_cuts(layout, dice) : layout;
}

// True if f was computed; all ranks agree, and a refusal names a remedy.
bool agrees(const std::string& name, const Function& f, const Tensor& x, const Tensor& y, int axis, const LayoutPtr& layout,
            const Communicator& comm) {
  Tensor found;
  const auto text = error_text([&] { found = f(part_of(x, layout), part_of(y, layout), axis); });
  const double refused = total(full({}, found ? 0 : 1, DType::float64), comm);
  require(refused == 0 || refused == comm.size(), "[test] {} is refused on {} of {} ranks: {}", name, refused, comm.size(), text);
  if (refused > 0) {
    require(has(text, "redistribute") || has(text, "of nothing"), "[test] {} is refused without a way out: {}", name, text);
    return false;
  }
  require(found.layout() != nullptr, "[test] {} lost its layout", name);
  require_close(fmt::format("{} along {} of {}", name, axis, to_string(*layout)), gather_all(cast(found, DType::float64)),
                cast(f(x, y, axis), DType::float64), 1e-13);
  return true;
}

}  // namespace

TEST_CASE("array functions: on random grids they are what one rank computes, or refused") {
  for (const int size : {1, 2, 3, 4, 6})
    check_on_ranks(size, "array functions", [](const Communicator& comm) {
      std::set<std::string> computed;
      for (std::uint64_t seed = 1; seed <= 12; ++seed) {
        Dice dice(seed * 10 + static_cast<std::uint64_t>(comm.size()));
        const Shape global{dice(2, 5), dice(2, 5), dice(2, 5)};
        const auto layout = random_layout(comm, global, dice);
        const int axis = static_cast<int>(dice(0, 2));
        const Tensor x = 0.6 + 0.3 * global_tensor(global, seed), y = 0.6 + 0.3 * global_tensor(global, seed + 100);
        for (const auto& [name, f] : elementwise())
          require(agrees(name, f, x, y, axis, layout, comm), "[test] {} is refused", name);
        for (const auto& [name, f] : others()) {
          if (!agrees(name, f, x, y, axis, layout, comm)) continue;
          computed.insert(name);
          if (!std::set<std::string>{"prod", "var", "cumulative_prod", "vector_norm", "tril", "roll"}.contains(name)) continue;
          const auto other = part_of(y, layout);
          const auto of_x = [&f = f, &other, axis](const Tensors& in) { return Tensors{f(in[0], other, axis)}; };
          require_adjoint(name, of_x, {part_of(x, layout)}, comm, {.seed = seed});
        }
      }
      // Functions that are refused on every layout, or may be.
      const std::set<std::string> refused{"histogram", "repeat", "tile", "diagonal", "take", "all of all", "pad", "tril", "triu"};
      for (const auto& [name, f] : others())
        require(computed.contains(name) || refused.contains(name), "[test] {} was refused on all grids", name);
    });
}

TEST_CASE("array functions: roll of a split dimension by the size of a block") {
  check_on_ranks(2, "roll", [](const Communicator& comm) {
    const auto layout = split_layout(make_grid(comm, {.depth = 2}), {4, 2}, {-1, 0});
    const Tensor x = part_of(global_tensor({4, 2}, 1), layout);
    require(has(error_text([&] { local::roll(x, 2, 0); }), "[roll] along dimension 0, which is split"), "[test] roll");
    for (const int axis : {0, 1}) require_close("roll", gather_all(roll(x, 2, axis)), roll(global_tensor({4, 2}, 1), 2, axis));
  });
}

TEST_CASE("array functions: sums of integers on ranks are divided when they are whole") {
  check_on_ranks(3, "sums", [](const Communicator& comm) {
    const auto layout = split_layout(make_grid(comm, {.depth = 3}), {9}, {-1, 0});
    const Tensor x = full(layout->box().extents(), 1, DType::int64).with_layout(layout);
    require(has(error_text([&] { sum(x) / 2; }), "rounds each rank's part of a partial sum"), "[test] divide");
    require(gather_all(sum(x)).item() == 9 && gather_all(-sum(x)).item() == -9, "[test] sums");
  });
}
