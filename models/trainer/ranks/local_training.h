#pragma once
// checkpoint.local_folder: the name of the training in --out, and its folder on the local disks of the nodes.

#include <filesystem>
#include <string>

#include "models/train/trainer.h"
#include "models/trainer/run.h"

namespace mpigrad::trainer {

// The file with the name of a training that keeps local copies.
std::filesystem::path training_name_file(const Options& options);
// The name of the training in --out; empty if it has none. Collective.
std::string training_in(const Options& options, const Communicator& world);
// Throws UsageError if, on the node of some rank, the folder of the training's copies belongs to another user or another
// training, or other users could exchange it (models/train/restart/local_folder.h). Collective.
void require_own_copies(const Options& options, const Communicator& world, const TrainingName& training);
// Sets up the local copies of a training that starts at `start` in --out, which exists and may have the `state` of the previous
// training. Draws a name if the training has none. Removes copies that ended trainings have left on the nodes, and prints that.
// Collective.
void take_local_copies(const Options& options, const Communicator& world, const Start& start, TrainerOptions& to);

}  // namespace mpigrad::trainer
