// First and second derivatives of each row of the table of ops against differences in float64, and its shapes on the dry device;
// linear ops must also pass the dot-product test.

#include <doctest/doctest.h>

#include <functional>

#include "framework/engine/cost.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/scalar.h"
#include "ops/views/views.h"
#include "tests/ops/op_table.h"
#include "tests/support/skip.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

// Runs `check` on each row; an empty text means that the row passed.
void for_rows(const std::string& what, const std::function<std::string(const Row&)>& check) {
  for (const auto& row : op_table()) {
    std::string why;
    try {
      why = check(row);
    } catch (const std::exception& error) {
      why = error.what();
    }
    if (why.empty()) count_passed();
    else count_failed(what + ": " + row.name, why);
  }
}

}  // namespace

TEST_CASE("op table: first and second order in float64, and no op is missing") {
  std::set<std::string> met;
  for_rows("derivatives", [&](const Row& row) -> std::string {
    CostLog log;  // also has ops of integers, which no tape records
    const auto report =
        check_gradients(row.f, make_operands(row, DType::float64), {.step = row.step, .tolerance = row.tolerance});
    met.insert(report.entries.begin(), report.entries.end());
    for (const auto& line : log.lines) met.emplace(line.op);
    return report.passed ? "" : report.message;
  });
  auto declared = declared_ops();
#define MPIGRAD_MAKE(F, name, kind) declared.insert(#name);
  MPIGRAD_COMPARE_FUNCTIONS(MPIGRAD_MAKE)
#undef MPIGRAD_MAKE
  CHECK(declared.size() >= 106);  // the search for declarations works
  for (const auto& name : declared) {
    INFO("no row of the table runs the op ", name);
    CHECK(met.contains(name));
  }
}

TEST_CASE("op table: linear ops pass the dot-product test") {
  for_rows("dot product", [](const Row& row) -> std::string {
    if (!row.linear) return "";
    const double error = linearity_error(row.f, make_operands(row, DType::float64));
    return error < 1e-12 ? "" : fmt::format("<f(x), u> and <x, adjoint of u> differ by {:.1e}", error);
  });
}

TEST_CASE("op table: the dry device gives the same shapes, derivatives included") {
  for_rows("dry", [](const Row& row) -> std::string {
    const auto run = [&](DeviceKind device) {
      UseDevice use(device);
      Tensors x;
      for (const auto& operand : row.operands) x.push_back(full(operand.shape, 0.5));
      Tape tape;
      Tensors y = row.f(x), floating, u;
      for (const auto& part : y)
        if (is_floating(part.dtype())) floating.push_back(part), u.push_back(ones_like(part));
      const auto g = tape.vjp(floating, u, x);
      y.insert(y.end(), g.begin(), g.end());
      return y;
    };
    const auto real = run(DeviceKind::cpu), dry = run(DeviceKind::dry);
    for (std::size_t i = 0; i < real.size(); ++i)
      if (dry[i].type() != real[i].type() || dry[i].device() != DeviceKind::dry)
        return fmt::format("{} instead of {}", dry[i], real[i]);
    return "";
  });
}
