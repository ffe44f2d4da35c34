#pragma once
// The parts of trainer::run() (models/mpigrad/trainer.h).

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "models/mpigrad/trainer.h"
#include "models/trainer/infer.h"
#include "models/trainer/samples.h"

namespace mpigrad::trainer::program {

struct TrainOptions : trainer::Options {
  SampleOptions source{};
  std::string train_group = "train", validation_group = "val", validation_data;
  double validation_fraction = 0;
  std::uint64_t split_seed = 1;
  std::map<std::string, Value> values{};  // of the settings
  const Keys* keys = nullptr;             // bound to these options
};
// evaluate and predict.
struct InferOptions : trainer::InferOptions {
  SampleOptions source{};
};

inline constexpr SplitNotes split_notes{
    .samples = "all samples", .fraction = "validation fraction", .seed = "split seed", .kept = "validation"};
inline constexpr const char *problem_note = "problem", *predictions_file = "predictions.csv";
std::string to_note(const Problem& problem);
// Error: the file has no such note, or one that to_note did not write.
Problem problem_of(const std::string& weights, const CheckpointInfo& info);

// Fills in what the samples say of the problem. Errors: no targets, targets of cells, negative classes.
void describe_samples(Problem& problem, const data::Source& source);
// Error: samples of other extents, channels or targets (looked at where `scored`) than the problem's, which is that of `of`.
void require_fitting(const Problem& problem, const data::Source& source, bool scored, const std::string& of);
data::SourcePtr open(const Program& program, const SampleOptions& options, const std::string& path, const std::string& part,
                     bool targets);

// validation_loss and the metrics, and their values for these predictions.
std::vector<std::string> value_names(const Program& program);
std::vector<double> values_of(const Program& program, const data::Source& source, const Predictions& predictions);

// Each returns the exit code. Collective.
int describe(const Communicator& world, const Program& program, const TrainOptions& options);
int train(const Communicator& world, const Program& program, const TrainOptions& options);
int infer(const Communicator& world, const Program& program, const InferOptions& options);

// What a command writes beside what every training does: predictions, the picture, the summary.
std::vector<std::string> files_of(const Program& program);
// Writes them and prints the summary, or values and the first predictions, then `text` and which of `files` there are. Of one
// rank.
void report(const Program& program, const trainer::Options& options, const Outputs& out, const Results& results,
            nlohmann::ordered_json run, const std::vector<std::string>& files, const std::string& text);

}  // namespace mpigrad::trainer::program
