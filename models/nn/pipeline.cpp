#include "models/nn/pipeline.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "comm/collectives/collectives.h"
#include "comm/transport/waited.h"
#include "framework/base/joined.h"
#include "framework/engine/cost.h"
#include "models/nn/layer_names.h"
#include "ops/recompute.h"

namespace mpigrad::nn {

std::vector<PipelineTask> pipeline_tasks(PipelineSchedule schedule, int stages, int stage, std::int64_t micro_batches) {
  std::vector<PipelineTask> tasks;
  const auto add = [&](std::int64_t m, bool forward) { tasks.push_back({.micro_batch = m, .forward = forward}); };
  if (schedule == PipelineSchedule::fill_drain) {
    for (std::int64_t m = 0; m < micro_batches; ++m) add(m, true);
    for (auto m = micro_batches; m-- > 0;) add(m, false);
    return tasks;
  }
  const std::int64_t ahead = std::min<std::int64_t>(stages - 1 - stage, micro_batches);
  for (std::int64_t m = 0; m < ahead; ++m) add(m, true);
  for (std::int64_t m = 0; m < micro_batches; ++m) {
    if (m + ahead < micro_batches) add(m + ahead, true);
    add(m, false);
  }
  return tasks;
}

std::shared_ptr<Pipeline> Pipeline::make(const Communicator& world, const PipelineOptions& options) {
  auto each = options.grid;
  each.stage = 1;
  return make(Stages::make(world, options.grid.stage, each, options.overlap), options);
}

std::shared_ptr<Pipeline> Pipeline::make(std::shared_ptr<const Stages> stages, const PipelineOptions& options) {
  const auto& b = options.boundaries;
  require(b.empty() || static_cast<int>(b.size()) == stages->count() - 1, "[pipeline] {} stages have {} boundaries, got {}: {}",
          stages->count(), stages->count() - 1, b.size(), joined(b, ", "));
  for (const auto* axis : {"channel", "filter"}) {
    const auto& names = stages->grid()->names;
    const auto found = std::find(names.begin(), names.end(), axis);
    require(found == names.end() || stages->grid()->extents[static_cast<std::size_t>(found - names.begin())] == 1,
            "[pipeline] stages are not combined with the axis {}", axis);
  }
  const std::shared_ptr<Pipeline> result(new Pipeline);
  result->o_ = options;
  result->stages_ = std::move(stages);
  return result;
}

std::vector<Tensor> Pipeline::inputs(const std::vector<Tensor>& inputs) const {
  std::vector<Tensor> result;
  for (const auto& x : inputs) result.push_back(measuring_ ? x : input(x));
  return result;
}

void Pipeline::begin_build() {
  require(stage_of_.empty(), "[pipeline] a network has been built on this pipeline already: make one for each network");
  current_ = 0;
}

void Pipeline::end_build() const {
  if (current_ + 1 == stages()) return;
  const auto& missing = o_.boundaries.at(static_cast<std::size_t>(current_));
  fail("[pipeline] no layer called {} runs after the first layer of stage {}; the layers, in their order by name, are {}",
       missing, current_,
       joined(
           [&] {
             std::vector<std::string> names;
             for (const auto& each : stage_of_) names.push_back(each.first);
             return names;
           }(),
           ", "));
}

bool Pipeline::is_boundary(const std::string& path) const {
  const auto next = static_cast<std::size_t>(current_);
  return next < o_.boundaries.size() && names_layer(o_.boundaries[next], path);
}

int Pipeline::stage_of(const std::string& path, bool building) {
  const auto known = stage_of_.find(path);
  if (known != stage_of_.end()) return known->second;
  require(building, "[pipeline] layer {} did not run when the network was built", path);
  require(measuring_ || !detail::Arrival::inside() || !is_boundary(path),
          "[pipeline] stage {} begins inside a function that is recomputed, at layer {}: choose a boundary outside", current_ + 1,
          path);
  if (measuring_) return measuring_(path), stage_of_[path] = stage();
  if (is_boundary(path)) {
    require(!stage_of_.empty(), "[pipeline] the boundary {} is the first layer: stage 0 would be empty", path);
    ++current_;
  }
  stage_of_[path] = current_;
  return current_;
}

Tensor Pipeline::moved(const Tensor& x, const std::string& path, bool building) {
  stages_->poll();
  const int to = stage_of(path, building), from = stages_->stage_of(x);
  if (from < 0 || from == to) return x;
  require(
      from < to,
      "[pipeline] layer {} is of stage {} and gets a tensor of stage {}: a layer cannot run after a later stage. A layer that "
      "is used twice belongs to one stage: choose other boundaries",
      path, to, from);
  return stages_->move(x, to);
}

// The partition of the segments into consecutive stages whose largest sum of operations is least; dynamic programming.
void Pipeline::choose(const std::function<void()>& run) {
  std::vector<std::string> paths;
  std::vector<double> flops;
  {
    CostLog log;
    std::vector<std::size_t> begins;
    // A stage cannot begin inside a function that is recomputed.
    measuring_ = [&](const std::string& path) {
      if (paths.empty() || !detail::Arrival::inside()) paths.push_back(path), begins.push_back(log.lines.size());
    };
    begin_build();
    run();
    measuring_ = nullptr;
    stage_of_.clear();
    for (std::size_t i = 0; i < begins.size(); ++i) {
      const auto end = i + 1 < begins.size() ? begins[i + 1] : log.lines.size();
      double sum = 0;
      for (auto line = begins[i]; line < end; ++line) sum += log.lines[line].flops;
      flops.push_back(sum);
    }
  }
  // Ranks with blocks of unlike extents count unlike operations, and all must choose the same boundaries.
  if (auto& ranks = grid()->world().transport(); ranks.can_ask())
    ranks.allreduce(flops.data(), flops.data(), static_cast<std::int64_t>(flops.size()), DType::float64, CombineOp::max);
  const auto n = paths.size(), count = static_cast<std::size_t>(stages());
  require(n >= count, "[pipeline] a network of {} layer{} has no {} stages", n, n == 1 ? "" : "s", count);
  std::vector<double> until(n + 1, 0);
  std::partial_sum(flops.begin(), flops.end(), until.begin() + 1);
  // least[s][i]: of the first i segments on s + 1 stages; first[s][i]: the first segment of stage s there.
  constexpr double none = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> least(count, std::vector<double>(n + 1, none));
  std::vector<std::vector<std::size_t>> first(count, std::vector<std::size_t>(n + 1, 0));
  for (std::size_t i = 1; i <= n; ++i) least[0][i] = until[i];
  for (std::size_t s = 1; s < count; ++s)
    for (std::size_t i = s + 1; i <= n; ++i)
      for (std::size_t begin = s; begin < i; ++begin) {
        const auto most = std::max(least[s - 1][begin], until[i] - until[begin]);
        if (most < least[s][i]) least[s][i] = most, first[s][i] = begin;
      }
  std::vector<std::string> chosen;
  for (auto s = count - 1, end = n; s > 0; --s) {
    end = first[s][end];
    chosen.insert(chosen.begin(), paths[end]);
  }
  o_.boundaries = std::move(chosen);
}

Pipeline::Step Pipeline::gradient(Parameters& parameters, std::int64_t micro_batches,
                                  const std::function<Tensor(std::int64_t m)>& loss, std::int64_t first_step) {
  require(micro_batches >= 1, "[pipeline] a step has at least one micro-batch, got {}", micro_batches);
  require(!runs_,
          "[pipeline] an earlier step ended with an error, and its messages are still under way: make the pipeline again");
  parameters.require_nothing_accumulated("pipeline");
  runs_ = true;
  struct Open {
    std::unique_ptr<Tape> tape;
    Tensor objective;
  };
  std::map<std::int64_t, Open> open;
  Step step;
  step.losses.resize(static_cast<std::size_t>(micro_batches));
  step.tasks = pipeline_tasks(o_.schedule, stages(), stage(), micro_batches);
  const auto start = detail::seconds_now();
  const auto& waited = detail::waited_of_this_thread();
  for (std::size_t i = 0; i < step.tasks.size(); ++i) {
    auto& task = step.tasks[i];
    const auto before = waited.messages + waited.collectives;
    task.begin = detail::seconds_now() - start;
    parameters.set_step(first_step + task.micro_batch);
    const Stages::Pass pass(*stages_, task.forward);
    if (task.forward) {
      auto& now = open[task.micro_batch];
      step.most_tapes = std::max(step.most_tapes, open.size());
      now.tape = std::make_unique<Tape>(parameters);
      const auto share = loss(task.micro_batch);
      now.tape->stop();
      step.losses[static_cast<std::size_t>(task.micro_batch)] = share;
      if (share && !share.is_stand_in()) now.objective = share;
    } else {
      auto now = std::move(open.at(task.micro_batch));
      open.erase(task.micro_batch);
      auto gradients = now.tape->gradient(now.objective, {.accumulate = i + 1 < step.tasks.size()});
      if (i + 1 == step.tasks.size()) step.gradients = std::move(gradients);
    }
    task.end = detail::seconds_now() - start;
    task.waited = waited.messages + waited.collectives - before;
  }
  stages_->require_same_moves();
  stages_->flush();
  runs_ = false;
  return step;
}

std::vector<double> Pipeline::totals(const std::vector<Tensor>& losses) const {
  const int last = stages() - 1;
  std::vector<double> sums(losses.size());
  for (std::size_t m = 0; m < losses.size(); ++m) {
    require(stages_->stage_of(losses[m]) == last, "[pipeline] a loss has a layout of the last stage, which computes it: {}",
            losses[m]);
    if (stage() == last) sums[m] = mpigrad::total(losses[m]);
  }
  return stages_->everywhere(std::move(sums), last);
}

Tensor at_stage_of(const Tensor& y, const Tensor& x) {
  return x.layout() && y.layout() && x.layout()->grid != y.layout()->grid ? y.layout()->grid->brought(x) : x;
}

}  // namespace mpigrad::nn
