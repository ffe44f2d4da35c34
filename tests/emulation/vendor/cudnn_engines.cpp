// The engines that heuristics propose, and the graphs that engines refuse. The numbers and their order are ours; the notes are
// those of cuDNN's engines of the same kind. MPIGRAD_EMULATED_CUDNN (options.h) sets refusals:
//
//   fail-N                   engine N is proposed and cannot be built
//   no-heuristics            mode A proposes nothing for any graph; the fallback does
//   no-graphs, no-fusion     graphs of several operations, when they are finalised or by the heuristics
//   no-slope                 a ReLU with a slope
//   no-channels-last         any tensor in that order;  no-double-channels-last: only tensors of doubles
//   whole-channels           16-bit tensors with channels last whose number is not a multiple of 8
//   equal-padding            padding that differs between the two sides
//   large-workspace          all engines but 0 need 3 GiB, more than any emulated GPU has
//   no-compiler              engines that compile their kernels are proposed and cannot be built
//   lost-nan                 the activations of the fast engines replace NaN by 0
//   version-91002            the library reports version 9.10.2

#include <limits>

#include "tests/emulation/vendor/cudnn_graph.h"
#include "tests/emulation/vendor/options.h"
#include "tests/emulation/vendor/stream.h"

namespace mpigrad::emulation::vendor {
namespace {

using Rounding = Engine::Rounding;
using Notes = std::vector<cudnnBackendNumericalNote_t>;

Options options() { return Options("MPIGRAD_EMULATED_CUDNN"); }

// Refuses graphs that no engine here supports.
void check_support(const ConvGraph& g) {
  const auto asked = options();
  for (const auto& t : g.operands) {
    demand(t.reach() <= std::numeric_limits<std::int32_t>::max(), CUDNN_STATUS_NOT_SUPPORTED_SHAPE,
           "a tensor has more than 2^31 - 1 elements");
    const bool last = t.channels_last() && !t.channels_first();  // a tensor with a single point is in both orders
    const bool refused = asked.has("no-channels-last") || (asked.has("no-double-channels-last") && t.type == Element::float64) ||
                         (asked.has("whole-channels") && is_half(t.type) && t.dimensions[1] % 8 != 0);
    demand(!last || !refused, CUDNN_STATUS_NOT_SUPPORTED_LAYOUT, "channels last is not supported for this tensor");
  }
  for (std::size_t a = 0; a < 3; ++a) {
    const auto reach = g.dilation[a] * (g.w.dimensions[a + 2] - 1) + 1;
    demand(g.pre[a] < reach && g.post[a] < reach, CUDNN_STATUS_NOT_SUPPORTED_PADDING, "padding is as long as the window");
    demand(!asked.has("equal-padding") || g.pre[a] == g.post[a], CUDNN_STATUS_NOT_SUPPORTED_PADDING, "padding differs");
  }
  demand(g.then.empty() || !asked.has("no-fusion"), CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN, "no engine fuses");
  for (const auto& p : g.then)
    demand(p.adds || p.slope == 0 || !asked.has("no-slope"), CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN, "no engine has slopes");
}

std::vector<Engine> engines_of(const ConvGraph& g, cudnnBackendHeurMode_t mode) {
  std::vector<Engine> engines;
  const auto type = g.x.type;
  const auto add = [&](int number, Rounding rounding, Notes notes, std::int64_t workspace) {
    const bool large = number != 0 && options().has("large-workspace");
    engines.push_back({.number = number,
                       .rounding = rounding,
                       .notes = std::move(notes),
                       .workspace = large ? std::int64_t{3} << 30 : workspace,
                       .compiled = number >= 100,
                       .loses_nan = number != 0 && options().has("lost-nan")});
  };
  // Kernels of some graphs are compiled from text when a plan is made.
  bool slopes = false;
  for (const auto& p : g.then) slopes = slopes || (!p.adds && p.slope != 0);
  if (slopes) {
    if (mode == CUDNN_HEUR_MODE_A) add(100, Rounding::exact, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, 128);
    return engines;
  }
  if (mode == CUDNN_HEUR_MODE_A) {
    bool small = g.groups() == 1 && g.w.elements() > g.w.dimensions[0] * g.w.dimensions[1], last = true, aligned = true;
    for (std::size_t a = 0; a < 3; ++a)
      small = small && g.stride[a] == 1 && g.dilation[a] == 1 && g.w.dimensions[a + 2] <= 3 && g.direction != Direction::filter;
    for (const auto& t : g.operands) last = last && t.channels_last(), aligned = aligned && t.alignment % 16 == 0;
    if (small && type != Element::float64)
      add(50, Rounding::winograd, {CUDNN_NUMERICAL_NOTE_WINOGRAD, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4}, 4096);
    if (is_half(type))
      add(33, Rounding::halves, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION}, 0);
    if (is_half(type) && last && aligned) add(41, Rounding::exact, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, 1000);
    if (type == Element::float32 && last && aligned)
      add(41, Rounding::tf32, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS}, 1000);
    if (g.direction != Direction::forward) add(20, Rounding::exact, {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}, 0);
    add(3, Rounding::exact, {}, 333);
  }
  add(0, Rounding::exact, {CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP}, 0);
  return engines;
}

}  // namespace

