#include "examples/studies/plan/planner/search/pipeline.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "framework/base/error.h"

namespace mpigrad::planner {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Runs the tasks of all stages, each on its rank, in the order of time.
class Schedule {
 public:
  // `order`: the tasks of each stage; none: a free rank chooses.
  Schedule(const PipelineCosts& costs, std::vector<int> rank_of, std::int64_t micro_batches,
           std::vector<std::vector<nn::PipelineTask>> order)
      : costs_(costs), rank_of_(std::move(rank_of)), micro_batches_(micro_batches), order_(std::move(order)) {
    const int stages = static_cast<int>(costs.stages.size());
    require(stages >= 1 && micro_batches >= 1, "[planner] a pipeline of {} stages and {} micro-batches", stages, micro_batches);
    for (const auto& message : costs.messages)
      require(message.from >= 0 && message.to >= 0 && message.from < stages && message.to < stages && message.from != message.to,
              "[planner] a message from stage {} to stage {} of {}", message.from, message.to, stages);
    for (auto& all : sent_) all.assign(at(stages), std::vector<double>(at(micro_batches), not_yet));
    for (auto& all : done_) all.assign(at(stages), 0);
    free_.assign(at(*std::max_element(rank_of_.begin(), rank_of_.end()) + 1), 0);
    result_.tasks.resize(at(stages));
  }

  PipelineTime run() {
    const auto tasks = 2 * micro_batches_ * static_cast<std::int64_t>(costs_.stages.size());
    for (std::int64_t i = 0; i < tasks; ++i) {
      std::optional<Next> next;
      for (int stage = 0; stage < static_cast<int>(costs_.stages.size()); ++stage)
        for (const bool forward : {false, true})
          if (const auto other = first_of(stage, forward); other && (!next || comes_before(*other, *next))) next = other;
      require(next.has_value(), "[planner] the tasks of a pipeline of {} stages wait for each other", costs_.stages.size());
      perform(*next);
    }
    double busy = 0;
    for (std::size_t s = 0; s < costs_.stages.size(); ++s) {
      const auto& times = costs_.stages[s];
      const auto others = static_cast<double>(micro_batches_ - 1);
      busy += (others + 1) * times.forward + others * times.backward + times.last_backward + times.update;
      free_[at(rank_of_[s])] += times.update;
    }
    result_.seconds = *std::max_element(free_.begin(), free_.end());
    if (result_.seconds > 0) result_.bubble = std::max(0.0, 1 - busy / (static_cast<double>(free_.size()) * result_.seconds));
    return std::move(result_);
  }

 private:
  static constexpr double not_yet = -1;
  struct Next {
    int stage = 0;
    nn::PipelineTask task{};  // with the time at which it can begin
  };

  // The next forward or backward pass of a stage, if it is known when the pass can begin.
  std::optional<Next> first_of(int stage, bool forward) const {
    nn::PipelineTask task{.micro_batch = done_[forward][at(stage)], .forward = forward};
    if (task.micro_batch == micro_batches_) return std::nullopt;
    if (!order_.empty()) {
      task = order_[at(stage)][at(done_[0][at(stage)] + done_[1][at(stage)])];
      if (task.forward != forward) return std::nullopt;
    } else if (!forward && task.micro_batch >= done_[1][at(stage)]) {
      return std::nullopt;
    }
    const int rank = rank_of_[at(stage)];
    double begin = free_[at(rank)], receiving = 0;
    for (const auto& message : costs_.messages) {
      if (message.to != stage || (message.from < stage) != forward) continue;
      const double sent = sent_[forward][at(message.from)][at(task.micro_batch)];
      if (sent == not_yet) return std::nullopt;
      const double seconds = rank_of_[at(message.from)] == rank ? 0 : message.seconds;
      begin = std::max(begin, costs_.overlaps ? sent + seconds : sent);
      if (!costs_.overlaps) receiving += seconds;
    }
    task.begin = begin + receiving;
    return Next{stage, task};
  }

  static bool comes_before(const Next& a, const Next& b) {
    return std::tuple(a.task.begin, a.task.forward, a.task.micro_batch, a.stage) <
           std::tuple(b.task.begin, b.task.forward, b.task.micro_batch, b.stage);
  }

  void perform(const Next& next) {
    auto task = next.task;
    const auto& times = costs_.stages[at(next.stage)];
    const auto count = ++done_[task.forward][at(next.stage)];
    const double seconds = task.forward ? times.forward : count == micro_batches_ ? times.last_backward : times.backward;
    auto& free = free_[at(rank_of_[at(next.stage)])];
    task.end = task.begin + seconds, task.waited = task.begin - free;
    free = task.end;
    sent_[task.forward][at(next.stage)][at(task.micro_batch)] =
        task.forward ? task.end : task.begin + std::min(seconds, times.backward);
    result_.tasks[at(next.stage)].push_back(task);
  }

  const PipelineCosts& costs_;
  std::vector<int> rank_of_;  // by stage
  std::int64_t micro_batches_;
  std::vector<std::vector<nn::PipelineTask>> order_;
  // Backward and forward: the times at which messages leave, by stage and micro-batch; the number of tasks so far, by stage.
  std::array<std::vector<std::vector<double>>, 2> sent_;
  std::array<std::vector<std::int64_t>, 2> done_;
  std::vector<double> free_;  // by rank
  PipelineTime result_;
};

}  // namespace

