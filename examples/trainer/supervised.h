#pragma once
// What trainers with one loss of predictions and targets do once they have data and a network: they go on from files, train,
// write weights and a summary.

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "examples/trainer/run.h"
#include "models/train/trainer.h"

namespace mpigrad::trainer {

inline constexpr const char *weights_file = "weights.h5", *summary_file = "summary.json", *trace_file = "trace.json",
                            *mllog_file = "mllog.txt";
// Of these one may come of a signal in any training.
std::vector<std::string> checkpoint_files(const Options& options);
// What a training writes beside the program's `own` files.
std::vector<std::string> training_files(const Options& options, const std::vector<std::string>& own);

// --checkpoint-every and what goes with it, with signals.
void take_checkpoint_options(const Options& options, TrainerOptions& to);
// Says so; the exit code.
int ended_early(const Communicator& world, const Options& options, const TrainerResult& result, std::int64_t steps);

struct Supervised {
  std::string program;
  nn::Module& net;
  const data::Loader& loader;
  LossFunction loss;
  // Of a checkpoint, and those that must be the same where training goes on from one (start_from_files).
  Notes notes{};
  std::vector<std::string> decisive{};
  Notes more_notes{};                 // kept, but not compared
  std::string headline{};             // printed before the first epoch
  std::vector<std::string> values{};  // what `evaluate` returns; --patience looks at the first, which is to fall
  std::function<std::vector<double>()> evaluate{};
  std::function<std::string(const std::vector<double>&)> text{};
  // On all ranks behind the last epoch: what is measured once.
  std::function<void()> finish{};
  bool half_weights = false;  // the weights' file is of float16
  // On rank 0, at the end: what the summary begins with, and the last line that is printed.
  std::function<void(nlohmann::ordered_json run, const TrainerResult& result, const std::string& text)> report{};
};

// Returns the exit code. Collective.
int train(const Communicator& world, const Options& options, const GridExtents& grid, const Outputs& out, const Supervised& s);

}  // namespace mpigrad::trainer
