#include "models/nn/step_trace.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "comm/communicator.h"
#include "framework/engine/cost.h"
#include "framework/engine/op_observer.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"

namespace mpigrad {
namespace {

// Counts bytes that were passed to calls so far; the log is read once.
class SentBytes {
 public:
  explicit SentBytes(std::shared_ptr<std::vector<DryRecord>> log) : log_(std::move(log)) {}

  std::int64_t sent() { return read(), sent_; }
  std::int64_t reduced() { return read(), reduced_; }
  std::int64_t gathered() { return read(), gathered_; }
  nn::LayerTraffic traffic() { return read(), nn::LayerTraffic{sent_, reduced_ + gathered_}; }

 private:
  void read() {
    for (; read_ < log_->size(); ++read_) {
      const auto& record = (*log_)[read_];
      if (record.what == DryRecord::What::send) sent_ += record.bytes;
      else if (record.what == DryRecord::What::collective)
        (traits_of(record.kind).reduces ? reduced_ : gathered_) += record.bytes;
    }
  }

  std::shared_ptr<std::vector<DryRecord>> log_;
  std::size_t read_ = 0;
  std::int64_t sent_ = 0, reduced_ = 0, gathered_ = 0;
};

// Builds the network as a training on these ranks does: parameters have layouts of the grid.
void build_on(const Communicator& world, const LayoutPtr& layout, nn::Module& net, const DescribeOptions& o,
              const std::shared_ptr<nn::Pipeline>& pipeline) {
  nn::BuildOptions build{.dtype = o.dtype, .compute = o.compute, .device = DeviceKind::dry, .split = o.split};
  build.sharded_weights = o.sharded_weights, build.pipeline = pipeline;
  for (const auto& own : o.grids) build.grids.push_back({own.layers, make_grid(world, own.grid), own.split});
  net.build(layout, build);
  net.train();
}

std::vector<TensorType> types_of(Inputs tensors) {
  std::vector<TensorType> types;
  for (const auto& x : tensors) types.push_back(x ? x.type() : TensorType{});
  return types;
}

// Records events in order. Ops come as lines of a CostLog, including recomputed ops; the observer ran() adds details to most of
// them.
class Recorder final : public detail::OpObserver {
 public:
  Recorder(std::shared_ptr<std::vector<DryRecord>> log, const OpTimer& timer)
      : log_(std::move(log)), timer_(timer), read_(log_->size()) {
    costs_.told = [this] { take_lines(); };
  }

  void begin(const Tape& tape, const nn::LayerTrace& layers, const Tensor& x, double times) {
    tape_ = &tape, layers_ = &layers, times_ = times;
    phase_ = StepEvent::Phase::forward;
    layer_of_entry_.clear(), makers_.clear();
    makers_[x.id()] = -1;
  }
  // Called when all layers have run.
  void begin_backward(int layers) {
    take_lines();
    for (auto& layer : layer_of_entry_) layer = std::min(layer, layers - 1);
    for (auto& event : events) event.layer = std::min(event.layer, layers - 1);
    std::set<std::pair<int, int>> known;
    std::erase_if(edges, [&](const LayerEdge& e) { return e.to >= layers || !known.insert({e.from, e.to}).second; });
    std::sort(edges.begin(), edges.end(),
              [](const auto& a, const auto& b) { return std::pair(a.to, a.from) < std::pair(b.to, b.from); });
    layers_ = nullptr, phase_ = StepEvent::Phase::backward;
  }
  void begin_update() { take_lines(), tape_ = nullptr, phase_ = StepEvent::Phase::update; }
  void end() {
    take_lines();
    if (read_ < log_->size()) events.push_back(event("end"));
    tape_ = nullptr;
  }

  void ran(const detail::OpFunctions& f, const void* op, Inputs in, Outputs out) override {
    if (timing_ || events.empty()) return;
    auto& event = events.back();  // the event of the op's line
    event.in = types_of(in), event.out = types_of(out);
    event.view = f.view != nullptr && !f.traits.communicates;
    event.communicates = f.traits.communicates;
    if (timer_ && !event.view && !event.communicates) {
      // The work of the timer is not part of the step.
      const CostLog::Pause pause;
      timing_ = true;
      event.seconds = timer_(f, op, in, out);
      timing_ = false;
    }
    if (phase_ == StepEvent::Phase::forward && layers_) follow(event.layer, in, out);
  }

