#include "examples/studies/sample_size/study.h"

namespace mpigrad::sample_size {

std::unique_ptr<CosmoFlow> make_network(const std::string& name, std::int64_t targets) {
  require(name == "pyramid" || name == "cosmoflow", "[sample_size] there is no network '{}'", name);
  const auto variant = name == "pyramid" ? CosmoFlowVariant::pyramid : CosmoFlowVariant::hybrid;
  return std::make_unique<CosmoFlow>(CosmoFlowOptions{.variant = variant, .targets = targets});
}

}  // namespace mpigrad::sample_size
