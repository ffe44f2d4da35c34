#include "tests/ops/comparison/comparison_fuzz.h"

#include <cmath>

#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "tests/models/nn/layer_cases.h"
#include "tests/support/ranks.h"

namespace mpigrad::testing {
namespace {

constexpr double allowed_epsilons = 40;  // any order of a sum of n terms is well inside

void compare(const std::string& what, const Tensor& found, const Tensor& expected, const Tensor& scale, DType dtype) {
  const auto f = found.to_vector(), e = expected.to_vector(), s = scale.to_vector();
  require(found.dtype() == dtype && f.size() == e.size(), "{} is {} instead of {} elements", what, found, e.size());
  const double epsilon = dtype == DType::float64 ? 0x1p-52 : 0x1p-23;
  for (std::size_t i = 0; i < f.size(); ++i)
    require(f[i] == e[i] || std::abs(f[i] - e[i]) <= allowed_epsilons * epsilon * s[i],
            "{}: element {} of {} is {} instead of {}, where rounding is {:.1e} an epsilon", what, i, f.size(), f[i], e[i], s[i]);
}

// Without a layout on one rank, otherwise on this rank's block.
void compare_case(const ComparisonCase& c, const LayoutPtr& layout, DType dtype) {
  const auto truth = c.truth(layout);
  const auto part = [](const Tensor& whole, const LayoutPtr& cut) { return cut ? part_of(whole, cut) : whole; };
  Tensors inputs;
  for (const auto& input : c.inputs) inputs.push_back(cast(input, dtype));
  if (layout) inputs[0] = part_of(inputs[0], layout);
  const auto where =
      layout ? fmt::format("{}, {}", name_of(dtype), to_string(*layout)) : fmt::format("{}, one rank", name_of(dtype));
  Tape tape;
  const auto y = c.run(inputs);
  require(!layout || y.layout() != nullptr, "{}: the value has no layout", where);
  compare(where + ": value", y, part(truth.value, y.layout()), part(truth.value_scale, y.layout()), dtype);
  // Maxima of nothing are -infinity, and so is such a sum; its gradient is still the cotangent.
  const auto gradients = tape.gradient(sum(y * constant(part(cast(truth.cotangent, dtype), y.layout()))), inputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto cut = i == 0 ? layout : nullptr;
    compare(fmt::format("{}: gradient of input {}", where, i), gradients[i], part(truth.gradients[i], cut),
            part(truth.gradient_scales[i], cut), dtype);
  }
}

}  // namespace

void run_comparison(const std::string& kind, const std::function<ComparisonCase(std::uint64_t)>& make, std::uint64_t seed) {
  std::string name = kind;
  const auto named = [&](const std::function<void()>& body) {
    try {
      body();
    } catch (const std::exception& error) {
      fail("[comparison] MPIGRAD_COMPARISON_SEED={} -tc='comparison: {}*': {}: {}", seed, kind, name, error.what());
    }
  };
  try {
    ComparisonCase c;
    named([&] {
      c = make(seed);
      name = c.name;
      for (const auto dtype : {DType::float64, DType::float32}) compare_case(c, nullptr, dtype);
    });
    const auto ranks = static_cast<int>(Dice(seed + 1)(2, 4));
    on_ranks(ranks, [&](const Communicator& comm) {
      named([&] {
        Dice dice(seed + 2);
        const auto layout = random_layout(comm, dice, c.inputs[0].shape());
        for (const auto dtype : {DType::float64, DType::float32}) compare_case(c, layout, dtype);
      });
    });
  } catch (const std::exception& error) {
    FAIL_CHECK(std::string(error.what()));
  }
}

std::vector<double> fuzz_numbers(std::int64_t count, const Philox& random, bool integers) {
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = integers ? static_cast<double>(random.below(i, 5)) - 2
                         : static_cast<double>(static_cast<float>(2 * random.uniform(i) - 1));
  return values;
}

std::vector<double> magnitudes(std::vector<double> values) {
  for (auto& value : values) value = std::abs(value);
  return values;
}

}  // namespace mpigrad::testing
