#pragma once
// Trainings of a program that has data and a network: they continue from files, train, write weights and a summary. Their epochs
// are those of a loader with one loss of predictions and targets, or the program's own.

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "models/train/trainer.h"
#include "models/trainer/recipe/explain.h"
#include "models/trainer/folder/state.h"
#include "models/trainer/hooks.h"
#include "models/trainer/mllog.h"
#include "models/trainer/resume.h"
#include "models/trainer/run.h"

namespace mpigrad::trainer {

// Of these one may come of a signal in any training.
std::vector<std::string> checkpoint_files(const Options& options);
// What a training writes beside the program's `own` files.
std::vector<std::string> training_files(const Options& options, const std::vector<std::string>& own);
// Those of them that are refused where there are some of an earlier run, unless it is replaced or gone on with.
std::vector<std::string> protected_files(const Options& options, std::vector<std::string> files);

// checkpoint.epochs and the keys that go with it, with signals.
void take_checkpoint_options(const Options& options, const Start& start, TrainerOptions& to);
// What a summary says of checkpoints, and what the last line printed does: "0.1 s for 3 checkpoints, "; with checkpoint.mtbf a
// line more.
void add_checkpoints(nlohmann::ordered_json& summary, const Options& options, const TrainerResult& result);
std::string checkpoint_text(const TrainerResult& result);
std::string checkpoint_advice(const Options& options, const TrainerResult& result);
// The lines of report.mllog of a training, on rank 0; without it nothing.
class TrainingMlLog {
 public:
  struct About {
    std::string program;
    std::int64_t samples = 0, evaluated = 0, first_epoch = 0;
    std::vector<std::string> keys{};                               // of EpochRow::values, as many as are told
    std::function<double(const std::vector<double>&)> accuracy{};  // of these values; none: there is no such thing
  };
  // Collective. Error: the file cannot be made.
  TrainingMlLog(const Communicator& world, const Outputs& out, const Options& options, About about);
  // With the times at which it begins and ends; none where nothing is evaluated.
  std::function<std::vector<double>()> evaluation(std::function<std::vector<double>()> evaluate);
  void epoch(const EpochRow& row);
  void end(const TrainerResult& result);

 private:
  About about_;
  std::int64_t epochs_, evaluation_ = 0;  // evaluation_: how many there were
  std::optional<MlLog> log_;
};
// Says so, and notes it in `state`; the exit code.
int ended_early(const Communicator& world, const Outputs& out, const TrainerResult& result, std::int64_t steps);
// Files that a training writes beside the program's own ones, to be tried before its first step (Outputs::create). The optimizer
// has the network's parameters.
std::vector<OutputFile> files_to_try(const Options& options, nn::Module& net, const Optimizer& optimizer, bool half_weights,
                                     std::int64_t first_step);
// Runs a training in `out` and notes in `state` how it ends. Where it fails as its files cannot be written any more, the weights,
// which write(PATH) writes, go to the second place. Collective.
int noted(const Communicator& world, const Outputs& out, const std::function<void(const std::filesystem::path& path)>& write,
          const std::function<int()>& training);

// Epochs that are no passes over a data::Loader with a loss of predictions and targets.
struct OwnEpochs {
  std::int64_t steps = 0, samples = 0;  // of an epoch
  // As TrainerHooks::epoch; with the rate, the limit of the gradients' norm and the loss scale of `fit`.
  std::function<std::optional<EpochReport>(std::int64_t epoch, const FitOptions& fit, Optimizer& optimizer)> run{};
  std::vector<std::string> log_keys{};  // names of the first of `values` in MLPerf's logs
  std::vector<Explained> explained{};   // parts of --explain
};

struct Supervised {
  std::string program;
  nn::Module& net;
  std::optional<std::reference_wrapper<const data::Loader>> loader{};
  LossFunction loss{};
  OwnEpochs own{};  // instead of loader and loss
  // Of a checkpoint, and those that must be the same where training goes on from one (start_from_files).
  Notes notes{};
  std::vector<std::string> decisive{};
  Notes more_notes{};                 // kept, but not compared
  std::string headline{}, remark{};   // printed before the first epoch, around a line about network and grid
  std::vector<std::string> values{};  // what `evaluate` returns
  std::string monitor{};              // a value or train_loss, which is to fall, for schedule.patience; empty: the first value
  Hooks hooks{};
  std::function<std::vector<double>()> evaluate{};
  std::int64_t evaluated_samples = 0;
  std::function<double(const std::vector<double>&)>
      accuracy{};  // of these values, for MLPerf's logs; none: the first is an error
  std::function<std::string(const std::vector<double>&)> text{};
  // Around what reads, copies or writes a checkpoint's tensors, so that the network has all of them then.
  std::function<void()> before_checkpoint{}, after_checkpoint{};
  std::function<void()> started{};  // once the network has its first weights, before after_checkpoint
  // On all ranks behind the last epoch: what is measured once.
  std::function<void()> finish{};
  bool half_weights = false;  // the weights' file is of float16
  // On rank 0, at the end: what the summary begins with, and the last line that is printed.
  std::function<void(nlohmann::ordered_json run, const TrainerResult& result, const std::string& text)> report{};
};

// Returns the exit code. With schedule.epochs 0 the weights are measured and written as they begin. Collective.
int train(const Communicator& world, const Options& options, const GridExtents& grid, const Outputs& out, const Supervised& s);

}  // namespace mpigrad::trainer
