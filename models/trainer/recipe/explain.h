#pragma once
// --explain: the plan of a training, taken from the objects that it is going to use; and the recipe.toml that it writes.

#include <cstdint>
#include <string>
#include <vector>

#include "models/trainer/run.h"

namespace mpigrad {
struct TrainerOptions;
}

namespace mpigrad::trainer {

inline constexpr const char* recipe_file = "recipe.toml";

// A part of an explanation: lines under a heading.
struct Explained {
  std::string heading;
  std::vector<std::string> lines;
};
// The output of --explain: the network's parameters, the first samples and how they are augmented, the optimizer's state, the
// learning rate along the training, the grid, checkpoints and files. `loader` is null for a training on other batches, whose
// program adds its own parts (`more`). Rank 0 prints; JSON with --json.
struct Explanation {
  const Options& options;
  const TrainerOptions& training;
  nn::Module& net;
  const Optimizer& optimizer;
  const data::Loader* loader;
  const GridExtents& grid;
  std::int64_t steps;  // in an epoch
  const Notes& notes;
  std::vector<OutputFile> files;
  std::vector<Explained> more{};
};
void explain(const Communicator& world, const Explanation& explanation);

// Writes recipe.toml: the keys of this run, and under [origin] version, commit, ranks, grid and fingerprints of the data. Rank 0
// warns if the recipe with which the run was started was written for other data. Collective.
void write_recipe(const Communicator& world, const Outputs& out, const Options& options, const GridExtents& grid,
                  const Notes& notes, std::int64_t first_epoch);

}  // namespace mpigrad::trainer
