#pragma once
// What a part of the trainer costs where a training runs steadily: blocks of steps of one training with and without it, in turn,
// so that a machine whose speed changes changes both.

#include <cstdint>
#include <filesystem>
#include <memory>

#include "models/data/source.h"
#include "models/train/session.h"

namespace mpigrad::bench {

struct SteadyOptions {
  std::int64_t side = 64;
  std::int64_t block = 100;  // steps
  int quads = 10;            // of four blocks: with, without, without, with
  std::filesystem::path folder{};
};

// So many volumes of numbers.
std::shared_ptr<data::Source> made_volumes(std::int64_t side, std::int64_t samples);

// One checkpoint in the middle of each block that has any, written beside training as the trainer does it.
void measure_checkpoints(Session& session, const SteadyOptions& options);
// What the table of stragglers needs: clocks around calls that wait, clocks of steps, and the ranks' wishes after every step, of
// which a report is one.
void measure_stragglers(Session& session, const SteadyOptions& options);

}  // namespace mpigrad::bench
