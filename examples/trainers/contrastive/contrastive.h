#pragma once
// The commands of the program `contrastive`. Each is collective over the ranks and returns the exit code.

#include "comm/communicator.h"
#include "models/trainer/contrastive/options.h"

namespace mpigrad::contrast {

int train(const Communicator& world, TrainOptions options);
int describe(const Communicator& world, const TrainOptions& options);  // train --describe
int embed(const Communicator& world, const EmbedOptions& options);
int evaluate(const Communicator& world, const EvaluateOptions& options);

}  // namespace mpigrad::contrast
