#pragma once
// The pass over the data before the first step: it finds values that no network can process and files that cannot be read, and
// computes the fingerprint by which later runs recognise the data.

#include <cstdint>
#include <string>
#include <vector>

#include "models/data/sources/contents.h"
#include "models/trainer/run.h"

namespace mpigrad::trainer {

// The findings of the pass for some samples, the same on every grid and number of ranks.
struct DataContents {
  std::int64_t samples = 0, bytes = 0;
  std::uint64_t values = 0, targets = 0;  // data::Contents, summed over all ranks
  double seconds = 0;

  DataContents& operator+=(const DataContents& other);  // bytes, samples and seconds of several passes
  std::string remark() const;                           // for headlines: "1.2 GB read and checked in 0.6 s"
};
// Reads the samples once, the ranks sharing the work. UsageError on all ranks, whatever their number: the first sample that
// cannot be read or holds what data::ContentsOptions calls a flaw. Collective.
DataContents read_data(const Communicator& world, const data::Source& source, const std::vector<std::int64_t>& samples,
                       const data::ContentsOptions& options);
// For predictions. Reads floating-point samples, and all samples if options.cells is set, as read_data() does, because their
// values may be flawed; other samples are only opened (Source::check). Collective.
void check_data(const Communicator& world, const data::Source& source, const std::vector<std::int64_t>& samples,
                const data::ContentsOptions& options);

// Notes of weights and checkpoints: the contents of the samples that a training learned from and of those that it kept for
// validation or test.
inline constexpr const char *training_contents_note = "contents of training samples",
                            *kept_contents_note = "contents of kept samples";
// Adds the two notes of contents and data_note.
void add_contents(Notes& notes, const std::string& data, const DataContents& training, const DataContents* kept);
// is_of_number(): true if the note is of `samples` samples. is_of_values(): true if it is of these values, whatever their
// targets.
bool is_of_number(const std::string& note, std::int64_t samples);
bool is_of_values(const std::string& note, const DataContents& contents);

// Throws UsageError if `notes` are of other data than those that the checkpoint `file` was trained on. If the checkpoint has no
// notes of contents, rank 0 prints that once.
void require_same_contents(const Communicator& world, const std::string& file, const CheckpointInfo& info, const Notes& notes);

// Throws UsageError with the sample's name if a prediction is not finite.
void require_finite_predictions(const std::string& weights, const data::Source& source, const Predictions& predictions);

}  // namespace mpigrad::trainer