PipelineTime simulate_pipeline(const PipelineCosts& costs, nn::PipelineSchedule schedule, std::int64_t micro_batches) {
  const int stages = static_cast<int>(costs.stages.size());
  std::vector<int> rank_of;
  std::vector<std::vector<nn::PipelineTask>> order;
  for (int s = 0; s < stages; ++s) rank_of.push_back(s), order.push_back(pipeline_tasks(schedule, stages, s, micro_batches));
  return Schedule(costs, rank_of, micro_batches, order).run();
}

PipelineTime simulate_folded(const PipelineCosts& costs, std::int64_t micro_batches) {
  const int stages = static_cast<int>(costs.stages.size());
  require(stages % 2 == 1, "[planner] folded placement has an odd number of stages, not {}", stages);
  std::vector<int> rank_of;
  for (int s = 0; s < stages; ++s) rank_of.push_back(std::min(s, stages - 1 - s));
  return Schedule(costs, rank_of, micro_batches, {}).run();
}

namespace {

bool leaves_stage(const DryRecord& call, int stage, int ranks) { return call.is_message() && call.peer / ranks != stage; }

// The events of a stage's passes, each once.
using Events = std::vector<StepEvent>;
struct Passes {
  Events forward, backward, last_backward, update;
};

// The first passes are those of a micro-batch; the last backward pass has the reductions.
Passes passes_of(const StepTrace& step) {
  using Phase = StepEvent::Phase;
  Passes passes;
  bool first = true;
  auto phase = Phase::forward;
  for (auto event : step.events) {
    if (event.phase == Phase::forward && phase != Phase::forward)
      first = false, passes.backward = std::move(passes.last_backward), passes.last_backward.clear();
    phase = event.phase;
    if (phase == Phase::forward && !first) continue;
    auto& list = phase == Phase::forward ? passes.forward : phase == Phase::backward ? passes.last_backward : passes.update;
    event.times = 1;
    list.push_back(std::move(event));
  }
  if (first) passes.backward = passes.last_backward;  // there is only one micro-batch
  return passes;
}

StepTrace with_events(const StepTrace& step, Events events) {
  StepTrace result;
  result.layers = step.layers, result.events = std::move(events);
  return result;
}

}  // namespace

StepTrace without_stage_messages(const StepTrace& step, int stage, int ranks, int group) {
  const int shift = (group - stage) * ranks;
  auto events = step.events;
  for (auto& event : events) {
    // Calls of the stage that were started before a message to another stage stay.
    std::erase_if(event.calls, [&](const DryRecord& call) { return leaves_stage(call, stage, ranks); });
    if (shift == 0) continue;
    for (auto& call : event.calls) {
      if (call.peer >= 0) call.peer += shift;
      if (!call.ranks) continue;
      auto moved = *call.ranks;
      for (int& rank : moved) rank += shift;
      call.ranks = std::make_shared<const std::vector<int>>(std::move(moved));
    }
  }
  return with_events(step, std::move(events));
}

PipelineCosts pipeline_costs(const std::vector<StepTrace>& steps, const std::vector<int>& groups, int place, int ranks,
                             const Machine& machine, const StepTimeOptions& options) {
  PipelineCosts costs{.overlaps = machine.overlaps};
  for (int stage = 0; stage < static_cast<int>(steps.size()); ++stage) {
    const auto& step = steps[at(stage)];
    const int group = groups[at(stage)];
    auto passes = passes_of(without_stage_messages(step, stage, ranks, group));
    const auto seconds = [&](Events& events) {
      return time_step(with_events(step, std::move(events)), group * ranks + place, machine, options).total;
    };
    costs.stages.push_back(
        {seconds(passes.forward), seconds(passes.backward), seconds(passes.last_backward), seconds(passes.update)});
    // Messages of the last micro-batch, which are those of each.
    std::map<int, double> bytes;
    bool forward = false;
    for (auto event = step.events.rbegin(); event != step.events.rend(); ++event) {
      if (event->phase == StepEvent::Phase::forward) forward = true;
      else if (forward) break;
      for (const auto& call : event->calls)
        if (call.what == DryRecord::What::send && leaves_stage(call, stage, ranks))
          bytes[call.peer / ranks] += static_cast<double>(call.bytes);
    }
    for (const auto& [to, all] : bytes) costs.messages.push_back({stage, to, all});
  }
  for (auto& message : costs.messages) {
    const int from = groups[at(message.from)] * ranks, to = groups[at(message.to)] * ranks;
    if (from == to) continue;
    int farthest = 0;
    for (int r = 1; r < ranks; ++r)
      if (machine.level_between(from + r, to + r) > machine.level_between(from + farthest, to + farthest)) farthest = r;
    const DryRecord call{.what = DryRecord::What::send, .peer = to + farthest, .bytes = static_cast<std::int64_t>(message.bytes)};
    StepTrace sending;
    sending.events = {{.op = sends_to_stage, .in = {}, .out = {}, .communicates = true, .calls = {call}}};
    auto anywhere = options;
    anywhere.grid.reset();
    message.seconds = time_step(sending, from + farthest, machine, anywhere).halos;
  }
  return costs;
}

}  // namespace mpigrad::planner
