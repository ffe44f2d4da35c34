#pragma once
// A training step that a GPU repeats by itself: after a few ordinary steps one is captured, and from then on the host only says
// "again". For steps that are too short to keep the GPU busy with one call for each kernel.

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
  int warm_up = 3;       // ordinary steps first, of inputs of the same shapes, in which kernels are chosen and memory is taken
  std::string reason{};  // why steps cannot be captured, if the caller knows of one
  bool quiet = false;    // do not print why steps are not captured
};

class StepGraph {
 public:
  // From the inputs, the network and the optimizer alone, to the loss, as one rank's share, or to any other tensor on the GPU.
  // Nothing of it is read by the host; what it changes lies in parameters, the optimizer's state and buffers of modules.
  using Step = std::function<Tensor(const std::vector<Tensor>& inputs)>;

  // Collective over `world`, whose ranks make all steps together.
  StepGraph(nn::Module& net, Optimizer& optimizer, const Communicator& world, const StepGraphOptions& options = {});

  // Runs the step, or its repetition with these inputs, the network's step() and the optimizer's learning rate. An ordinary
  // step is run, too, where the inputs' shapes or the network's mode are not those of the captured step, beside whose memory it
  // needs its own, and always where something cannot be captured: rank 0 says so once. Several ranks, of which others may be in
  // the middle of theirs then, end with an Error instead. Parameters or buffers in other memory than before: captured anew.
  Tensor operator()(const std::vector<Tensor>& inputs, const Step& step);

  // Gives the captured step's memory back, before something else that needs much; the next step is captured anew.
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
  std::vector<Kind> kinds_;  // of inputs that are captured, or will be
  bool training_ = true;     // and the network's mode
  int ordinary_ = 0;         // steps of these
  std::int64_t repeated_ = 0;
  // Of the captured step.
  std::vector<Tensor> inputs_;
  std::vector<const std::byte*> addresses_;
  Tensor result_;
  std::unique_ptr<cuda::CapturedGraph> graph_;  // before them goes what uses them
};

}  // namespace mpigrad
