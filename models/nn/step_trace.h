#pragma once
// Trace of one training step of one rank on the dry device: its ops in order, its messages and its memory. Tables of --describe
// and the planner's predictions are computed from it.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/transport/transport.h"
#include "framework/engine/op.h"
#include "models/nn/describe_options.h"
#include "models/nn/layers.h"

namespace mpigrad {

// An op, or an event between two ops.
struct StepEvent {
  enum class Phase : std::uint8_t { forward, backward, update };
  std::string_view op;  // the op's name, or "wait" and similar
  Phase phase = Phase::forward;
  int layer = -1;                   // index into StepTrace::layers; ops between layers belong to the next layer
  std::vector<TensorType> in, out;  // this rank's; an operand that is left out has rank 0
  double flops = 0, bytes = 0;
  bool communicates = false;  // an op between ranks: it ends when its calls end
  bool view = false;          // shares its operand's memory and takes no time, except for its calls
  // Calls since the previous event. Calls of an op that communicates end with it; other calls run until a later event `waits` for
  // the oldest of them: for a reduction of gradients, or for another call.
  std::vector<DryRecord> calls{};
  bool waits = false;
  double times = 1;     // number of repetitions in a step whose batch is computed in parts
  double seconds = -1;  // measured by a timer; negative: not timed
};
// The `op` of events that wait for reductions of gradients; other waiting events are "wait".
inline constexpr std::string_view waits_for_reduction = "wait for a reduction";
// True if the rank computes something in the event; packing data to send counts.
inline bool has_work(const StepEvent& event) {
  if (event.waits || event.view || event.op == "end") return false;
  return event.communicates ? !event.calls.empty() : !event.in.empty() || !event.out.empty();
}

// A layer reads a tensor that another layer makes; `shape` is one such tensor's global shape.
struct LayerEdge {
  int from = 0, to = 0;  // from -1: the input
  Shape shape;
  DType dtype = DType::float32;
  bool operator==(const LayerEdge&) const = default;
};

struct StepTrace {
  std::vector<nn::LayerRecord> layers;  // of one part of the batch
  std::vector<StepEvent> events;        // with TraceOptions::events
  std::vector<LayerEdge> edges;         // with TraceOptions::events; ascending
  double backward_flops = 0;
  // As in Description, for this rank.
  std::int64_t sent_bytes = 0, reduced_bytes = 0, gathered_bytes = 0, optimizer_bytes = 0, peak_bytes = 0;
  std::int64_t parameter_bytes = 0;  // of this rank's parameters
  std::string optimizer_work;        // Optimizer::work()
};

// Returns the seconds that an op takes on tensors of these types, which have no elements. Called in the middle of the step for
// each op that is neither a view nor between ranks.
using OpTimer = std::function<double(const detail::OpFunctions& f, const void* op, Inputs in, Outputs out)>;

struct TraceOptions {
  bool events = false;
  OpTimer timer{};
};

// Builds the network, fresh from its constructor or traced before, for this rank on the dry device and runs a step. `part` is the
// global shape of the part of the batch that is computed at once. Errors: as describe().
StepTrace trace_step(nn::Module& net, const Shape& part, const DescribeOptions& options, int rank, int ranks,
                     const TraceOptions& trace = {});

}  // namespace mpigrad
