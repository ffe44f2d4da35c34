#pragma once
// One training step of one rank on the dry device: its ops in their order, what they say to other ranks, and its memory. Tables
// of --describe and the planner's predictions are made of it.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/transport/transport.h"
#include "framework/engine/op.h"
#include "models/nn/describe_options.h"
#include "models/nn/layers.h"

namespace mpigrad {

// What happened between two ops, or an op.
struct StepEvent {
  enum class Phase : std::uint8_t { forward, backward, update };
  std::string_view op;  // that of the op, or "wait" and the like
  Phase phase = Phase::forward;
  int layer = -1;                   // whose it is, of StepTrace::layers; glue between layers is the next one's
  std::vector<TensorType> in, out;  // of this rank; an operand that is left out has rank 0
  double flops = 0, bytes = 0;
  bool communicates = false;  // an op between ranks: it is over when its calls are
  bool view = false;          // shares its operand's memory and takes no time, but for its calls
  // Made since the event before this. Those of an op that communicates have ended with it; others go on until a later event
  // `waits` for the oldest of them: for a reduction of gradients, or for another call.
  std::vector<DryRecord> calls{};
  bool waits = false;
  double times = 1;     // in a step whose batch is computed in parts
  double seconds = -1;  // as a timer has it; negative: nobody has timed it
};
// The `op` of events that wait for reductions of gradients; others that wait are "wait".
inline constexpr std::string_view waits_for_reduction = "wait for a reduction";
// Whether the rank computes something in it, be it that it packs what is sent.
inline bool has_work(const StepEvent& event) {
  if (event.waits || event.view || event.op == "end") return false;
  return event.communicates ? !event.calls.empty() : !event.in.empty() || !event.out.empty();
}

// A layer reads what another one makes; `shape` is that of one of the tensors, global.
struct LayerEdge {
  int from = 0, to = 0;  // from -1: the input
  Shape shape;
  DType dtype = DType::float32;
  bool operator==(const LayerEdge&) const = default;
};

struct StepTrace {
  std::vector<nn::LayerRecord> layers;  // of one part of the batch
  std::vector<StepEvent> events;        // with TraceOptions::events
  std::vector<LayerEdge> edges;         // so; ascending
  double backward_flops = 0;
  // As in Description, of this rank.
  std::int64_t sent_bytes = 0, reduced_bytes = 0, gathered_bytes = 0, optimizer_bytes = 0, peak_bytes = 0;
  std::int64_t parameter_bytes = 0;  // of this rank's
};

// How long an op takes on tensors of these types, which have no elements; called for each op that is neither a view nor between
// ranks, in the middle of the step.
using OpTimer = std::function<double(const detail::OpFunctions& f, const void* op, Inputs in, Outputs out)>;

struct TraceOptions {
  bool events = false;
  OpTimer timer{};
};

// `net` is on the dry device, and built for an input of these extents unless ranks have parameters of their own: then it is
// built here. `part` is what is computed at once, global. Errors: as describe().
StepTrace trace_step(nn::Module& net, const Shape& part, const DescribeOptions& options, int rank, int ranks,
                     const TraceOptions& trace = {});
// A network fresh from its constructor, as trace_step needs it.
void build_dry(nn::Module& net, const Shape& part, const DescribeOptions& options);

}  // namespace mpigrad
