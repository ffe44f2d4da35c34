#pragma once
// What trainers do around training: output files, going on from a checkpoint, summaries.

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

// Eight bytes that differ where the samples' names do, or their order.
std::string fingerprint(const std::vector<std::string>& names);
// Of samples, without their folders, which may be moved.
std::string fingerprint(const data::Source& source, const std::vector<std::int64_t>& samples);
// Texts that are the same on all ranks, else an error that all have and that shows the first difference. Collective.
void require_same(const Communicator& world, const std::string& what, const std::vector<std::string>& texts);
// Ranks read files for themselves, and nodes may have others under the same name. Compares number, kind and names of the samples,
// and their classes; of weights and checkpoints the length and what they say about themselves. Collective.
void require_same_file(const Communicator& world, const std::filesystem::path& path, const CheckpointInfo& info);
void require_same_data(const Communicator& world, const data::Source& source);
// For batches of that layout and shape, with seed and precision.compute; with weights in blocks as grid.extents, grid.layers and
// grid.sharded_weights say.
void build(nn::Module& net, const LayoutPtr& layout, const Shape& shape, const Options& options);
// Whether ranks have parts of weights then.
bool has_blocks(const Options& options);
// Weights alone, and what their file says; with `averaged` those of a checkpoint with averaged ones are these. Collective.
CheckpointInfo load_weights(const std::string& path, const Communicator& world, nn::Module& net, bool averaged = false);
// The note of a training with optimizer.average_weights: their decay.
inline constexpr const char* averages_note = "averaged weights";
// Where a training starts.
struct Start {
  std::int64_t epoch = 0;
  EpochPosition position{};  // in that epoch, of `steps`
  bool uncovered = false;    // --resume was given, and --out has no checkpoint of where it starts
  std::string training{};    // the name under which it keeps local copies; empty: it has none yet
};
// Rank 0's, on all ranks. Collective.
std::vector<std::string> shared_lines(const Communicator& world, const std::vector<std::string>& lines);
// UsageError: so many samples make no batch. It is the arguments' fault, and no second start helps.
void require_batch(const Options& options, std::int64_t samples);
// save_checkpoint, whose errors all ranks have.
void save(const std::filesystem::path& path, nn::Module& net, const Communicator& world, const SaveOptions& options);

// What is said behind the losses of an epoch: ", loss scale 65536, 3 steps skipped" of a training with one, and what timing a
// GPU's kernels took, where it took something since this thread asked last.
std::string remarks(const EpochReport& report);

// For summaries.
struct Usage {
  // Peaks, of the rank where they are largest. Tensors are those of the device that computes; the rest is a GPU's: what its
  // blocks hold, workspaces of libraries included, and what was taken from it.
  std::int64_t process_bytes = 0, tensor_bytes = 0, gpu_bytes = 0, gpu_reserved_bytes = 0;
  std::string gpu;  // this rank's, as its vendor calls it; empty: none
};
Usage peak_usage(const Communicator& world);
// "at most 1.2 GiB of memory per rank", and of the GPU
std::string to_string(const Usage& usage);
void add(nlohmann::ordered_json& document, const Usage& usage);

nlohmann::ordered_json to_json(const GridExtents& grid);
nlohmann::ordered_json to_json(const Description& description);
// Samples of a step: --batch; where it was not given at least one for each rank along `sample`.
std::int64_t described_batch(const Options& options, const GridExtents& grid);
// A training step with the optimizer asked for. Where no data say how large volumes are, one that does not fit is the arguments'
// fault.
Description describe(const Options& options, nn::Module& net, const Shape& input, const GridExtents& grid,
                     const std::function<Tensor(const Tensor&)>& objective = {});
// Prints a description, for people or as JSON with `more` in front.
void print(const Description& description, const Options& options, const nlohmann::ordered_json& more);
using tool::write_text;

}  // namespace mpigrad::trainer
