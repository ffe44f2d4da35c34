#include "ops/elementwise/activation.h"
#include "ops/elementwise/elementwise.h"
#include "tests/ops/conformance/onnx_operators.h"

namespace mpigrad::testing {
namespace {

using Arguments = std::vector<Tensor>;

OnnxOperator unary(Tensor (*f)(const Tensor&)) {
  return [f](const OnnxNode&, const Arguments& in) { return Arguments{f(in[0])}; };
}

OnnxOperator binary(Tensor (*f)(const Tensor&, const Tensor&)) {
  return [f](const OnnxNode&, const Arguments& in) { return Arguments{f(in[0], in[1])}; };
}
OnnxOperator comparison(Mask (*f)(const Tensor&, const Tensor&)) {
  return [f](const OnnxNode&, const Arguments& in) { return Arguments{f(in[0], in[1])}; };
}

// f over any number of operands, from left to right.
OnnxOperator variadic(Tensor (*f)(const Tensor&, const Tensor&)) {
  return [f](const OnnxNode&, const Arguments& in) {
    Tensor result = in[0];
    for (std::size_t i = 1; i < in.size(); ++i) result = f(result, in[i]);
    return Arguments{result};
  };
}

Tensor where_negative(const Tensor& x, const Tensor& negative) { return where(less(x, zeros_like(x)), negative, x); }

Arguments mean_of_operands(const OnnxNode&, const Arguments& in) {
  Tensor result = in[0];
  for (std::size_t i = 1; i < in.size(); ++i) result = result + in[i];
  return {result / static_cast<double>(in.size())};
}

Arguments clip(const OnnxNode&, const Arguments& in) {
  Tensor result = in[0];
  if (in.size() > 1 && in[1]) result = maximum(result, in[1]);
  if (in.size() > 2 && in[2]) result = minimum(result, in[2]);
  return {result};
}

// x > threshold ? x : 0
Arguments thresholded_relu(const OnnxNode& node, const Arguments& in) {
  const Tensor threshold = full({}, node.real("alpha", 1), in[0].dtype());
  return {where(greater(in[0], threshold), in[0], zeros_like(in[0]))};
}

// scale (x > 0 ? x : alpha (exp(x) - 1))
Arguments selu(const OnnxNode& node, const Arguments& in) {
  const double alpha = node.real("alpha", 1.67326319217681884765625), scale = node.real("gamma", 1.05070102214813232421875);
  return {scale * where_negative(in[0], alpha * expm1(in[0]))};
}

}  // namespace

OnnxTable onnx_elementwise_operators() {
  return {
      {"Abs", unary(abs)},
      {"Ceil", unary(ceil)},
      {"Cos", unary(cos)},
      {"Erf", unary(erf)},
      {"Exp", unary(exp)},
      {"Floor", unary(floor)},
      {"HardSwish", unary(hard_swish)},
      {"Neg", unary(negate)},
      {"Reciprocal", unary(reciprocal)},
      {"Relu", unary(relu)},
      {"Sigmoid", unary(sigmoid)},
      {"Sign", unary(sign)},
      {"Sin", unary(sin)},
      {"Softplus", unary(softplus)},
      {"Tanh", unary(tanh)},
      {"Add", binary(add)},
      {"Sub", binary(subtract)},
      {"Mul", binary(multiply)},
      {"Div", binary(divide)},
      {"Pow", binary(pow)},
      {"Equal", comparison(equal)},
      {"Greater", comparison(greater)},
      {"GreaterOrEqual", comparison(greater_equal)},
      {"Less", comparison(less)},
      {"LessOrEqual", comparison(less_equal)},
      {"And", comparison(logical_and)},
      {"Or", comparison(logical_or)},
      {"Xor", comparison(not_equal)},  // boolean operands
      {"Max", variadic(maximum)},
      {"Min", variadic(minimum)},
      {"Sum", variadic(add)},
      {"Mean", mean_of_operands},
      {"Where", [](const OnnxNode&, const Arguments& in) { return Arguments{where(in[0], in[1], in[2])}; }},
      {"Clip", clip},
      {"LeakyRelu",
       [](const OnnxNode& node, const Arguments& in) { return Arguments{leaky_relu(in[0], node.real("alpha", 0.01))}; }},
      {"PRelu", [](const OnnxNode&, const Arguments& in) { return Arguments{where_negative(in[0], in[0] * in[1])}; }},
      {"Elu", [](const OnnxNode& node,
                 const Arguments& in) { return Arguments{where_negative(in[0], node.real("alpha", 1) * expm1(in[0]))}; }},
      {"Selu", selu},
      {"Softsign", [](const OnnxNode&, const Arguments& in) { return Arguments{in[0] / (1 + abs(in[0]))}; }},
      {"ThresholdedRelu", thresholded_relu},
  };
}

}  // namespace mpigrad::testing
