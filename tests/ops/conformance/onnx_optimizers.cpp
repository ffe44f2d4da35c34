#include "framework/engine/parameter.h"
#include "framework/optim/optimizer.h"
#include "tests/ops/conformance/onnx_operators.h"

namespace mpigrad::testing {
namespace {

using Arguments = std::vector<Tensor>;

// Inputs are R (learning rate), T (step), then lists of equal lengths: parameters, gradients and each kind of state. The outputs
// are the lists without the gradients. ONNX's step 0 has no bias corrections and no dampening.
struct Lists {
  Parameters parameters;
  std::vector<Tensor> gradients;
  std::vector<NamedTensor> state;
};

void fill_lists(Lists& lists, const OnnxNode& node, const Arguments& in, const std::vector<std::string>& slots) {
  if (in[1].item() != 0) throw NotOffered(node.op + ": bias corrections differ from mpigrad's after step 0");
  const std::size_t n = (in.size() - 2) / (2 + slots.size());
  for (std::size_t i = 0; i < n; ++i) {
    const auto name = "p" + std::to_string(i);
    lists.parameters.add(name, in[2 + i], true);
    lists.gradients.push_back(in[2 + n + i]);
  }
  lists.parameters.pack();
  for (std::size_t slot = 0; slot < slots.size(); ++slot)
    for (std::size_t i = 0; i < n; ++i)
      lists.state.push_back({slots[slot] + "/p" + std::to_string(i), in[2 + (2 + slot) * n + i]});
}

Arguments step(Lists& lists, Optimizer& optimizer, std::int64_t steps_before) {
  optimizer.load_state(lists.state, steps_before);
  optimizer.step(Gradients(lists.gradients));
  Arguments result = lists.parameters.tensors();
  for (const auto& item : optimizer.state()) result.push_back(item.value);
  return result;
}

Arguments momentum_operator(const OnnxNode& node, const Arguments& in) {
  Lists lists;
  fill_lists(lists, node, in, {"momentum"});
  SGD sgd(lists.parameters, {.learning_rate = in[0].item(),
                             .momentum = node.real("alpha", 0),
                             .nesterov = node.text("mode", "standard") == "nesterov",
                             .weight_decay = node.real("norm_coefficient", 0)});
  return step(lists, sgd, 0);
}

Arguments adam_operator(const OnnxNode& node, const Arguments& in) {
  Lists lists;
  fill_lists(lists, node, in, {"first_moment", "second_moment"});
  Adam adam(lists.parameters, {.learning_rate = in[0].item(),
                               .beta1 = node.real("alpha", 0.9),
                               .beta2 = node.real("beta", 0.999),
                               .epsilon = node.real("epsilon", 1e-6),
                               .weight_decay = node.real("norm_coefficient", 0)});
  // After that many steps the bias corrections are exactly 1.
  return step(lists, adam, 1'000'000'000);
}

}  // namespace

OnnxTable onnx_optimizer_operators() { return {{"Momentum", momentum_operator}, {"Adam", adam_operator}}; }

}  // namespace mpigrad::testing
