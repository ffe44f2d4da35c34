#pragma once
// Functions around a training: output files, resuming from a checkpoint, summaries.

#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "models/data/source.h"
#include "models/nn/describe.h"
#include "models/train/checkpoint/checkpoint.h"
#include "models/train/training.h"
#include "models/trainer/changes.h"
#include "models/trainer/folder/names.h"
#include "models/trainer/folder/outputs.h"
#include "models/trainer/options.h"

namespace mpigrad::trainer {

using tool::together;
// Runs f on every rank; an Error thrown by it concerns arguments or data, which no restart can fix: all ranks throw it as a
// UsageError, exit code 2. Collective.
void of_input(const Communicator& world, const std::function<void()>& f);

// A 64-bit hash of the samples' names and their order.
std::string fingerprint(const std::vector<std::string>& names);
// The hash of samples' names without their folders, which may be moved.
std::string fingerprint(const data::Source& source, const std::vector<std::int64_t>& samples);
// Throws an error on all ranks, with the first difference, unless texts are the same on all ranks. Collective.
void require_same(const Communicator& world, const std::string& what, const std::vector<std::string>& texts);
// Ranks read files for themselves, and nodes may have different files under one name. Throws on all ranks if they differ:
// compares number, kind, names and classes of the samples; for weights and checkpoints their length and their header. Collective.
void require_same_file(const Communicator& world, const std::filesystem::path& path, const CheckpointInfo& info);
void require_same_data(const Communicator& world, const data::Source& source);
// Builds the network for batches of that layout and shape, with seed and precision.compute; weights are in blocks as
// grid.extents, grid.layers and grid.sharded_weights say.
void build(nn::Module& net, const LayoutPtr& layout, const Shape& shape, const Options& options);
// True if ranks then hold parts of weights.
bool has_blocks(const Options& options);
// Loads only the weights, and returns the header of their file; with `averaged` the averaged ones of a checkpoint that has them.
// Collective.
CheckpointInfo load_weights(const std::string& path, const Communicator& world, nn::Module& net, bool averaged = false);
// The note of a training with optimizer.average_weights: the decay of the averages.
inline constexpr const char* averages_note = "averaged weights";
// Where a training starts.
struct Start {
  std::int64_t epoch = 0;
  EpochPosition position{};  // within that epoch, of `steps`
  bool uncovered = false;    // --resume was given, and --out has no checkpoint of where it starts
  std::string training{};    // its name for local copies; empty: it has none yet
};
// Rank 0's lines, on all ranks. Collective.
std::vector<std::string> shared_lines(const Communicator& world, const std::vector<std::string>& lines);
// Throws UsageError if there are too few samples for a batch: the arguments are wrong, and a restart does not help.
void require_batch(const Options& options, std::int64_t samples);
// save_checkpoint, with its errors on all ranks.
void save(const std::filesystem::path& path, nn::Module& net, const Communicator& world, const SaveOptions& options);

// Text after the losses of an epoch: ", loss scale 65536, 3 steps skipped" if there is a loss scale, and the time that autotuning
// of GPU kernels took since this thread asked last.
std::string remarks(const EpochReport& report);

// Memory in use, for summaries.
struct Usage {
  // Peaks, of the rank where they are largest. tensor_bytes: on the device that computes; gpu_bytes: in blocks on the GPU, with
  // workspaces of libraries; gpu_reserved_bytes: taken from the GPU.
  std::int64_t process_bytes = 0, tensor_bytes = 0, gpu_bytes = 0, gpu_reserved_bytes = 0;
  std::string gpu;  // vendor's name of this rank's GPU; empty: none
};
Usage peak_usage(const Communicator& world);
// "at most 1.2 GiB of memory per rank", and of the GPU
std::string to_string(const Usage& usage);
void add(nlohmann::ordered_json& document, const Usage& usage);

nlohmann::ordered_json to_json(const GridExtents& grid);
nlohmann::ordered_json to_json(const Description& description);
// Samples in a step: --batch; if it was not given, at least one for each rank along `sample`.
std::int64_t described_batch(const Options& options, const GridExtents& grid);
// Describes a training step with the chosen optimizer. Without data its errors are UsageErrors, because the volume's size is an
// argument then.
Description describe(const Options& options, nn::Module& net, const Shape& input, const GridExtents& grid,
                     const std::function<Tensor(const Tensor&)>& objective = {});
// Prints a description, as text or as JSON that begins with `more`.
void print(const Description& description, const Options& options, const nlohmann::ordered_json& more);
using tool::write_text;

}  // namespace mpigrad::trainer
