#pragma once
// The parts of trainer::run() (models/mpigrad/trainer.h).

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "models/mpigrad/trainer.h"
#include "models/trainer/infer.h"
#include "models/trainer/program/targets.h"
#include "models/trainer/samples.h"

namespace mpigrad::trainer::program {

// ---- options

struct TrainOptions : trainer::Options {
  SampleOptions source{};
  std::string train_group, kept_group, kept_data, kept_targets;
  double kept_fraction = 0;
  std::uint64_t split_seed = 1;       // unless `seed` draws the samples
  Values values{};                    // of the settings
  const Keys* keys = nullptr;         // bound to these options
  std::set<std::string> described{};  // keys that mean something to --describe: of the samples, and the settings
  std::map<std::string, std::vector<std::string>> defaults{};  // of the keys
};
// evaluate and predict.
struct InferOptions : trainer::InferOptions {
  SampleOptions source{};
};

// A key of the samples kept: "data.validation_fraction". `what`: fraction, group, data or targets.
std::string kept_key(const Program& program, const std::string& what);
// The problem before the samples are known.
Problem problem_of(const Program& program, const TrainOptions& options);

// ---- notes of weights

inline constexpr const char* problem_note = "problem";
std::string to_note(const Problem& problem);
// Of weights of this program. Error: a note that to_note did not write, settings that the program does not have.
Problem problem_of(const Program& program, const std::string& weights, const CheckpointInfo& info);

SplitNotes split_notes(const Program& program);

// ---- data

// Error: --data is missing, or as of Program::open.
data::SourcePtr open(const Program& program, const SampleOptions& options, const std::string& path, const std::string& part,
                     bool targets);

// The samples of a training.
struct Sets {
  data::SourcePtr opened{}, training{}, kept{};  // as they were opened, and with the targets that are learned
  std::vector<std::int64_t> training_samples{}, kept_samples{};
  std::string training_group{}, kept_group{};
  std::int64_t all = 0;  // samples that were divided; 0: both are what the data say
};
// Fills in what the samples say of the problem. Errors: of opening; UsageErrors: keys that exclude each other.
Sets open_sets(const Program& program, const TrainOptions& options, Problem& problem);
// The same for --describe, of samples that need no targets.
void describe_data(const Program& program, const TrainOptions& options, Problem& problem);
// Error: samples of other channels or extents than the problem's, which is that of `of`; with `any_extents` only pictures for
// volumes.
void require_fitting(const Problem& problem, const data::Source& source, const std::string& path, const std::string& of,
                     bool any_extents);

// ---- scores

// Columns of metrics.csv: the loss, the program's metrics, then accuracy and AUC, or R2, unless a metric has such a name.
std::vector<std::string> value_names(const Program& program, const Problem& problem);
std::size_t place_of(const std::vector<std::string>& names, const std::string& name);
// Their values. Numbers among the predictions are in the units of the data afterwards.
std::vector<double> values_of(const Program& program, const Problem& problem, const data::Source& source,
                              Predictions& predictions);
// "validation 0.1234, accuracy 0.912"
std::string text_of(const Program& program, const std::vector<std::string>& names, const std::vector<double>& values);

// What a command has found out.
struct Findings {
  Problem problem{};
  Predictions predictions{};  // numbers in the units of the data
  data::SourcePtr source{};   // of these samples
  bool scored = false;
  std::vector<double> values{};  // of value_names(), where scored
  std::vector<EpochRow> epochs{};
  double majority = 0;                 // accuracy of always saying the most frequent class
  std::optional<TargetMeans> means{};  // of the training's samples
  Reference::Predicted reference{};    // of the samples; without values where the program has no such predictor
  bool is_of_training = false;         // of the command `train`

  // score() fills in, for numbers:
  std::vector<RegressionScore> scores{};       // R2 is against the samples' own means
  std::vector<RegressionScore> beside_mean{};  // against `means`, where they are known
  std::vector<double> reference_mse{};         // none: no such predictor

  bool physical() const { return means && !means->scale.empty(); }
  std::string mean_of() const;  // whose means these are
};
void score(Findings& findings);
double r2_of(const RegressionScore& score);  // NaN where the truth does not vary
// Of each sample a row: exp(output) over their sum.
std::vector<double> probabilities(const Findings& findings);

// ---- what is written and printed

inline constexpr const char* predictions_file = "predictions.csv";
std::string picture_file(const Program& program);
void write_predictions(const std::filesystem::path& path, const Findings& findings);
// Tables of scores, or the first predictions.
void print_findings(const Program& program, const Findings& findings);
void draw(const std::filesystem::path& path, const Program& program, const Findings& findings);
// Writes predictions, picture and summary and prints the summary, or tables, then `text` and which of `files` there are. `run` is
// what the summary begins with. Of one rank.
void report(const Program& program, const trainer::Options& options, const Outputs& out, Findings& findings,
            nlohmann::ordered_json run, const std::vector<std::string>& files, const std::string& text);
nlohmann::ordered_json to_json(const Value& value);

// ---- commands; each returns the exit code. Collective.

int describe(const Communicator& world, const Program& program, const TrainOptions& options);
int train(const Communicator& world, const Program& program, const TrainOptions& options);
int infer(const Communicator& world, const Program& program, const InferOptions& options);

}  // namespace mpigrad::trainer::program
