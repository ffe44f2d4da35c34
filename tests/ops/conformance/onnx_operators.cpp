#include "tests/ops/conformance/onnx_operators.h"

#include <map>

namespace mpigrad::testing {

const OnnxOperator& onnx_operator(const std::string& name) {
  static const std::map<std::string, OnnxOperator> operators = [] {
    std::map<std::string, OnnxOperator> all;
    for (const auto& table :
         {onnx_elementwise_operators(), onnx_array_operators(), onnx_network_operators(), onnx_optimizer_operators()})
      all.insert(table.begin(), table.end());
    return all;
  }();
  const auto found = operators.find(name);
  if (found == operators.end()) throw NotOffered("operator " + name + " is not part of mpigrad");
  return found->second;
}

std::vector<std::int64_t> integers_of(const Tensor& x) {
  std::vector<std::int64_t> result;
  for (double value : x.to_vector()) result.push_back(static_cast<std::int64_t>(value));
  return result;
}

}  // namespace mpigrad::testing
