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
  std::uint64_t split_seed = 1;       // used unless `seed` draws the samples
  Values values{};                    // of the settings
  const Keys* keys = nullptr;         // bound to these options
  std::set<std::string> described{};  // keys that have an effect with --describe: those of the samples and the settings
  std::map<std::string, std::vector<std::string>> defaults{};  // of the keys
};
// Options of evaluate and predict.
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
// The problem in the note of this program's weights. Error: a note that to_note did not write; settings that the program does not
// have.
Problem problem_of(const Program& program, const std::string& weights, const CheckpointInfo& info);

SplitNotes split_notes(const Program& program);

// ---- data

// Error: --data is missing; those of Program::open.
data::SourcePtr open(const Program& program, const SampleOptions& options, const std::string& path, const std::string& part,
                     bool targets);

// The samples of a training.
struct Sets {
  data::SourcePtr opened{}, training{}, kept{};  // `opened`: before targets were chosen
  std::vector<std::int64_t> training_samples{}, kept_samples{};
  std::string training_group{}, kept_group{};
  std::int64_t all = 0;  // number of samples before the split; 0: the data have separate sets
};
// Opens the samples and fills in the parts of the problem that depend on them. Errors: those of opening; UsageErrors: keys that
// exclude each other.
Sets open_sets(const Program& program, const TrainOptions& options, Problem& problem);
// The same for --describe; the samples need no targets.
void describe_data(const Program& program, const TrainOptions& options, Problem& problem);
// Error: the channels or extents of samples differ from those of the problem of `of`; with `any_extents` only pictures instead of
// volumes are an error.
void require_fitting(const Problem& problem, const data::Source& source, const std::string& path, const std::string& of,
                     bool any_extents);

// ---- scores

// The loss of the program for a problem.
LossFunction loss_of(const Program& program, const Problem& problem);
// Columns of metrics.csv: the loss, the program's metrics, then accuracy and AUC, or R2, unless a metric has such a name.
std::vector<std::string> value_names(const Program& program, const Problem& problem);
std::size_t place_of(const std::vector<std::string>& names, const std::string& name);
// The values of value_names(). Afterwards numbers among the predictions are in the units of the data.
std::vector<double> values_of(const Program& program, const Problem& problem, const data::Source& source,
                              Predictions& predictions);
// "validation 0.1234, accuracy 0.912"
std::string text_of(const Program& program, const std::vector<std::string>& names, const std::vector<double>& values);

// The results of a command.
struct Findings {
  Problem problem{};
  Predictions predictions{};  // numbers in the units of the data
  data::SourcePtr source{};   // of the samples
  bool scored = false;
  std::vector<double> values{};  // for value_names(), if scored
  std::vector<EpochRow> epochs{};
  double majority = 0;                 // accuracy of always predicting the most frequent class
  std::optional<TargetMeans> means{};  // of the training's samples
  Reference::Predicted reference{};    // for the samples; without values if the program has no Reference
  bool is_of_training = false;         // true for the command `train`

  // score() fills these in for numbers:
  std::vector<RegressionScore> scores{};        // R2 is against the samples' own means
  std::vector<RegressionScore> against_mean{};  // compared with predicting `means`, if they are known
  std::vector<double> reference_mse{};          // empty: no Reference

  bool physical() const { return means && !means->scale.empty(); }
  std::string mean_of() const;  // whose means are used
};
void score(Findings& findings);
double r2_of(const RegressionScore& score);  // NaN if the truth does not vary
// A row for each sample: exp(output), normalised to the sum 1.
std::vector<double> probabilities(const Findings& findings);

// ---- what is written and printed

inline constexpr const char* predictions_file = "predictions.csv";
std::string picture_file(const Program& program);
void write_predictions(const std::filesystem::path& path, const Findings& findings);
// Prints tables of scores, or the first predictions.
void print_findings(const Program& program, const Findings& findings);
void draw(const std::filesystem::path& path, const Program& program, const Findings& findings);
// Writes predictions, picture and summary, prints the summary or the tables, then `text` and those of `files` that exist. `run`:
// the first keys of the summary. On one rank.
void report(const Program& program, const trainer::Options& options, const Outputs& out, Findings& findings,
            nlohmann::ordered_json run, const std::vector<std::string>& files, const std::string& text);
nlohmann::ordered_json to_json(const Value& value);

// ---- commands; each returns the exit code. Collective.

int describe(const Communicator& world, const Program& program, const TrainOptions& options);
int train(const Communicator& world, const Program& program, const TrainOptions& options);
int infer(const Communicator& world, const Program& program, const InferOptions& options);

}  // namespace mpigrad::trainer::program
