#include "tests/bench/cosmoflow/cosmoflow_training.h"

#include <algorithm>
#include <chrono>

#include "comm/collectives/collectives.h"
#include "models/trainer/options.h"
#include "models/trainer/run.h"
#include "ops/elementwise/elementwise.h"
#include "ops/loss/loss.h"
#include "ops/random/random.h"

namespace mpigrad::bench {
namespace {

double seconds_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

CosmoFlowTraining::CosmoFlowTraining(const Session& session, const std::string& extents, const std::vector<std::string>& layers,
                                     std::int64_t width, const std::string& precision)
    : world_(session.world()) {
  const auto grid = session.grid(trainer::parse_grid(extents, session.ranks(), trainer::Channels::split));
  const auto layout = activation_layout(grid, {1, width, width, width, 4});
  const auto target_layout = split_layout(grid, {1, 4}, {0, -1, -1, -1});
  trainer::Options options;
  options.seed = 1, options.precision = precision, options.grid = extents, options.grid_of = layers;
  trainer::build(net_, layout, layout->global, options);
  adam_ = std::make_unique<Adam>(net_, AdamAttributes{.learning_rate = 1e-4});
  const Philox random{1, 2};
  x_ = constant(random_normal(layout->global, random, 0, 1, DType::float32, layout));
  y_ = constant(random_normal(target_layout->global, random.child(1), 0, 1, DType::float32, target_layout));
}

StepTimes CosmoFlowTraining::step() {
  StepTimes times;
  CostLog log;
  const double start = seconds_now();
  net_.set_step(steps_++);
  Tensor loss;
  {
    Tape tape(net_);
    loss = mse(cast(net_(x_), net_.dtype()), y_);
    times.forward = seconds_now() - start;
    const auto gradients = tape.gradient(loss);
    times.backward = seconds_now() - start - times.forward;
    adam_->step(gradients);
  }
  times.step = seconds_now() - start;
  times.optimizer = times.step - times.forward - times.backward;
  times.ops = std::move(log.lines);
  times.loss = total(loss, world_);
  return times;
}

double flops_of_convolutions(const StepTimes& times) {
  double flops = 0;
  for (const auto& op : times.ops)
    if (op.op.starts_with("conv")) flops += op.flops;
  return flops;
}

double median(std::vector<double> values) {
  require(!values.empty(), "[bench] the median of nothing");
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

StepTimes median_step(std::vector<StepTimes> steps) {
  require(!steps.empty(), "[bench] the median of no steps");
  const auto middle = steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2);
  std::nth_element(steps.begin(), middle, steps.end(), [](const StepTimes& a, const StepTimes& b) { return a.step < b.step; });
  // Times of single ops vary more than the step: medians of each op, if all steps ran the same ops.
  StepTimes result = *middle;
  for (std::size_t i = 0; i < result.ops.size(); ++i) {
    std::vector<double> seconds;
    for (const auto& step : steps) seconds.push_back(step.ops.at(i).seconds);
    result.ops[i].seconds = median(seconds);
  }
  const auto middle_of = [&](double StepTimes::*part) {
    std::vector<double> seconds;
    for (const auto& step : steps) seconds.push_back(step.*part);
    return median(seconds);
  };
  result.forward = middle_of(&StepTimes::forward), result.backward = middle_of(&StepTimes::backward);
  result.optimizer = middle_of(&StepTimes::optimizer);
  return result;
}

}  // namespace mpigrad::bench
