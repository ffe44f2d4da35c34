#pragma once
// The cost of a part of the trainer in a running training: alternating blocks of steps with and without it, so that a change of
// the machine's speed affects both.

#include <cstdint>
#include <filesystem>
#include <memory>

#include "models/data/source.h"
#include "models/train/session.h"

namespace mpigrad::bench {

struct SteadyOptions {
  std::int64_t side = 64;
  std::int64_t block = 100;  // steps per block
  int quads = 10;            // number of groups of four blocks: with, without, without, with
  std::filesystem::path folder{};
};

// `samples` volumes of random numbers.
std::shared_ptr<data::Source> made_volumes(std::int64_t side, std::int64_t samples);

// One checkpoint in the middle of each block that has any, written during training as the trainer does it.
void measure_checkpoints(Session& session, const SteadyOptions& options);
// The timers of the straggler table: timers around calls that wait, timers of steps, and the ranks' requests after every step,
// such as a report.
void measure_stragglers(Session& session, const SteadyOptions& options);

}  // namespace mpigrad::bench