  std::vector<StepEvent> events;
  std::vector<LayerEdge> edges;

 private:
  int layer() {
    if (layers_) {
      const auto now = static_cast<int>(layers_->layers.size());
      // Tape entries that the op records come after the existing ones.
      layer_of_entry_.resize(std::max(layer_of_entry_.size(), tape_->entries().size() + 1), now);
      return now;
    }
    // A replay takes an entry off the tape before it calls its vjp.
    if (phase_ != StepEvent::Phase::backward || !tape_) return -1;
    const auto place = tape_->entries().size();
    return place < layer_of_entry_.size() ? layer_of_entry_[place] : -1;
  }

  StepEvent event(std::string_view op) {
    StepEvent result{.op = op, .phase = phase_, .layer = layer(), .in = {}, .out = {}, .calls = {}, .times = times_};
    result.calls.assign(log_->begin() + static_cast<std::ptrdiff_t>(read_), log_->end());
    read_ = log_->size();
    return result;
  }

  void take_lines() {
    for (; lines_ < costs_.lines.size(); ++lines_) {
      const auto& line = costs_.lines[lines_];
      events.push_back(event(line.op));
      auto& made = events.back();
      made.flops = line.flops, made.bytes = line.bytes;
      for (std::size_t i = 0; i < line.inputs.size(); ++i) made.in.push_back({line.inputs[i], line.input_types[i]});
      for (std::size_t i = 0; i < line.outputs.size(); ++i) made.out.push_back({line.outputs[i], line.output_types[i]});
      // Waits have their own lines, after those of the calls that were started before (comm/messages/transfer.cpp,
      // framework/engine/buckets.cpp).
      if (line.op == "wait" && !made.calls.empty()) {
        made.op = "start";
        events.push_back(event(line.op));
      }
      events.back().waits = line.op == "wait" || line.op == waits_for_reduction;
    }
  }

  // Finds the layers whose results an op reads. An op between layers that reads results of several layers belongs to the last of
  // them.
  void follow(int layer, Inputs in, Outputs out) {
    int last = none;
    const auto maker = [&](const Tensor& x) {
      const auto found = x ? makers_.find(x.id()) : makers_.end();
      return found == makers_.end() ? none : found->second;
    };
    for (const auto& x : in) last = std::max(last, maker(x));
    if (last == none) return;
    if (layers_->open > 0) last = layer;
    for (const auto& x : in)
      if (const int from = maker(x); from != none && from < last) edges.push_back({from, last, global_shape(x), x.dtype()});
    for (const auto& y : out) makers_[y.id()] = last;
  }

