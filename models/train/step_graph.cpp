#include "models/train/step_graph.h"

#include <cstdio>
#include <utility>

#include "framework/cuda/cuda.h"

namespace mpigrad {
namespace {

bool equal(const LayoutPtr& a, const LayoutPtr& b) { return a && b ? *a == *b : !a && !b; }

// A copy of x in new memory on the GPU.
Tensor copy_of(const Tensor& x) {
  Tensor copy(x.type(), DeviceKind::cuda);
  cuda::copy_on_device(copy.raw(), x.raw(), x.bytes());
  if (x.is_constant()) copy = constant(copy);
  return x.layout() ? copy.with_layout(x.layout()) : copy;
}

}  // namespace

StepGraph::StepGraph(nn::Module& net, Optimizer& optimizer, const Communicator& world, const StepGraphOptions& options)
    : net_(net), optimizer_(optimizer), world_(world), o_(options) {
  require(o_.warm_up >= 1, "[graph] at least one ordinary step comes first, got {}", o_.warm_up);
  if (!o_.reason.empty()) give_up(o_.reason);
  else if (current_device() != DeviceKind::cuda) give_up("tensors are not on a GPU (--device cuda)");
  else if (!world_.transport(DeviceKind::cuda).capturable())
    give_up("ranks meet on the host in between; graphs of several ranks need NCCL, its order of sums, and no checks");
}

void StepGraph::give_up(const std::string& why) {
  reason_ = why;
  if (!o_.quiet && world_.rank() == 0) fmt::print(stderr, "[graph] steps are not captured: {}\n", why);
}

bool StepGraph::fits(const std::vector<Tensor>& inputs) const {
  if (inputs.size() != kinds_.size() || net_.training() != training_) return false;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].type() != kinds_[i].type || !equal(inputs[i].layout(), kinds_[i].layout)) return false;
  return true;
}

std::vector<const std::byte*> StepGraph::addresses() {
  std::vector<const std::byte*> result;
  auto& parameters = net_.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) result.push_back(parameters[i].value.raw());
  for (const auto& [name, value] : net_.buffers()) result.push_back(value.raw());
  return result;
}

Tensor StepGraph::operator()(const std::vector<Tensor>& inputs, const Step& step) {
  if (!reason_.empty()) return step(inputs);
  const auto number = net_.step();  // the optimizer's step increments it
  for (const auto& x : inputs)
    if (x.device() != DeviceKind::cuda || (!x.layout() && world_.size() > 1)) {
      give_up(fmt::format("an input is not on the GPU, or lacks the layout that shows whether shapes change on all ranks: {}",
                          to_string(x)));
      return step(inputs);
    }
  if (graph_ && addresses() != addresses_) release();
  if (!fits(inputs)) {
    if (graph_) return step(inputs);
    kinds_.clear(), ordinary_ = 0, training_ = net_.training();
    for (const auto& x : inputs) kinds_.push_back({x.type(), x.layout()});
  }
  if (ordinary_ < o_.warm_up) {
    ++ordinary_;
    return step(inputs);
  }
  if (!graph_) {
    capture(inputs, step);
    if (!graph_) return step(inputs);
  } else {
    optimizer_.count_steps(optimizer_.steps() + 1);
  }
  return repeat(inputs, number);
}

void StepGraph::capture(const std::vector<Tensor>& inputs, const Step& step) {
  const auto steps = optimizer_.steps();
  std::vector<Tensor> own;
  for (const auto& x : inputs) own.push_back(copy_of(x));
  inputs_ = std::move(own);
  addresses_ = addresses();
  try {
    graph_ = std::make_unique<cuda::CapturedGraph>([&] { result_ = step(inputs_); });
    require(result_ && result_.device() == DeviceKind::cuda, "[graph] the step's result is not on the GPU");
  } catch (const std::exception& error) {
    if (world_.size() > 1) fail("{}; train without captured steps, or on one rank", error.what());
    release();
    optimizer_.count_steps(steps);  // undoes the count: no step was made
    give_up(error.what());
  }
}

Tensor StepGraph::repeat(const std::vector<Tensor>& inputs, std::int64_t number) {
  for (std::size_t i = 0; i < inputs.size(); ++i) cuda::copy_on_device(inputs_[i].raw(), inputs[i].raw(), inputs[i].bytes());
  auto scalars = optimizer_.scalars();
  scalars.step = static_cast<std::uint64_t>(number);
  graph_->launch(scalars);
  ++repeated_;
  return copy_of(result_);  // the next repetition writes there
}

void StepGraph::release() {
  graph_ = nullptr;
  result_ = {};
  inputs_.clear();
}

}  // namespace mpigrad
