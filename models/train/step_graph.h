#pragma once
// A training step as a captured graph: after a few ordinary steps one is captured, and from then on the host starts each step by
// one call. For steps that are too short to keep the GPU busy with one call per kernel.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "framework/cuda/graph.h"
#include "framework/optim/optimizer.h"
#include "models/nn/module.h"

namespace mpigrad {

struct StepGraphOptions {
  int warm_up = 3;       // ordinary steps with inputs of the same shapes, to choose kernels and allocate memory
  std::string reason{};  // why steps cannot be captured, if the caller knows a reason
  bool quiet = false;    // do not print why steps are not captured
};

class StepGraph {
 public:
  // A function of the inputs, the network and the optimizer only. Returns the loss, as the rank's share, or any other tensor on
  // the GPU. The host reads none of its results; it changes only parameters, the optimizer's state and buffers of modules.
  using Step = std::function<Tensor(const std::vector<Tensor>& inputs)>;

  // Collective over `world`, whose ranks make all steps together.
  StepGraph(nn::Module& net, Optimizer& optimizer, const Communicator& world, const StepGraphOptions& options = {});

  // Runs the step, or repeats the captured one with these inputs, the network's step() and the optimizer's learning rate. Runs an
  // ordinary step if the inputs' shapes or the network's mode differ from the captured step; this needs memory in addition to
  // that of the captured step. Always runs ordinary steps if the step cannot be captured: rank 0 prints this once; with several
  // ranks, when others may be in the middle of their step, it is an Error instead. If parameters or buffers have moved to other
  // memory, captures again.
  Tensor operator()(const std::vector<Tensor>& inputs, const Step& step);

  // Releases the memory of the captured step, before other work that needs much memory; the next step is captured again.
  void release();
  bool captured() const { return graph_ != nullptr; }
  std::int64_t repeated() const { return repeated_; }
  // Why steps are not captured; empty if they are.
  const std::string& reason() const { return reason_; }

 private:
  struct Kind {
    TensorType type;
    LayoutPtr layout;
  };
  bool fits(const std::vector<Tensor>& inputs) const;
  std::vector<const std::byte*> addresses();
  void capture(const std::vector<Tensor>& inputs, const Step& step);
  Tensor repeat(const std::vector<Tensor>& inputs, std::int64_t number);
  void give_up(const std::string& why);

  nn::Module& net_;
  Optimizer& optimizer_;
  Communicator world_;
  StepGraphOptions o_;
  std::string reason_;
  std::vector<Kind> kinds_;  // of the inputs of the captured step, or of the next capture
  bool training_ = true;     // the network's mode in that step
  int ordinary_ = 0;         // ordinary steps with these inputs
  std::int64_t repeated_ = 0;
  // Tensors of the captured step.
  std::vector<Tensor> inputs_;
  std::vector<const std::byte*> addresses_;
  Tensor result_;
  std::unique_ptr<cuda::CapturedGraph> graph_;  // destroyed before the tensors that it uses
};

}  // namespace mpigrad
