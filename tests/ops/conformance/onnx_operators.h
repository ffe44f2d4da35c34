#pragma once
// ONNX operators, written in the engine's ops. ONNX is [N, C, D, H, W]: what has channels is taken to channels last and back.

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "framework/tensor/tensor.h"
#include "tests/ops/conformance/onnx_case.h"

namespace mpigrad::testing {

// Inputs that a node leaves out are empty tensors. The result may be shorter than the node's outputs: what is missing is not
// something that the engine computes, and is not compared.
using OnnxOperator = std::function<std::vector<Tensor>(const OnnxNode&, const std::vector<Tensor>&)>;

// A case, or one form of an operator, that the engine does not offer; what() is the reason in words.
class NotOffered : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws NotOffered for an operator that is in none of the tables.
const OnnxOperator& onnx_operator(const std::string& name);

using OnnxTable = std::vector<std::pair<std::string, OnnxOperator>>;
OnnxTable onnx_elementwise_operators();  // functions of corresponding elements
OnnxTable onnx_array_operators();        // views, reductions, normalisations written as reductions
OnnxTable onnx_network_operators();      // convolutions, pools, batch norm, softmax, losses, products, dropout
OnnxTable onnx_optimizer_operators();    // one step, from a given state

// Elements of an integer tensor, or of a floating one that holds integers.
std::vector<std::int64_t> integers_of(const Tensor& x);

}  // namespace mpigrad::testing
