#pragma once
// Captured graphs: work that a GPU repeats without its host, captured once with all addresses and arguments, then started by one
// call.

#include <cstddef>
#include <functional>
#include <memory>

#include "framework/engine/step_scalars.h"

namespace mpigrad::cuda {

// Captures the work that a function issues to this thread's streams. Memory that the function allocates and releases belongs to
// the graph for its lifetime, and memory that it read is not reused; bytes that it copied from the host are copied again
// unchanged. All data that change from one repetition to the next lie in memory that outlives the graph, or in the scalars.
class CapturedGraph {
 public:
  // Runs f, whose work the GPU does not execute yet. Errors: those of f; f waits for the GPU, or draws random numbers that would
  // be the same in every repetition. After an error nothing is captured.
  explicit CapturedGraph(const std::function<void()>& f);
  ~CapturedGraph();
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;

  // Repeats the work, after all work issued to the compute stream; on the thread that captured it.
  void launch(const StepScalars& scalars);
  // The number of kernels, copies and other nodes of one repetition.
  std::size_t nodes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Whether work that this thread issues to its streams is being captured.
bool capturing();
// Address on the GPU of the scalars of a repetition, for kernels of captured work; null while nothing is captured.
const StepScalars* live_scalars();

}  // namespace mpigrad::cuda
