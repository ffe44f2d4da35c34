#include "framework/engine/equal_values.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "framework/base/warning.h"

namespace mpigrad::detail {
namespace {

// After these ops a factor is part of the function, not a weight of the objective.
constexpr std::array<std::string_view, 8> curved{"square", "exp", "log", "sqrt", "sin", "cos", "tanh", "sigmoid"};
constexpr std::array<std::string_view, 8> straight{"sum", "abs", "reshape", "add", "subtract", "multiply", "affine", "divide"};

template <std::size_t n>
bool is_in(const std::array<std::string_view, n>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool has_equal_elements(const Tensor& x) {
  constexpr std::int64_t most = 1 << 20;
  if (x.device() != DeviceKind::cpu || x.elements() < 1 || x.elements() > most || x.raw() == nullptr) return false;
  const auto size = size_of(x.dtype());
  return std::memcmp(x.raw(), x.raw() + size, static_cast<std::size_t>(x.bytes() - size)) == 0;
}

}  // namespace

void EqualValues::note(std::string_view op, int equal_on, double divisor, std::span<const Tensor> inputs,
                       std::span<const Tensor> outputs) {
  if (equal_on >= 2) values_[outputs[0].id()] = {.ranks = equal_on};
  const bool is_curved = is_in(curved, op);
  if (equal_on != 0 || values_.empty() || outputs.size() != 1 || !(is_curved || is_in(straight, op))) return;
  Value y;
  for (const auto& x : inputs) {
    if (!x) return;
    const auto found = values_.find(x.id());
    if (found == values_.end()) {
      if (!x.is_constant() || !has_equal_elements(x)) return;
      y.scaled = y.scaled || op == "multiply";
      continue;
    }
    if (y.ranks != 0 && y.ranks != found->second.ranks) return;
    y = {.ranks = found->second.ranks, .scaled = y.scaled || found->second.scaled, .summed = found->second.summed};
  }
  if (y.ranks == 0 || (op == "divide" && (inputs.size() != 1 || divisor == 0))) return;
  if (inputs.size() > 1) y.summed = 1;
  if (op == "sum" && outputs[0].elements() > 0)
    y.summed *= static_cast<double>(inputs[0].elements()) / static_cast<double>(outputs[0].elements());
  if (op == "affine" || op == "divide") {
    y.scaled = y.scaled || (divisor != 1 && (divisor != y.summed || divisor == y.ranks));  // no warning if both match
    y.summed = 1;
  }
  if (is_curved) y.scaled = false, y.summed = 1;
  values_[outputs[0].id()] = y;
}

void EqualValues::warn_of(const Tensor& objective) const {
  const auto found = values_.find(objective.id());
  if (found == values_.end() || found->second.scaled) return;
  warn_once("replicated loss",
            fmt::format("[gradient] the objective is computed from results of an allreduce only: looks like a replicated loss; "
                        "gradients will be {0} times those of one, if all {0} ranks pass it. Pass each rank's share, or "
                        "use allreduce_invariant.",
                        found->second.ranks));
}

}  // namespace mpigrad::detail
