#include "models/nn/whole_copy.h"

#include "comm/spatial/redistribute.h"
#include "ops/elementwise.h"

namespace mpigrad::nn {
namespace {

Tensor whole_of(const Tensor& x) {
  const bool blocks = x.layout() && x.layout()->has(Placement::split);
  return blocks ? gather_all(constant(x)).without_layout() : x.without_layout();
}

}  // namespace

void copy_whole(Module& from, Module& to) {
  Untaped scope;
  auto &sources = from.parameters(), &targets = to.parameters();
  require(sources.size() == targets.size(), "[copy_whole] {} parameters for {}", sources.size(), targets.size());
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const auto value = whole_of(sources[i].value);
    auto& target = targets[i];
    require(sources[i].name == target.name && value.type() == target.value.type() && value.device() == target.value.device(),
            "[copy_whole] {}, {}, for {}, {}", sources[i].name, value, target.name, target.value);
    detail::copy_bytes(value.device(), target.value.raw(), value.raw(), value.bytes());
  }
  for (const auto& [name, value] : from.buffers()) to.buffers()[name] = constant(whole_of(value) * 1);
}

}  // namespace mpigrad::nn
