#pragma once
// The commands evaluate and predict: they score the weights of a training on samples with known targets, or predict others. The
// file of weights says which network they belong to.

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
  bool scored = false;        // true: evaluate; false: predict
  std::string part = "auto";  // --part of evaluate
};
// Keys of both commands except data.path; `kept` is the training's name for the samples that it keeps: validation or test.
void add_infer_keys(Keys& keys, InferOptions& options, bool scored, const std::string& kept);
// The keys of weights, precision and ONNX among them.
void add_weights_keys(Keys& keys, Options& options);
// Throws UsageError if options exclude each other.
void check(const InferOptions& options);
// For headlines: ", averaged weights (decay 0.99)" if averaged weights are used. Error: --last-weights of a file that has only
// averaged ones.
std::string averages_remark(const Options& options, const CheckpointInfo& info);
// Sets the type of computation: that of the stored parameters, or float32 if they have 16 bits. UsageError: --precision together
// with float64 weights.
void take_stored_dtype(Options& options);

// The note called `name`. Error if there is none: the network of the weights is unknown then.
const std::string& note_of(const std::string& weights, const CheckpointInfo& info, const std::string& name);

// How a training divides its samples: a random part is kept, or, with folds, one of so many equal parts.
struct Division {
  double fraction = 0.2;
  std::uint64_t seed = 1;
  std::int64_t folds = 0, fold = 1;  // folds 0: the fraction; folds are numbered from 1
};
// The same for the same arguments; every sample is kept in one of the folds. Error: more folds than samples, a fold that does not
// exist.
data::Split split(std::int64_t samples, const Division& division);
// Of the note called SplitNotes::fraction: "0.2", or "fold 2 of 5".
std::string to_note(const Division& division);

// How a training divided its samples: the names of the notes with number of samples, fraction, seed,
// and fingerprint of the samples kept.
struct SplitNotes {
  const char *samples, *fraction, *seed, *kept;
};
// The training's split of these samples; none if they are not the samples of that training, or if it divided none. The contents
// of the kept samples decide; for older weights without notes of contents, their number and names decide, and rank 0 prints that
// once. Reads the samples that may be those kept. UsageError: as read_data. Collective.
std::optional<data::Split> split_of(const Communicator& world, const std::string& weights, const CheckpointInfo& info,
                                    const data::Source& source, const SplitNotes& notes, const data::ContentsOptions& reading);
// The samples of --part, all read and checked. `trained_on`: how many of them the training learned from. UsageError: as
// read_data; --part asks for kept samples of data that are not the training's. Collective.
struct Part {
  std::vector<std::int64_t> samples;
  std::int64_t trained_on = 0;
  bool kept = false;  // true: the samples that the training kept
  // For headlines.
  const char* remark() const { return kept ? ", which the training kept" : ""; }
};
Part part_of(const Communicator& world, const InferOptions& options, const CheckpointInfo& info, const data::Source& source,
             const SplitNotes& notes, const data::ContentsOptions& reading);

// A network to predict with, chosen by the notes of its weights.
struct Subject {
  std::unique_ptr<nn::Module> net;  // not built
  std::string headline{};           // printed before the first prediction
};
struct Inference {
  std::string program;
  std::vector<std::string> files;
  SplitNotes notes;
  data::Transform transform = data::Transform::of_source;
  // Called on each rank for itself; errors are shared.
  std::function<data::SourcePtr(const CheckpointInfo& info)> open;
  std::function<Subject(const Part& part)> prepare;
  // Called with the weights loaded, before anything is written: computes what else the report needs of these samples. Collective.
  std::function<void(const Part& part)> measure{};
  // Called on rank 0, at the end. `run`: the first keys of the summary; `text`: the last line to print.
  std::function<void(const Outputs& out, const Predictions& predictions, nlohmann::ordered_json run, const std::string& text)>
      report;
};
// Writes the network with its weights as ONNX if options.onnx names a file, for volumes [1, D, H, W, C]. Rank 0 writes.
// Collective.
void write_onnx(const Communicator& world, const Options& options, nn::Module& net, const Shape& input);
// Predicts every sample once, for any batch size. Returns the exit code. Collective.
int infer(const Communicator& world, InferOptions options, const Inference& inference);

// The most rows that a printed table has.
inline constexpr std::size_t most_rows = 12;

}  // namespace mpigrad::trainer
