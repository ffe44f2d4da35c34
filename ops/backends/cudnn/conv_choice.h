#pragma once
// Choice of the cuDNN kernel that computes a convolution: by cuDNN's heuristics, or timed once. Required properties other than
// precision (NaN stays NaN) are tested on the GPU before they are relied on. Measured answers are kept in a file (tuning_file.h).

#include <functional>
#include <string>
#include <vector>

#include "framework/cuda/cuda.h"
#include "ops/backends/cudnn/cudnn_plan.h"

namespace mpigrad::cuda {

struct Choice {
  ConvForm form;
  CudnnPlan plan;
};

// Key of a choice: the problem as a call without any treatment, and how to choose.
struct Question {
  ConvCall call;
  bool copies_weights = false, autotune = false, reference = false;
  std::int64_t workspace = 0;
  double tuning_seconds = 0;
  bool operator==(const Question&) const = default;
};
struct QuestionHash {
  std::size_t operator()(const Question& q) const {
    return CallHash{}(q.call) * 31 + static_cast<std::size_t>(q.workspace) * 8 + (q.copies_weights ? 4 : 0) +
           (q.autotune ? 2 : 0) + (q.reference ? 1 : 0);
  }
};

// Computes the problem with a choice on the compute stream; `bias`, if not null, replaces the problem's own bias.
using Trial = std::function<void(const Choice& choice, const void* bias)>;

// `outputs` are those of the problem; trials write them. Error: no engine of this cuDNN supports the problem.
Choice choose(cudnnHandle_t handle, const Question& question, const ConvProblem& problem, void* outputs, const Trial& trial);

}  // namespace mpigrad::cuda
