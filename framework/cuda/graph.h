#pragma once
// Work that a GPU repeats without its host: captured once, with all addresses and arguments, then started by one call.

#include <cstddef>
#include <functional>
#include <memory>

#include "framework/engine/step_scalars.h"

namespace mpigrad::cuda {

// Captures what a function gives this thread's streams. Memory that it takes and gives back is the graph's alone as long as that
// lives, and memory that it read stays as it is; what it copied from the host is copied again as it was. Everything that changes
// from one repetition to the next lies in memory that outlives the graph, or in the scalars.
class CapturedGraph {
 public:
  // Runs f, of which nothing happens on the GPU yet. Errors of f, and of what cannot be captured: whoever waits for the GPU, or
  // draws random numbers that would be the same in every repetition, throws an Error. Nothing has happened then.
  explicit CapturedGraph(const std::function<void()>& f);
  ~CapturedGraph();
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;

  // Once more, behind what the compute stream has been given; on the thread that captured it.
  void launch(const StepScalars& scalars);
  // Kernels, copies and the like that a repetition consists of.
  std::size_t nodes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Whether what this thread gives its streams is being captured.
bool capturing();
// On the GPU, where kernels of the captured work find the scalars of the repetition; null while nothing is captured.
const StepScalars* live_scalars();

}  // namespace mpigrad::cuda
