#pragma once
// What programs do with the weights of a training: they score them on samples with known targets, or predict others. Which
// network the weights are of, their file says.

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "models/data/data.h"
#include "models/trainer/data_check.h"
#include "models/trainer/run.h"

namespace mpigrad::trainer {

struct InferOptions : Options {
  bool scored = false;        // evaluate; else predict
  std::string part = "auto";  // of evaluate
};
// Keys of both commands except data.path; `kept` is what a training calls the samples that it keeps: validation or test.
void add_infer_keys(Keys& keys, InferOptions& options, bool scored, const std::string& kept);
// Of these the keys of weights, precision and ONNX.
void add_weights_keys(Keys& keys, Options& options);
// What options cannot be together. Throws UsageError.
void check(const InferOptions& options);
// For headlines: ", averaged weights (decay 0.99)" where it is those that are computed with. Error: --last-weights of a file that
// has averaged ones only.
std::string averages_remark(const Options& options, const CheckpointInfo& info);
// Parameters are computed with in the type in which they are stored, float32 where that has 16 bits. UsageError: --precision
// beside float64.
void take_stored_dtype(Options& options);

// The note called `name`. Error: none, so that nobody knows what the weights are of.
const std::string& note_of(const std::string& weights, const CheckpointInfo& info, const std::string& name);

// How a training divided its samples with data::split_train_test: under these names its notes have their number, the fraction and
// the seed, and the fingerprint of those that it kept.
struct SplitNotes {
  const char *samples, *fraction, *seed, *kept;
};
// None: these are not the samples of that training, or it divided none. The values of those that it kept say so; of weights that
// are older than notes of contents number and names, and rank 0 says that once. Reads the samples that may be those kept;
// UsageError: as of read_data. Collective.
std::optional<data::Split> split_of(const Communicator& world, const std::string& weights, const CheckpointInfo& info,
                                    const data::Source& source, const SplitNotes& notes, const data::ContentsOptions& reading);
// The samples that --part says, all of which have been read and checked. `trained_on`: how many of them are no test. UsageError:
// as of read_data; those that the training kept of data that are not its own. Collective.
struct Part {
  std::vector<std::int64_t> samples;
  std::int64_t trained_on = 0;
  bool kept = false;  // these are those that the training kept
  // For headlines.
  const char* remark() const { return kept ? ", which the training kept" : ""; }
};
Part part_of(const Communicator& world, const InferOptions& options, const CheckpointInfo& info, const data::Source& source,
             const SplitNotes& notes, const data::ContentsOptions& reading);

// What a program predicts with, once it knows its weights' notes.
struct Subject {
  std::unique_ptr<nn::Module> net;  // not built
  std::string headline{};           // printed before the first prediction
};
struct Inference {
  std::string program;
  std::vector<std::string> files;
  SplitNotes notes;
  data::Transform transform = data::Transform::of_source;
  // Of this rank for itself; errors are shared.
  std::function<data::SourcePtr(const CheckpointInfo& info)> open;
  std::function<Subject(const Part& part)> prepare;
  // With the weights loaded, before anything is written: what else the report needs of these samples. Collective.
  std::function<void(const Part& part)> measure{};
  // On rank 0, at the end: what the summary begins with, and the last line that is printed.
  std::function<void(const Outputs& out, const Predictions& predictions, nlohmann::ordered_json run, const std::string& text)>
      report;
};
// What that asks for, if it does, of a network with its weights, for volumes [1, D, H, W, C]. Rank 0 writes. Collective.
void write_onnx(const Communicator& world, const Options& options, nn::Module& net, const Shape& input);
// Predicts every sample once, whatever the batch. Returns the exit code. Collective.
int infer(const Communicator& world, InferOptions options, const Inference& inference);

// The first of many, for tables that are printed.
inline constexpr std::size_t most_rows = 12;

}  // namespace mpigrad::trainer
