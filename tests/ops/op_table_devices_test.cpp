// The table of ops on CPU and GPU against float64 on the CPU: values, gradients and second derivatives of every row.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "framework/base/error.h"
#include "framework/engine/cost.h"
#include "framework/engine/tape.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "tests/ops/op_table.h"
#include "tests/support/gpu.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

using Values = std::vector<double>;

Tensors floating(const Tensors& outputs) {
  Tensors result;
  for (const auto& y : outputs)
    if (is_floating(y.dtype())) result.push_back(y);
  return result;
}

Tensor dot_of(const Tensors& a, const Tensors& b) {
  Tensor total;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto part = dot(a[i], b[i]);
    total = total ? total + part : part;
  }
  return total;
}

// Numbers that `rounded` represents exactly, on this thread's device.
Tensors random_operands(const Tensors& like, DType rounded, std::uint64_t seed) {
  Tensors result;
  for (std::size_t i = 0; i < like.size(); ++i) {
    const Philox random{.key = seed, .stream = i};
    Values values(static_cast<std::size_t>(like[i].elements()));
    for (std::size_t j = 0; j < values.size(); ++j) values[j] = 2 * random.uniform(j) - 1;
    values = from_vector(like[i].shape(), values, rounded).to_vector();
    result.push_back(from_vector(like[i].shape(), values, like[i].dtype()));
  }
  return result;
}

struct Derivatives {
  std::vector<Values> values, first, second;
};

// The derivatives for operands of `type` whose values `rounded` represents exactly.
Derivatives derivatives_of(const Row& row, DeviceKind device, DType type, DType rounded) {
  Tensors x;
  for (const auto& operand : make_operands(row, rounded)) {
    const UseDevice use(device);
    x.push_back(from_vector(operand.shape(), operand.to_vector(), type));
  }
  const UseDevice use(device);
  Tape tape;
  const Tensors outputs = row.f(x), y = floating(outputs);
  const Tensors u = random_operands(y, rounded, 5), w = random_operands(x, rounded, 6);
  const Tensors first = tape.vjp(y, u, x, Record::yes);
  Tensors variables = x;
  variables.insert(variables.end(), u.begin(), u.end());
  const Tensors second = tape.gradient(dot_of(first, w), variables);
  if (size_of(type) > 2)
    for (const auto* parts : {&y, &first})
      for (const auto& part : *parts) require(part.dtype() == type, "a result is {}", part);
  Derivatives result;
  for (const auto& part : outputs) result.values.push_back(part.to_vector());
  for (const auto& part : first) result.first.push_back(part.to_vector());
  for (const auto& part : second) result.second.push_back(part.to_vector());
  return result;
}

// Lists the results with errors above `tolerance`, as text; empty if there are none.
std::string difference(const Derivatives& got, const Derivatives& wanted, double tolerance) {
  std::string text;
  const auto compare = [&](const char* what, const std::vector<Values>& a, const std::vector<Values>& b) {
    for (std::size_t i = 0; i < b.size(); ++i) {
      const double error = a.size() == b.size() ? relative_error(a[i], b[i]) : 1e300;
      if (!(error <= tolerance)) text += fmt::format("{} {} by {:.1e}; ", what, i, error);
    }
  };
  compare("value", got.values, wanted.values);
  compare("gradient", got.first, wanted.first);
  compare("second derivative", got.second, wanted.second);
  return text.empty() ? text : "differs: " + text;
}

// Results of 16-bit arithmetic are closer to those of the CPU, which rounds at the same places, than to exact numbers; but the
// CPU does not support every op in 16 bits.
std::optional<Derivatives> half_on_cpu(const Row& row, DType type) {
  try {
    return derivatives_of(row, DeviceKind::cpu, type, type);
  } catch (const Error&) {
    return {};
  }
}

std::string check_row(const Row& row, DeviceKind device, DType type) {
  const auto got = derivatives_of(row, device, type, type);
  if (size_of(type) == 2)
    if (const auto wanted = half_on_cpu(row, type)) return difference(got, *wanted, type == DType::bfloat16 ? 0x1p-6 : 0x1p-9);
  const auto exact = derivatives_of(row, DeviceKind::cpu, DType::float64, type);
  const double tolerance = type == DType::float64 ? 1e-10 : type == DType::float32 ? 1e-5 : type == DType::float16 ? 1e-2 : 8e-2;
  return difference(got, exact, tolerance);
}

}  // namespace

TEST_CASE_ON_DEVICES("the table of ops, values and derivatives, and no op is missing", no_gpu) {
  const std::vector<DType> on_cpu{DType::float32}, on_gpu{DType::float64, DType::float32, DType::bfloat16, DType::float16};
  std::set<std::string> met, skipped;
  for (const auto type : device == DeviceKind::cpu ? on_cpu : on_gpu)
    for (const auto& row : op_table()) {
      const auto name = fmt::format("{}, {}: {}", device == DeviceKind::cuda ? "gpu" : "cpu", name_of(type), row.name);
      std::string why;
      CostLog log;
      try {
        why = check_row(row, device, type);
      } catch (const std::exception& error) {
        why = error.what();
      }
      for (const auto& line : log.lines) met.emplace(line.op);
      if (const auto missing = missing_library(why); !missing.empty()) {
        count_skipped(name, missing);
        skipped.emplace(why.substr(1, why.find(']') - 1));
      } else if (why.empty() || (size_of(type) == 2 && why.find("has no " + std::string(name_of(type)) + " form") != why.npos)) {
        count_passed();  // some losses need float32
      } else {
        count_failed(name, why);
      }
    }
  for (const auto& name : declared_ops()) {
    INFO("no row of the table runs the op ", name);
    CHECK((met.contains(name) || !skipped.empty()));
  }
}
