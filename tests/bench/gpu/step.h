#pragma once
// A training step of CosmoFlow or of the 3D U-Net on a GPU as a user writes it, and a peer's step in a separate process.

#include <optional>
#include <string>
#include <vector>

#include "models/train/session.h"

namespace mpigrad::bench {

enum class StepNetwork : std::uint8_t { cosmoflow, cosmoflow_mlperf, cosmoflow_pyramid, unet3d };  // mlperf: MLPerf's variant

struct StepProblem {
  StepNetwork network = StepNetwork::cosmoflow;
  std::int64_t width = 128, batch = 1;
  std::string precision = "tf32";  // float32, tf32, bfloat16
  bool graph = false;              // captured once and repeated
};

struct StepResult {
  double median = 0, fastest = 0, slowest = 0;  // seconds per step: forward, loss, backward, Adam; the host waits after each
  double peak_mib = 0;                          // GPU allocator: bytes in use, including the choice of kernels
  double step_mib = 0;                          // the same for the counted steps
  double peak_reserved_mib = 0;                 // memory that the allocator held from the driver
  double predicted_mib = 0;                     // by models/nn/describe.h: tensors alive at once, on one rank
  double waits = 0;                             // waits of the host for the GPU in a step
  double flops = 0;                             // operations of a step on all ranks, as counted by its ops
  double loss = 0;                              // after the last step
  std::string not_captured{};                   // the reason, if a graph was requested but not captured
};

// Collective over the ranks of the session; the volume is split along its depth.
StepResult time_step(const Session& session, const StepProblem& problem, int steps);

// Calls of an op with the same operands in a step, and the GPU's time for them: from the end of the previous op to the op's own
// end, so that other work (an optimizer's kernels) counts for the op after it.
struct OpTime {
  std::string op, operands;  // shapes, inputs before outputs
  int calls = 0;
  double seconds = 0, bytes = 0, flops = 0;  // of all calls; bytes: each operand once
};
// Longest first; after the steps in which plans are chosen; the fastest time of each call.
std::vector<OpTime> time_ops(const Session& session, const StepProblem& problem, int steps);

// Bytes per second that a rank receives when each rank needs one more plane on each side of its block of a volume with 32
// channels.
double halo_rate(const Session& session, std::int64_t width, DType type);

// Steps whose batches have different sizes in turn: memory must stay at the value of the first of these lines.
struct SoakLine {
  int steps = 0;
  double mib = 0, reserved_mib = 0;  // GPU: in use between steps, and the largest amount held
  double process_mib = 0;            // host: the largest amount
  double loss = 0;
};
std::vector<SoakLine> soak(const Session& session, const StepProblem& problem, const std::vector<std::int64_t>& batches,
                           int steps);

// Runs `command` with the problem as arguments of PyTorch's step (--model cosmoflow --size S ...); none for problems that it does
// not support. Throws with the command's output if it fails or prints no line of JSON.
std::optional<StepResult> time_peer(const std::string& command, const StepProblem& problem, int steps, bool compiled);

}  // namespace mpigrad::bench
