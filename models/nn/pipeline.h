#pragma once
// Pipelines: consecutive parts of a network run on different ranks, one micro-batch after the other.
//
//   const auto pipeline = nn::Pipeline::make(world, {.grid = {.depth = 2, .stage = 2}, .boundaries = {"up2"}});
//   net.build(input_layout(pipeline->grid(), shape), {.pipeline = pipeline});
//   const auto step = pipeline->gradient(net, 4, [&](std::int64_t m) {
//     return mse(net(pipeline->input(x[m])), pipeline->target(y[m])) / 4;
//   });
//   optimizer.step(step.gradients);
//
// The network's function needs no change. Activations travel from stage to stage as differentiable messages, and so do skip
// connections, from the stage that makes a tensor to the stage that reads it. The replay of a micro-batch's tape sends the
// cotangents back: the backward schedule is the adjoint of the forward one. Batch norm takes its statistics from one micro-batch.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/distributed/stages.h"
#include "framework/engine/parameter.h"

namespace mpigrad::nn {

class Module;

enum class PipelineSchedule : std::uint8_t {
  // All forward passes, then all backward passes in the reverse order (GPipe, Huang et al. 2019): each stage holds the tapes of
  // all micro-batches.
  fill_drain,
  // A stage starts backward passes as early as it can (PipeDream-Flush, Narayanan et al. 2021): stage s of P, from 0, holds at
  // most P - s tapes.
  one_forward_one_backward,
};

struct PipelineOptions {
  GridExtents grid{.stage = 2};  // the number of stages, and the grid of each
  // The layer, or the module, with which each stage but the first begins, in the order of their use: "up2", "conv4". None: stages
  // of about equal floating-point operations.
  std::vector<std::string> boundaries{};
  PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward;
  Overlap overlap = Overlap::automatic;
};

// A forward or backward pass of a micro-batch on one stage.
struct PipelineTask {
  std::int64_t micro_batch = 0;
  bool forward = true;
  // Seconds from the beginning of the step; `waited`: of these, waiting for other ranks.
  double begin = 0, end = 0, waited = 0;
};
// The order of the tasks of a stage, without times.
std::vector<PipelineTask> pipeline_tasks(PipelineSchedule schedule, int stages, int stage, std::int64_t micro_batches);

class Pipeline {
 public:
  // Collective over `world`. Errors: a number of ranks other than the grid's; a number of boundaries other than stages - 1.
  static std::shared_ptr<Pipeline> make(const Communicator& world, const PipelineOptions& options);
  // On stages that exist; options.grid and options.overlap do not count.
  static std::shared_ptr<Pipeline> make(std::shared_ptr<const Stages> stages, const PipelineOptions& options);

  const PipelineOptions& options() const { return o_; }  // after build() with the boundaries that it chose
  int stage() const { return stages_->mine(); }
  int stages() const { return stages_->count(); }
  // The grid of this rank's stage: for loaders, and for the layout that build() gets.
  const GridPtr& grid() const { return stages_->grid(); }
  const Stages& messages() const { return *stages_; }

  // A batch that every stage has read, as the network's input (of the first stage) and as the loss's target (of the last stage).
  Tensor input(const Tensor& x) const { return stages_->at(0, x); }
  Tensor target(const Tensor& y) const { return stages_->at(stages() - 1, y); }
  // Returns on every rank the sums over ranks of losses from Step::losses. Collective.
  std::vector<double> totals(const std::vector<Tensor>& losses) const;
  // A result of the network on every stage, as a constant on grid(). Collective; outside gradient().
  Tensor result(const Tensor& y) const { return stages_->everywhere(y); }

  struct Step {
    Gradients gradients;
    std::vector<Tensor> losses;  // of each micro-batch: the partial sums of the last stage, stand-ins elsewhere
    std::vector<PipelineTask> tasks;
    std::size_t most_tapes = 0;  // that this stage held at once
  };
  // The gradient of the sum over micro-batches of `loss`, which runs the network on micro-batch m and returns this rank's part of
  // its loss. Collective. The parameters' step number is first_step + m while micro-batch m is computed, so that each has random
  // numbers of its own.
  Step gradient(Parameters& parameters, std::int64_t micro_batches, const std::function<Tensor(std::int64_t m)>& loss,
                std::int64_t first_step);
  Step gradient(Parameters& parameters, std::int64_t micro_batches, const std::function<Tensor(std::int64_t m)>& loss) {
    return gradient(parameters, micro_batches, loss, parameters.step());
  }

 private:
  friend Module;
  Pipeline() = default;
  // Called by modules. The stage of a layer: during build() layers get stages in the order in which they are first used.
  int stage_of(const std::string& path, bool building);
  bool is_boundary(const std::string& path) const;                      // of the next stage
  std::vector<Tensor> inputs(const std::vector<Tensor>& inputs) const;  // input() of each
  // x on the stage of the layer. Error: x is on a later one.
  Tensor moved(const Tensor& x, const std::string& path, bool building);
  void begin_build();
  void end_build() const;
  // Chooses boundaries from a run of the network on the dry device.
  bool chooses() const { return stages() > 1 && o_.boundaries.empty(); }
  void choose(const std::function<void()>& run);

  PipelineOptions o_;
  std::shared_ptr<const Stages> stages_;
  std::map<std::string, int> stage_of_;
  int current_ = 0;    // during build()
  bool runs_ = false;  // a step has begun and not ended
  std::function<void(const std::string& path)> measuring_;
};

// x on the stage of y, if they are on different stages of a pipeline; else x. Ops do this themselves; for code that compares the
// layouts of both before it calls an op.
Tensor at_stage_of(const Tensor& y, const Tensor& x);

}  // namespace mpigrad::nn
