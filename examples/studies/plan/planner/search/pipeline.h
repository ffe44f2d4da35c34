#pragma once
// The time of a training step in a pipeline: what its stages cost, and the schedule of their tasks, simulated task by task.

#include <cstdint>
#include <vector>

#include "examples/studies/plan/planner/step_time.h"
#include "models/nn/pipeline.h"

namespace mpigrad::planner {

// Seconds of a stage for one micro-batch, without messages of other stages.
struct StageTimes {
  double forward = 0, backward = 0;
  double last_backward = 0;  // the last backward pass of a step, with the reductions of gradients
  double update = 0;         // of the weights, once in a step
};

// Messages from one stage to another for one micro-batch: activations if `from` is the earlier stage, otherwise cotangents.
struct StageMessage {
  int from = 0, to = 0;
  double bytes = 0, seconds = 0;
};

struct PipelineCosts {
  std::vector<StageTimes> stages{};
  std::vector<StageMessage> messages{};
  // True if messages travel while ranks compute. Otherwise a task first receives its messages, one after the other.
  bool overlaps = true;
};

struct PipelineTime {
  double seconds = 0;  // of a step
  double bubble = 0;   // fraction of the ranks' time in which they compute nothing: they wait for other stages
  // The tasks of each stage, in the order in which they run; a task begins when its messages have arrived.
  std::vector<std::vector<nn::PipelineTask>> tasks{};
};

// A step with the tasks of nn::pipeline_tasks(). A task begins when its stage is free and all of its messages have arrived; sends
// do not block. Reductions of gradients come after the messages of the last backward pass. Each rank then updates its weights.
// Error: a message from or to no stage.
PipelineTime simulate_pipeline(const PipelineCosts& costs, nn::PipelineSchedule schedule, std::int64_t micro_batches);
// The same for folded placement: of 2P - 1 stages on P ranks, rank r has stages r and 2P - 2 - r, such as the encoder and the
// decoder of a level, and messages between these two take no time. A free rank runs the task that can begin first; of several, a
// backward pass, of the lowest micro-batch. The library does not run this placement. Error: an even number of stages.
PipelineTime simulate_folded(const PipelineCosts& costs, std::int64_t micro_batches);

// The trace of one rank of a stage, without messages of other stages, as if the stage ran on another group of ranks. Each stage
// has `ranks` consecutive ranks, stage by stage.
StepTrace without_stage_messages(const StepTrace& step, int stage, int ranks, int group);
// The costs of a pipeline from the traces of one rank of each stage, at `place` in the stage. Stage s runs on ranks
// groups[s] * `ranks` and following. A message takes as long as between the ranks that are farthest apart on the machine.
PipelineCosts pipeline_costs(const std::vector<StepTrace>& steps, const std::vector<int>& groups, int place, int ranks,
                             const Machine& machine, const StepTimeOptions& options);

}  // namespace mpigrad::planner