std::vector<std::shared_ptr<Node>> propose(const Node& heuristics) {
  const auto mode = heuristics.one<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE);
  demand(mode == CUDNN_HEUR_MODE_A || mode == CUDNN_HEUR_MODE_B || mode == CUDNN_HEUR_MODE_FALLBACK ||
             mode == CUDNN_HEUR_MODE_INSTANT,
         CUDNN_STATUS_BAD_PARAM, "no such heuristic mode");
  demand(mode == CUDNN_HEUR_MODE_A || mode == CUDNN_HEUR_MODE_FALLBACK, CUDNN_STATUS_NOT_SUPPORTED,
         "modes A and FALLBACK are emulated");
  demand(mode != CUDNN_HEUR_MODE_A || !options().has("no-heuristics"), CUDNN_STATUS_NOT_SUPPORTED, "no heuristic for this graph");
  const auto& graph = heuristics.node(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)->graph;
  check_support(*graph);
  std::vector<std::shared_ptr<Node>> proposals;
  for (auto& engine : engines_of(*graph, mode)) {
    auto node = std::make_shared<Node>(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    node->is_final = true;
    node->graph = graph;
    node->engine = std::make_shared<const Engine>(std::move(engine));
    proposals.push_back(std::move(node));
  }
  return proposals;
}

void check_plan(const Node& plan) {
  const auto& configuration = *plan.node(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  const int number = configuration.engine->number;
  demand(!options().has(fmt::format("fail-{}", number)), CUDNN_STATUS_NOT_SUPPORTED,
         fmt::format("engine {} cannot be built for this graph", number));
  demand(!configuration.engine->compiled || !options().has("no-compiler"), CUDNN_STATUS_NOT_SUPPORTED,
         "there is no compiler for kernels");
  if (plan.has(CUDNN_ATTR_EXECUTION_PLAN_HANDLE))
    demand(plan.one<cudnnHandle_t>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE) == configuration.graph->handle, CUDNN_STATUS_BAD_PARAM,
           "the plan and its graph have different handles");
}

std::int64_t workspace_of(const Node& plan) { return plan.node(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->engine->workspace; }

void execute(cudaStream_t stream, const Snapshot& plan, const Node& pack) {
  const auto configuration = plan->node(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  const auto& graph = *configuration->graph;
  const auto ids = pack.all<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = pack.all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  auto* const workspace = pack.one<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  demand(ids.size() == graph.operands.size(), CUDNN_STATUS_BAD_PARAM,
         fmt::format("{} pointers for a graph of {} tensors in memory", ids.size(), graph.operands.size()));
  std::vector<void*> at;
  for (const auto& t : graph.operands) {
    void* found = nullptr;
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (ids[i] == t.id) found = pointers[i];
    demand(found != nullptr, CUDNN_STATUS_BAD_PARAM, fmt::format("no pointer for tensor {}", t.id));
    demand(reinterpret_cast<std::uintptr_t>(found) % static_cast<std::uintptr_t>(t.alignment) == 0,
           CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, fmt::format("tensor {} is not aligned to {} bytes", t.id, t.alignment));
    const auto why = unreachable(found, t.reach() * static_cast<std::int64_t>(size_of(t.type)));
    demand(why.empty(), CUDNN_STATUS_BAD_PARAM, fmt::format("tensor {} lies in {}", t.id, why));
    at.push_back(found);
  }
  // The result must not share memory with operands.
  const auto bytes = [](const Tensor& t) { return t.reach() * static_cast<std::int64_t>(size_of(t.type)); };
  const auto& result = graph.result();
  for (std::size_t i = 0; i < at.size(); ++i)
    for (std::size_t j = 0; j < at.size(); ++j) {
      if (graph.operands[i].id != result.id || i == j) continue;
      const auto* a = static_cast<const std::byte*>(at[i]);
      const auto* b = static_cast<const std::byte*>(at[j]);
      demand(a + bytes(graph.operands[i]) <= b || b + bytes(graph.operands[j]) <= a, CUDNN_STATUS_BAD_PARAM,
             "the result overlaps an operand");
    }
  const auto size = workspace_of(*plan);
  demand(size == 0 || workspace != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the plan needs a workspace");
  demand(size == 0 || reinterpret_cast<std::uintptr_t>(workspace) % 256 == 0, CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
         "the workspace is not aligned to 256 bytes");
  const auto why = unreachable(workspace, size);
  demand(why.empty(), CUDNN_STATUS_BAD_PARAM, "the workspace is " + why);
  enqueue(stream, [plan, configuration, at, workspace, size] {
    if (size > 0) std::memset(workspace, 0xA5, static_cast<std::size_t>(size));
    compute(*configuration->graph, *configuration->engine, at);
  });
}

}  // namespace mpigrad::emulation::vendor
