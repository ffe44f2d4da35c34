#pragma once
// Trainings of a program that has commands of its own: they start from files, train, write weights and a summary. An epoch is a
// pass over a loader with one loss of predictions and targets, or the program's own.

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "models/train/trainer.h"
#include "models/trainer/folder/state.h"
#include "models/trainer/mllog.h"
#include "models/trainer/recipe/explain.h"
#include "models/trainer/resume.h"
#include "models/trainer/run.h"

namespace mpigrad::trainer {

// The checkpoint files of a training, including those that only a signal causes.
std::vector<std::string> checkpoint_files(const Options& options);
// The files that a training writes, in addition to the program's `own`.
std::vector<std::string> training_files(const Options& options, const std::vector<std::string>& own);
// Those of `files` that must not exist from an earlier run, unless it is replaced or resumed.
std::vector<std::string> protected_files(const Options& options, std::vector<std::string> files);

// The checkpoints' part of the summary, and of the last line printed: "0.1 s for 3 checkpoints, "; one more line with
// checkpoint.mtbf.
void add_checkpoints(nlohmann::ordered_json& summary, const Options& options, const TrainerResult& result);
std::string checkpoint_text(const TrainerResult& result);
std::string checkpoint_advice(const Options& options, const TrainerResult& result);
// Writes the lines of report.mllog of a training, on rank 0; without that key nothing.
class TrainingMlLog {
 public:
  struct About {
    std::string program;
    std::int64_t samples = 0, evaluated = 0, first_epoch = 0;
    std::vector<std::string> keys{};                               // names of the first of EpochRow::values
    std::function<double(const std::vector<double>&)> accuracy{};  // computed from these values; none: no accuracy
  };
  // Collective. Error: the file cannot be made.
  TrainingMlLog(const Communicator& world, const Outputs& out, const Options& options, About about);
  // `evaluate`, with log lines for its beginning and end; none if `evaluate` is none.
  std::function<std::vector<double>()> evaluation(std::function<std::vector<double>()> evaluate);
  void epoch(const EpochRow& row);
  void end(const TrainerResult& result);

 private:
  About about_;
  std::int64_t epochs_, evaluation_ = 0;  // evaluation_: number of evaluations so far
  std::optional<MlLog> log_;
};
// Prints that the training was ended early, writes it to `state`, and returns the exit code.
int ended_early(const Communicator& world, const Outputs& out, const TrainerResult& result, std::int64_t steps);
// Files that a training writes in addition to the program's own, to be opened before its first step (Outputs::create). The
// optimizer has the network's parameters.
std::vector<OutputFile> files_to_try(const Options& options, nn::Module& net, const Optimizer& optimizer, bool half_weights,
                                     std::int64_t first_step);
// Runs a training in `out` and writes to `state` how it ends. If it fails because its files cannot be written any more, the
// weights (written by write(PATH)) go to a replacement folder. Collective.
int noted(const Communicator& world, const Outputs& out, const std::function<void(const std::filesystem::path& path)>& write,
          const std::function<int()>& training);

// The size of epochs that are not passes over a data::Loader with a loss of predictions and targets.
struct OwnEpochs {
  std::int64_t steps = 0, samples = 0;
  std::vector<std::string> log_keys{};  // names of the first of `values` in MLPerf's logs
};

struct Training {
  std::string program;
  nn::Module& net;
  std::optional<std::reference_wrapper<const data::Loader>> loader{};
  OwnEpochs own{};  // without a loader: of hooks.epoch
  // Makes the optimizer from optimizer.* keys and the program's own; none: trainer::make_optimizer().
  std::function<std::unique_ptr<Optimizer>(Parameters& parameters)> optimizer{};
  // The hooks of mpigrad::train(). The library adds times and loss scale to `text`, and log lines of report.mllog to `evaluate`.
  TrainerHooks hooks{};
  // Notes of a checkpoint, and the names of those that must be the same when a training is resumed from it (start_from_files).
  Notes notes{};
  std::vector<std::string> decisive{};
  Notes more_notes{};                 // written, but not compared
  std::string headline{}, remark{};   // printed before the first epoch; a line about network and grid is between them
  std::vector<std::string> values{};  // names of the values that hooks.evaluate returns
  std::string monitor{};              // the value (or train_loss) that must fall, for schedule.patience; empty: the first
  std::function<std::vector<Explained>()> explained{};  // further parts of --explain
  std::int64_t evaluated_samples = 0;
  std::function<double(const std::vector<double>&)>
      accuracy{};                   // computed from these values, for MLPerf's logs; none: the first value is an error
  std::function<void()> started{};  // called when the network has its first weights, before hooks.after_checkpoint
  // Called on all ranks after the last epoch: measures what is needed once.
  std::function<void()> finish{};
  bool half_weights = false;  // the weights' file is of float16
  // Called on rank 0, at the end. `run`: the first keys of the summary; `text`: the last line to print.
  std::function<void(nlohmann::ordered_json run, const TrainerResult& result, const std::string& text)> report{};
};

// Starts from new weights or files, calls mpigrad::train() with options.training, and writes weights, recipe and summary to
// `out`. Returns the exit code. With schedule.epochs 0 it only evaluates and writes the initial weights. Collective.
int run_training(const Communicator& world, const Options& options, const GridExtents& grid, const Outputs& out,
                 const Training& training);

}  // namespace mpigrad::trainer
