#pragma once
// The parts of the program `cosmoflow`.

#include "comm/communicator.h"
#include "examples/trainer/run.h"
#include "models/cosmoflow.h"
#include "models/metrics.h"

namespace mpigrad::cosmoflow {

struct Options : trainer::Options {
  std::string variant = "hybrid";
  double test_fraction = 0.15;
};

CosmoFlowOptions network_options(const Options& options, std::int64_t targets);
void require_cubes(const Options& options, const data::Source& source);

// Each returns the exit code.
int describe(const Communicator& world, const Options& options);
int train(const Communicator& world, const Options& options);

// One line of the curves.
struct Epoch {
  std::int64_t epoch = 0;
  double train_loss = 0, test_loss = 0;
};

struct Results {
  std::vector<std::string> names;       // of the targets
  std::vector<RegressionScore> scores;  // on the test set
  Predictions predictions;              // of the test set
  std::vector<Epoch> epochs;
};

// Slices of the first test sample, predicted against true values, loss curves.
void draw(const std::filesystem::path& path, const Results& results, const data::Source& source);

}  // namespace mpigrad::cosmoflow
