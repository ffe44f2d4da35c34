#pragma once
// Networks in files: HDF5 with one dataset for each parameter, buffer and array of the optimizer, by name. What is the same on
// all ranks is written once, and what they hold in blocks is put together first, one tensor after the other, so that a file knows
// nothing of the grid that wrote it and any grid can read it: each rank keeps its blocks of what it reads.
//
//   parameters/conv1.weight   buffers/norm1.running_mean   optimizer/momentum/conv1.weight   averages/average/conv1.weight
//
// Every dataset has an attribute `checksum`, of its type, shape and elements, and the file one of all the rest
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

// What a file says besides tensors. Notes are for the program that wrote it: names without '=', texts without line breaks.
struct CheckpointInfo {
  std::int64_t step = 0, epoch = 0;
  std::map<std::string, std::string> notes{};
  // In the middle of an epoch: how many of its steps are behind the weights and how many it has, and of their losses the sum and
  // its weight (RunningMean). 0 steps: between two epochs.
  std::int64_t epoch_step = 0, epoch_steps = 0;
  double epoch_loss = 0, epoch_samples = 0;
  bool averages = false;  // read: whether the file has averaged weights beside the parameters
  bool verified = true;   // read: false for files from before there were checksums, of which a line on standard error tells
};

struct SaveOptions {
  const Optimizer* optimizer = nullptr;
  const AveragedWeights* averages = nullptr;
  const LossScale* loss_scale = nullptr;
  CheckpointInfo info{};
  // Rounds floating-point numbers to float16 in the file, which is half as large: for weights that are used and not trained
  // further. Error: a finite number that float16 cannot hold.
  bool half = false;
};

// ---- files by themselves, without a network: for tools

struct CheckpointTensors {
  CheckpointInfo info{};
  std::vector<NamedTensor> tensors{};  // "parameters/..." and "buffers/...", by name, on the CPU; of float16 as float32
};
// Verified.
CheckpointTensors read_weights(const std::filesystem::path& path);
void write_weights(const std::filesystem::path& path, const CheckpointTensors& contents, bool half = false,
                   bool overwrite = false);

// ---- folders of checkpoints: checkpoint.h5 is the newest, checkpoint-STEP.h5 are older ones that are kept

inline constexpr const char *newest_checkpoint = "checkpoint.h5", *best_weights = "best.h5";
// Keeps the newest checkpoint under its step's name, before it is replaced: both names are of whole files all the time. Of one
// rank. One that cannot be read is left to be replaced.
void keep_checkpoint(const std::filesystem::path& folder);
// Removes all older ones but the `count` newest of them; and those of steps from `step` on, which a training that goes on from
// before them has left behind. Of one rank.
void remove_old_checkpoints(const std::filesystem::path& folder, std::int64_t count, std::int64_t step);
struct FoundCheckpoints {
  std::vector<std::filesystem::path> files{};  // the newest first, by what they say of themselves
  std::vector<std::string> skipped{};          // why others are not among them
};
FoundCheckpoints find_checkpoints(const std::filesystem::path& folder);

// Collective; rank 0 writes, under a temporary name until the file is complete. What goes wrong there is an Error on every rank.
// Before that the parameters of all ranks are compared (comm/distributed/same_parameters.h): where they have drifted apart
// nothing is written, and an older file stays. Buffers and the optimizer's state are rank 0's. A checkpoint at `path` is replaced
// when the new one is complete and on the disk. Error: require_replaceable().
void save_checkpoint(const std::filesystem::path& path, nn::Module& net, const Communicator& world,
                     const SaveOptions& options = {});
// FileInTheWay: at `path` is a file that is neither a checkpoint nor a damaged one, so that save_checkpoint() would not replace
// it. For programs that save after a long training. Of one rank.
void require_replaceable(const std::filesystem::path& path);

struct LoadOptions {
  Optimizer* optimizer = nullptr;  // of the same kind as the one saved
  AveragedWeights* averages = nullptr;
  LossScale* loss_scale = nullptr;  // stays as it is where the file has none: training may go on in another precision
  bool averaged = false;            // parameters become the averaged weights of a file that has some
};

// Every rank reads for itself. Names, shapes and element types (but for float16, which becomes the network's) must be those of
// the network, in both directions, and the file undamaged; nothing is changed if they are not. The tensors are in memory twice
// for that moment.
CheckpointInfo load_checkpoint(const std::filesystem::path& path, nn::Module& net, const LoadOptions& options = {});
// ---- fine-tuning: from the weights of another network, as far as they go

struct TakeOptions {
  // Which of the network's parameters and buffers are taken, by patterns of their names ("encoder.*", as fnmatch(3) has them),
  // and what they are called in the file: "" for the same, else a name in whose one `*` stands what stands in that of the
  // pattern. The first pattern that a name matches counts. None at all: what both have under one name, of one shape.
  struct Pattern {
    std::string network, file{};
  };
  std::vector<Pattern> patterns{};
};
struct TakenWeights {
  std::vector<std::string> taken, left;  // of the network: what the file had for it, and what stays as it was
  std::vector<std::string> unused;       // of the file
};
// Errors, before anything changes: a pattern that no name matches; with patterns, what they name is not in the file, or of
// another shape or type; a damaged file.
TakenWeights take_weights(const std::filesystem::path& path, nn::Module& net, const TakeOptions& options = {});

// The tensors stay in the file.
CheckpointInfo read_checkpoint_info(const std::filesystem::path& path);

}  // namespace mpigrad
