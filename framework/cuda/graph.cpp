#include "framework/cuda/graph.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/op_scope.h"
#include "framework/cuda/check.h"
#include "framework/cuda/kernels.h"
#include "framework/cuda/recording.h"

namespace mpigrad::cuda {
namespace {

struct Running {
  Recording* recording = nullptr;
  const StepScalars* scalars = nullptr;
};
thread_local Running running;

void destroy(cudaGraph_t graph) {
  if (graph) static_cast<void>(cudaGraphDestroy(graph));
}

}  // namespace

const std::byte* Recording::kept(const void* bytes, std::int64_t count) {
  if (memory_.empty() || used_ + count > memory_.back().bytes()) memory_.emplace_back(std::max(count, piece)), used_ = 0;
  auto* place = memory_.back().data() + used_;
  std::memcpy(place, bytes, static_cast<std::size_t>(count));
  used_ += (count + 63) / 64 * 64;
  return place;
}

Recording* recording() { return running.recording; }
void require_not_recording(const char* call) {
  const auto op = detail::current_op();
  require(!running.recording, "[graph] {}{}{} waits for the GPU, so this step cannot be captured", call, op.empty() ? "" : " in ",
          op);
}
bool capturing() { return running.recording != nullptr; }
const StepScalars* live_scalars() { return running.scalars; }

struct CapturedGraph::State {
  explicit State(CachingAllocator& of_thread) : allocator(of_thread) {
    scalars = static_cast<StepScalars*>(allocate(static_cast<std::int64_t>(sizeof(StepScalars))));
  }
  ~State() {
    try {
      if (executable) {
        // The graph may still run. Faults of kernels are thrown elsewhere.
        MPIGRAD_CUDA(cudaStreamSynchronize(native(compute_stream())));
        MPIGRAD_CUDA(cudaGraphExecDestroy(executable));
      }
    } catch (...) {  // a GPU that has failed
    }
    if (pool != 0) allocator.drop_pool(pool);
    release(scalars);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void begin() {
    const auto stream = native(compute_stream());
    // Relaxed: allocations from the driver and calls of other threads remain allowed.
    MPIGRAD_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    running = {&kept, scalars};  // from here on end() must follow
    pool = allocator.open_pool();
    for (const auto other : {halo_stream(), bucket_stream()}) wait(other, compute_stream());  // captures these streams, too
  }
  // Null if something went wrong.
  cudaGraph_t end(bool join) {
    cudaGraph_t graph = nullptr;
    if (join)
      for (const auto other : {halo_stream(), bucket_stream()}) wait(compute_stream(), other);
    if (pool != 0) allocator.close_pool();
    running = {};
    const auto code = cudaStreamEndCapture(native(compute_stream()), &graph);
    if (join) check(code, "cudaStreamEndCapture");
    static_cast<void>(cudaGetLastError());
    return graph;
  }

  CachingAllocator& allocator;
  StepScalars* scalars = nullptr;
  int pool = 0;
  Recording kept;
  cudaGraphExec_t executable = nullptr;
  std::size_t nodes = 0;
};

CapturedGraph::CapturedGraph(const std::function<void()>& f) {
  require(!capturing(), "[graph] a step is captured within a step");
  static_cast<void>(compute_stream());  // this thread's context
  state_ = std::make_unique<State>(allocator_of_this_thread());
  cudaGraph_t graph = nullptr;
  try {
    state_->begin();
    f();
    graph = state_->end(true);
  } catch (...) {
    if (capturing()) destroy(state_->end(false));
    throw;
  }
  // Work on the streams of halos and buckets keeps their priorities.
  const auto counted = cudaGraphGetNodes(graph, nullptr, &state_->nodes);
  const auto code = cudaGraphInstantiate(&state_->executable, graph, cudaGraphInstantiateFlagUseNodePriority);
  destroy(graph);
  check(counted, "cudaGraphGetNodes");
  check(code, "cudaGraphInstantiate");
}
CapturedGraph::~CapturedGraph() = default;
std::size_t CapturedGraph::nodes() const { return state_->nodes; }

void CapturedGraph::launch(const StepScalars& scalars) {
  require(!capturing(), "[graph] a graph is started within a step that is captured");
  set_scalars(state_->scalars, scalars, compute_stream());
  MPIGRAD_CUDA(cudaGraphLaunch(state_->executable, native(compute_stream())));
}

}  // namespace mpigrad::cuda
