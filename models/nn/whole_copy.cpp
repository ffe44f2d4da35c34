#include "models/nn/whole_copy.h"

#include "comm/distributed/redistribute.h"
#include "ops/elementwise/elementwise.h"

namespace mpigrad::nn {

namespace {

// The whole value as a plain tensor. Collective if ranks hold blocks of the value.
Tensor whole_value(const Tensor& x) {
  if (!x.layout() || !x.layout()->has(Placement::split)) return x.without_layout();
  const Untaped scope;
  const UseDevice device(x.device());
  return gather_all(constant(x)).without_layout();
}

}  // namespace

void copy_whole(Module& from, Module& to) {
  Untaped scope;
  auto &sources = from.parameters(), &targets = to.parameters();
  require(sources.size() == targets.size(), "[copy_whole] {} parameters for {}", sources.size(), targets.size());
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const auto value = whole_value(sources[i].value);
    auto& target = targets[i];
    require(sources[i].name == target.name && value.type() == target.value.type() && value.device() == target.value.device(),
            "[copy_whole] {}, {}, for {}, {}", sources[i].name, value, target.name, target.value);
    detail::copy_bytes(value.device(), target.value.raw(), value.raw(), value.bytes());
  }
  for (const auto& [name, value] : from.all_buffers()) to.buffers()[name] = constant(whole_value(value) * 1);
}

}  // namespace mpigrad::nn
