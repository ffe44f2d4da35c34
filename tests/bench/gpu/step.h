#pragma once
// A training step of CosmoFlow or of the 3D U-Net on a GPU as a user writes it, and a peer's step in a process of its own.

#include <optional>
#include <string>
#include <vector>

#include "models/train/session.h"

namespace mpigrad::bench {

enum class StepNetwork : std::uint8_t { cosmoflow, cosmoflow_mlperf, cosmoflow_pyramid, unet3d };  // the last is MLPerf's

struct StepProblem {
  StepNetwork network = StepNetwork::cosmoflow;
  std::int64_t width = 128, batch = 1;
  std::string precision = "tf32";  // float32, tf32, bfloat16
  bool graph = false;              // captured once and repeated
};

struct StepResult {
  double median = 0, fastest = 0, slowest = 0;  // seconds per step: forward, loss, backward, Adam; the host waits after each
  double peak_mib = 0;                          // of the GPU's allocator: bytes in use, the choice of kernels included
  double step_mib = 0;                          // the same of the steps that count
  double peak_reserved_mib = 0;                 // of the driver's memory that it held
  double predicted_mib = 0;                     // by models/nn/describe.h: tensors alive at once, on one rank
  double waits = 0;                             // of the host for the GPU, in a step
  double flops = 0;                             // of a step, all ranks: what its ops count
  double loss = 0;                              // after the last step
  std::string not_captured{};                   // why, where a graph was asked for
};

// Collective over the ranks of the session; the volume is cut along its depth.
StepResult time_step(const Session& session, const StepProblem& problem, int steps);

// Calls of an op with the same operands in a step, and what the GPU took for them: from the end of the op before to its own, so
// that what is no op (an optimizer's kernels) is in the one behind it.
struct OpTime {
  std::string op, operands;  // shapes, inputs before outputs
  int calls = 0;
  double seconds = 0, bytes = 0, flops = 0;  // of all calls; bytes: each operand once
};
// Longest first; steps behind those in which plans are chosen, the fastest of each call's times.
std::vector<OpTime> time_ops(const Session& session, const StepProblem& problem, int steps);

// Bytes per second that come to a rank when each needs a plane more on either side of its part of a volume of 32 channels.
double halo_rate(const Session& session, std::int64_t width, DType type);

// Steps whose batches have other sizes in turn: memory stays what it was after the first of these lines.
struct SoakLine {
  int steps = 0;
  double mib = 0, reserved_mib = 0;  // of the GPU: in use between steps, and the most that was held
  double process_mib = 0;            // of the host, the most
  double loss = 0;
};
std::vector<SoakLine> soak(const Session& session, const StepProblem& problem, const std::vector<std::int64_t>& batches,
                           int steps);

// Runs `command` with the problem as arguments of PyTorch's step (--model cosmoflow --size S ...); none for what it does not
// have. Throws with the command's output if it fails or prints no line of JSON.
std::optional<StepResult> time_peer(const std::string& command, const StepProblem& problem, int steps, bool compiled);

}  // namespace mpigrad::bench
