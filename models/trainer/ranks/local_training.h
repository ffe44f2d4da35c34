#pragma once
// checkpoint.local_folder: the name of the training in --out, and its folder on the disks of the nodes.

#include <filesystem>
#include <string>

#include "models/train/trainer.h"
#include "models/trainer/run.h"

namespace mpigrad::trainer {

// Keeps the name that a training with local copies has drawn.
std::filesystem::path training_name_file(const Options& options);
// The name of the training in --out, if it has one. Collective.
std::string training_in(const Options& options, const Communicator& world);
// UsageError: on the node of some rank, the folder of the training's copies is another user's, another training's, or could be
// exchanged by other users (models/train/restart/local_folder.h). Collective.
void require_own_copies(const Options& options, const Communicator& world, const TrainingName& training);
// Copies of a training that starts so, in --out, which is there and whose `state` may be that of the training before. Draws a
// name where the training has none. Removes what ended trainings have left on the nodes, and says so. Collective.
void take_local_copies(const Options& options, const Communicator& world, const Start& start, TrainerOptions& to);

}  // namespace mpigrad::trainer
