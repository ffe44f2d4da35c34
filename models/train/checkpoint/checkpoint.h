#pragma once
// Checkpoints: HDF5 files with one dataset for each parameter, buffer and array of the optimizer, by name. Replicated tensors are
// written once; tensors in blocks are written as whole tensors. A file therefore does not depend on the grid that wrote it and
// any grid can read it: each rank keeps its blocks of what it reads.
//
//   parameters/conv1.weight   buffers/norm1.running_mean   optimizer/momentum/conv1.weight   averages/average/conv1.weight
//
// Every dataset has an attribute `checksum` of its type, shape and elements, and the file has one of all other contents
// (framework/tensor/content_hash.h); both are verified before a load changes anything.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "framework/optim/loss_scale.h"
#include "framework/optim/optimizer.h"
#include "models/nn/module.h"

namespace mpigrad {

// Contents of a file other than tensors. Notes are for the program that wrote it: names without '=', texts without line breaks.
struct CheckpointInfo {
  std::int64_t step = 0, epoch = 0;
  std::map<std::string, std::string> notes{};
  // In the middle of an epoch: number of completed steps and of all steps of the epoch, and the sum of the losses and its weight
  // (RunningMean). 0 steps: between two epochs.
  std::int64_t epoch_step = 0, epoch_steps = 0;
  double epoch_loss = 0, epoch_samples = 0;
  bool averages = false;  // read: whether the file has averaged weights in addition to the parameters
  bool verified = true;   // read: false for files of older versions without checksums; a line on standard error says so
};

struct SaveOptions {
  const Optimizer* optimizer = nullptr;
  const AveragedWeights* averages = nullptr;
  const LossScale* loss_scale = nullptr;
  CheckpointInfo info{};
  // Rounds floating-point numbers to float16 in the file, which is half as large: for weights that are not trained further.
  // Error: a finite number that float16 cannot hold.
  bool half = false;
};

// ---- files without a network: for tools

struct CheckpointTensors {
  CheckpointInfo info{};
  std::vector<NamedTensor> tensors{};  // "parameters/..." and "buffers/...", by name, on the CPU; float16 as float32
};
// Reads a file and verifies its checksums.
CheckpointTensors read_weights(const std::filesystem::path& path);
void write_weights(const std::filesystem::path& path, const CheckpointTensors& contents, bool half = false,
                   bool overwrite = false);

// ---- folders of checkpoints: checkpoint.h5 is the newest, checkpoint-STEP.h5 are older ones

inline constexpr const char *newest_checkpoint = "checkpoint.h5", *best_weights = "best.h5";
// Keeps the newest checkpoint under the name with its step, before it is replaced: at any time both names belong to complete
// files. Called by one rank. A checkpoint that cannot be read is not kept.
void keep_checkpoint(const std::filesystem::path& folder);
// Removes all older checkpoints but the `count` newest; and those of steps from `step` on, which remain if a training was resumed
// from an earlier step. Called by one rank.
void remove_old_checkpoints(const std::filesystem::path& folder, std::int64_t count, std::int64_t step);
struct FoundCheckpoints {
  std::vector<std::filesystem::path> files{};  // the newest first, by the step that they contain
  std::vector<std::string> skipped{};          // why other files are not included
};
FoundCheckpoints find_checkpoints(const std::filesystem::path& folder);

// Writes a checkpoint. Collective; the file has a temporary name until it is complete. A failure on one rank is an Error on every
// rank. First compares the parameters of all ranks (comm/distributed/same_parameters.h): if they have drifted apart nothing is
// written, and an older file stays. Replicated buffers and state of the optimizer are those of rank 0. A checkpoint at `path` is
// replaced when the new one is complete and on the disk. Error: require_replaceable().
void save_checkpoint(const std::filesystem::path& path, nn::Module& net, const Communicator& world,
                     const SaveOptions& options = {});
// FileInTheWay: `path` is a file that is neither a checkpoint nor a damaged one, so that save_checkpoint() would not replace it.
// For programs that save after a long training. Called by one rank.
void require_replaceable(const std::filesystem::path& path);

struct LoadOptions {
  Optimizer* optimizer = nullptr;  // of the same kind as the one saved
  AveragedWeights* averages = nullptr;
  LossScale* loss_scale = nullptr;  // unchanged if the file has none: training may continue in another precision
  bool averaged = false;            // parameters become the averaged weights of the file, if it has them
};

// Reads a checkpoint, on every rank independently. The file must have exactly the tensors of the network, with the same shapes
// and element types (float16 is converted), and must be undamaged; otherwise an Error, and nothing is changed. The tensors are in
// memory twice while loading.
CheckpointInfo load_checkpoint(const std::filesystem::path& path, nn::Module& net, const LoadOptions& options = {});
// ---- fine-tuning: from the weights of another network, as far as they match

struct TakeOptions {
  // The parameters and buffers of the network to load, by patterns of fnmatch(3) for their names ("encoder.*"), and their names
  // in the file: "" for the same name, else a name with one `*`, which stands for the same text as the `*` of the pattern. The
  // first pattern that a name matches applies. No patterns: all tensors that have the same name and shape in both.
  struct Pattern {
    std::string network, file{};
  };
  std::vector<Pattern> patterns{};
};
struct TakenWeights {
  std::vector<std::string> taken, left;  // names in the network: loaded from the file, and unchanged
  std::vector<std::string> unused;       // names in the file
};
// Errors, before anything changes: a pattern that no name matches; with patterns, a tensor that is not in the file, or has
// another shape or type; a damaged file.
TakenWeights take_weights(const std::filesystem::path& path, nn::Module& net, const TakeOptions& options = {});

// Reads the contents of a file other than its tensors.
CheckpointInfo read_checkpoint_info(const std::filesystem::path& path);

}  // namespace mpigrad