  std::shared_ptr<std::vector<DryRecord>> log_;
  const OpTimer& timer_;
  CostLog costs_;
  std::size_t lines_ = 0, read_ = 0;  // read so far; calls made while the network is built are not counted
  StepEvent::Phase phase_ = StepEvent::Phase::forward;
  const Tape* tape_ = nullptr;
  const nn::LayerTrace* layers_ = nullptr;
  double times_ = 1;
  bool timing_ = false;
  std::vector<int> layer_of_entry_;
  static constexpr int none = -2;  // depends neither on the input nor on a layer
  std::map<std::uint64_t, int> makers_;
};

}  // namespace

StepTrace trace_step(nn::Module& net, const Shape& part, const DescribeOptions& options, int rank, int ranks,
                     const TraceOptions& wanted) {
  UseDevice dry(DeviceKind::dry);
  const auto log = std::make_shared<std::vector<DryRecord>>();
  const Communicator world(dry_world(rank, ranks, log));
  const auto pipeline =
      options.grid.stage == 1
          ? nullptr
          : nn::Pipeline::make(world, {.grid = options.grid, .boundaries = options.boundaries, .schedule = options.schedule});
  const auto grid = pipeline ? pipeline->grid() : make_grid(world, options.grid);
  const auto layout = input_layout(grid, part);
  build_on(world, layout, net, options, pipeline);
  const auto bytes = std::make_shared<SentBytes>(log);
  const auto memory = [] { return memory_statistics(DeviceKind::dry); };

  StepTrace result;
  for (std::size_t i = 0; i < net.parameters().size(); ++i) result.parameter_bytes += net.parameters()[i].value.bytes();
  const auto before = memory().current_bytes;
  const auto optimizer = options.optimizer ? options.optimizer(net.parameters()) : nullptr;
  result.optimizer_bytes = memory().current_bytes - before;
  if (optimizer) result.optimizer_work = optimizer->work();
  reset_peak_memory(DeviceKind::dry);
  std::optional<Recorder> recorder;
  if (wanted.events) recorder.emplace(log, wanted.timer);
  // All parts cost the same, but only the last part reduces gradients over ranks, together with those of the others.
  const auto input = [&] {
    const auto x = constant(Tensor({layout->box().extents(), options.dtype}).with_layout(layout));
    return pipeline ? pipeline->input(x) : x;
  };
  const auto objective = [&](const Tensor& x) {
    return options.objective ? options.objective(x) : sum(cast(net(x), net.dtype()));
  };
  const auto parts = std::min<std::int64_t>(options.accumulate, 2);
  for (std::int64_t i = 0; i < parts; ++i) {
    const bool last = i + 1 == parts;
    const double times = last ? 1 : static_cast<double>(options.accumulate - 1);
    const auto sent = bytes->sent(), reduced = bytes->reduced(), gathered = bytes->gathered();
    const auto x = input();
    std::optional<Stages::Pass> pass;
    if (pipeline) pass.emplace(pipeline->messages());
    Tape tape(net);
    Tensor share;
    {
      nn::LayerTrace layers([bytes] { return bytes->traffic(); });
      if (recorder) recorder->begin(tape, layers, x, times);
      share = objective(x);
      if (recorder) recorder->begin_backward(static_cast<int>(layers.layers.size()));
      result.layers = std::move(layers.layers);
    }
    CostLog costs;
    pass.reset();
    const auto gradients = tape.gradient(share.is_stand_in() ? Tensor() : share, {.accumulate = !last});
    for (const auto& line : costs.lines) result.backward_flops += times * line.flops;
    if (recorder) recorder->begin_update();
    if (last && optimizer) optimizer->step(gradients);
    const auto all = [&](std::int64_t now, std::int64_t then) { return static_cast<std::int64_t>(times) * (now - then); };
    result.sent_bytes += all(bytes->sent(), sent);
    result.reduced_bytes += all(bytes->reduced(), reduced);
    result.gathered_bytes += all(bytes->gathered(), gathered);
  }
  result.peak_bytes = memory().peak_bytes;
  if (recorder) {
    recorder->end();
    result.events = std::move(recorder->events), result.edges = std::move(recorder->edges);
    recorder.reset();
    // One pass over what this rank updates, that reads values, gradients and state, and writes values and state.
    const auto own = optimizer ? optimizer->own_elements() : 0;
    const auto values = static_cast<double>(own * size_of(options.dtype)), state = static_cast<double>(result.optimizer_bytes);
    if (optimizer)
      result.events.push_back({.op = "update",
                               .phase = StepEvent::Phase::update,
                               .in = {{Shape{own}, options.dtype}},
                               .out = {},
                               .flops = 2 * static_cast<double>(own),
                               .bytes = 3 * values + 2 * state,
                               .calls = {}});
  }
  if (pipeline) {
    // Its schedule holds several parts at once. The trace ends before.
    reset_peak_memory(DeviceKind::dry);
    std::vector<Tensor> batches;
    for (std::int64_t m = 0; m < options.accumulate; ++m) batches.push_back(input());
    const auto step = pipeline->gradient(net, options.accumulate,
                                         [&](std::int64_t m) { return objective(batches[static_cast<std::size_t>(m)]); });
    if (optimizer) optimizer->step(step.gradients);
    result.peak_bytes = memory().peak_bytes;
  }
  return result;
}

}  // namespace mpigrad
