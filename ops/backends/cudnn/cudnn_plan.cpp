#include "ops/backends/cudnn/cudnn_plan.h"

#include <algorithm>
#include <array>

#include "framework/base/error.h"
#include "ops/backends/cudnn/cudnn_defects.h"

namespace mpigrad::cuda {

namespace {

bool contains(std::span<const cudnnBackendNumericalNote_t> notes, cudnnBackendNumericalNote_t note) {
  return std::find(notes.begin(), notes.end(), note) != notes.end();
}

}  // namespace

bool CudnnPlan::has(cudnnBackendNumericalNote_t note) const { return contains(notes, note); }

bool fast_enough(const ConvCall& call, std::int64_t engine, std::span<const cudnnBackendNumericalNote_t> notes) {
  const bool tensor_cores = is_half(call.type) || (call.type == DType::float32 && call.tf32);
  return engine != 0 && (!tensor_cores || contains(notes, CUDNN_NUMERICAL_NOTE_TENSOR_CORE));
}

bool precise_enough(const ConvCall& call, std::span<const cudnnBackendNumericalNote_t> notes) {
  const auto has = [&](cudnnBackendNumericalNote_t note) { return contains(notes, note); };
  if (call.deterministic && has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)) return false;
  if (has(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)) return false;
  if (call.type == DType::float64) return !has(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
  if (call.type != DType::float32 || call.tf32) return true;
  for (const auto note : {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, CUDNN_NUMERICAL_NOTE_FFT,
                          CUDNN_NUMERICAL_NOTE_WINOGRAD, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4,
                          CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13})
    if (has(note)) return false;
  return true;
}

namespace {

// Engine configurations in the order of the heuristic; empty if it has none for this graph.
std::vector<Descriptor> configurations(const Graph& graph, const Target& target, cudnnBackendHeurMode_t mode, std::string& why) {
  Descriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, *graph.graph);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
#if CUDNN_VERSION >= 90800
  if (target.device) heuristic.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.device);
#else
  static_cast<void>(target);
#endif
  if (const auto status = heuristic.try_finalize(); status != CUDNN_STATUS_SUCCESS) {
    why = cudnn_text(status);
    return {};
  }
  std::int64_t count = 0;
  const auto counted = cudnn().cudnnBackendGetAttribute(heuristic.handle(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr);
  if (counted != CUDNN_STATUS_SUCCESS) {
    why = cudnn_text(counted);
    return {};
  }
  std::vector<Descriptor> results;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (std::int64_t i = 0; i < count; ++i) handles.push_back(results.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).handle());
  if (count > 0) count = heuristic.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, handles.data());
  while (static_cast<std::int64_t>(results.size()) > count) results.pop_back();
  return results;
}

struct EngineFacts {
  std::int64_t number = -1;
  std::vector<cudnnBackendNumericalNote_t> notes;
  bool compiled = false;
};

template <class Note>
std::vector<Note> notes_of(const Descriptor& engine, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                           Note most) {
  std::vector<Note> notes(static_cast<std::size_t>(most));
  const auto room = static_cast<std::int64_t>(notes.size());
  notes.resize(static_cast<std::size_t>(std::min(engine.get(name, type, room, notes.data()), room)));
  return notes;
}

EngineFacts facts_of(const Descriptor& configuration) {
  // A finished configuration copies its engine into an existing descriptor.
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  auto handle = engine.handle();
  configuration.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &handle);
  EngineFacts facts;
  engine.get(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &facts.number);
  facts.notes = notes_of(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  const auto behaviour =
      notes_of(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT);
  facts.compiled = std::find(behaviour.begin(), behaviour.end(), CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) != behaviour.end();
  return facts;
}

// Sort key of a plan in plans_of().
int rank_of(const CudnnPlan& plan, std::int64_t workspace) { return (plan.workspace <= workspace ? 0 : 2) + (plan.fast ? 0 : 1); }

}  // namespace

std::vector<CudnnPlan> plans_of(const ConvCall& call, const Target& target, const Search& search, std::string& why) {
  Graph graph;
  try {
    graph = graph_of(call, target);
  } catch (const NotSupported& refusal) {  // cuDNN does not support a tensor, or this sequence of operations
    why = refusal.what();
    return {};
  }
  std::vector<CudnnPlan> plans;
  std::size_t imprecise = 0, compiled = 0, good = 0;
  std::int64_t place = -1;  // counted over both modes, one after the other
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    for (const auto& configuration : configurations(graph, target, mode, why)) {
      ++place;
      if (good >= search.most || plans.size() >= search.built) break;
      if (search.place && place != *search.place) continue;
      auto facts = facts_of(configuration);
      if (search.engine && facts.number != *search.engine) continue;
      if (const auto* defect = search.defective ? nullptr : defect_of_engine(cudnn().cudnnGetVersion(), call, facts.number)) {
        why = text_of(*defect, cudnn().cudnnGetVersion());
        continue;
      }
      if (!precise_enough(call, facts.notes)) {
        ++imprecise;
        continue;
      }
      if (facts.compiled && compiled >= search.compiled) {
        why = fmt::format("engine {} would have to compile its kernel", facts.number);
        continue;
      }
      compiled += facts.compiled;
      CudnnPlan plan{.plan = std::make_unique<Descriptor>(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR),
                     .operands = graph.operands,
                     .engine = facts.number,
                     .place = place,
                     .compiled = facts.compiled,
                     .fast = fast_enough(call, facts.number, facts.notes),
                     .notes = std::move(facts.notes)};
      // Required before 9.8, deprecated since.
      if (target.handle && cudnn().cudnnGetVersion() < 90800)
        plan.plan->set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &target.handle);
      plan.plan->set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
      if (const auto status = plan.plan->try_finalize(); status != CUDNN_STATUS_SUCCESS) {
        why = cudnn_text(status);
        continue;
      }
      plan.plan->get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &plan.workspace);
      good += rank_of(plan, search.workspace) == 0;
      plans.push_back(std::move(plan));
    }
    if (!plans.empty()) break;  // the fallback mode is for graphs that the first mode does not support
  }
  std::stable_sort(plans.begin(), plans.end(),
                   [&](const auto& a, const auto& b) { return rank_of(a, search.workspace) < rank_of(b, search.workspace); });
  if (plans.size() > search.most) plans.resize(search.most);
  if (plans.empty() && imprecise > 0) why = fmt::format("{} engines would round more than allowed; {}", imprecise, why);
  return plans;
}

void execute(cudnnHandle_t handle, const CudnnPlan& plan, const ConvOperands& operands, void* workspace) {
  std::array<void*, 4> pointers{};
  std::array<std::int64_t, 4> ids{};
  const auto count = static_cast<std::int64_t>(plan.operands.size());
  for (std::size_t i = 0; i < plan.operands.size(); ++i) {
    ids[i] = static_cast<std::int64_t>(plan.operands[i]);
    switch (plan.operands[i]) {
      case Operand::image: pointers[i] = operands.image; break;
      case Operand::weights: pointers[i] = operands.weights; break;
      case Operand::outputs: pointers[i] = operands.outputs; break;
      case Operand::bias: pointers[i] = const_cast<void*>(operands.bias); break;
    }
  }
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  pack.finalize();
  check_cudnn(cudnn().cudnnBackendExecute(handle, plan.plan->handle(), pack.handle()), "cudnnBackendExecute");
}

}  // namespace mpigrad::cuda
