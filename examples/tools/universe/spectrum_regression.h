#pragma once
// The estimate without a network that scores are shown beside: a ridge regression on the power spectra and one-point numbers of
// the same volumes.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "models/data/source.h"
#include "models/mpigrad/trainer.h"
#include "models/train/checkpoint/checkpoint.h"
#include "models/train/ridge.h"

namespace mpigrad::universe {

struct Baseline {
  std::int64_t side = 0, channels = 0;  // of the volumes that it was fitted to
  Ridge ridge{};                        // without features: no regression
  std::string missing{};                // why there is no regression
};

// Fitted to some samples, cubes with a row of targets each; of more than `most_cells` together to some of them, spread evenly.
// The ranks and their threads share the samples, each of which is read whole by one rank, as it is stored. The same on any number
// of ranks and threads, bit for bit. None: volumes of more than `largest_side`^3 cells, one sample only, a sample that has no
// spectrum. `predicted`, where given, becomes the regression's predictions of the samples if it was fitted to all of them.
// Collective.
Baseline fit_baseline(const Communicator& world, const data::Source& source, const std::vector<std::int64_t>& samples,
                      std::vector<double>* predicted = nullptr);
inline constexpr std::int64_t largest_side = 128, most_cells = std::int64_t{1} << 31;  // minutes of one core

// The regression's predictions of some samples: [samples, targets]; none, and why, of more than `most_cells`. Collective.
struct BaselinePredictions {
  std::vector<double> values{};
  std::string missing{};
};
BaselinePredictions predict_baseline(const Communicator& world, const data::Source& source,
                                     const std::vector<std::int64_t>& samples, const Baseline& baseline);

// Weights remember it.
inline constexpr const char* baseline_note = "spectrum regression";
std::string to_note(const Baseline& baseline);
// Of weights that predict so many targets. A file that is older than such notes has none. Error: a note that to_note did not
// write.
Baseline baseline_of(const std::string& weights, const CheckpointInfo& info, std::size_t targets);

// The regression as the reference of a trainer's program.
trainer::Reference spectrum_reference();

}  // namespace mpigrad::universe
