#pragma once
// ONNX operators, written with the engine's ops. ONNX tensors are [N, C, D, H, W]; they are permuted to channels last and back.

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "framework/tensor/tensor.h"
#include "tests/ops/conformance/onnx_case.h"

namespace mpigrad::testing {

// Omitted inputs of a node are empty tensors. The result may have fewer tensors than the node has outputs: outputs that the
// engine does not compute are missing and are not compared.
using OnnxOperator = std::function<std::vector<Tensor>(const OnnxNode&, const std::vector<Tensor>&)>;

// A case, or a form of an operator, that the engine does not support; what() is the reason.
class NotOffered : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws NotOffered if the operator is in none of the tables.
const OnnxOperator& onnx_operator(const std::string& name);

using OnnxTable = std::vector<std::pair<std::string, OnnxOperator>>;
OnnxTable onnx_elementwise_operators();  // functions of corresponding elements
OnnxTable onnx_array_operators();        // views, reductions, normalisations written as reductions
OnnxTable onnx_network_operators();      // convolutions, pools, batch norm, softmax, losses, products, dropout
OnnxTable onnx_optimizer_operators();    // one step, from a given state

// Elements of an integer tensor, or of a floating-point tensor that holds integers.
std::vector<std::int64_t> integers_of(const Tensor& x);

}  // namespace mpigrad::testing
