#pragma once
// Volumes in TFRecord files, as in MLPerf's CosmoFlow: records of tf.train.Example with a volume's bytes and its targets, one or
// several in each file.

#include <filesystem>

#include "models/data/source.h"

namespace mpigrad::data {

struct RecordOptions {
  std::string volume = "x", targets = "y";  // names in a record; targets may be ""
  Shape extents{};                          // [D, H, W]; none: a cube, derived from the number of bytes
  std::int64_t channels = 4;
  DType type = DType::int16;  // of the bytes, little-endian
  Transform transform = Transform::log1p;
  std::vector<std::string> target_names{};  // none: Omega_m, sigma_8, n_s, H_0 if there are four targets
  int threads = 2;                          // that read and unpack; 0: the thread that asks
};

// `path`: a file, or a folder of *.tfrecord and *.tfrecords, also followed by -00000-of-00008 and .gz (sorted by name; of N such
// files none may be missing); gzip is unpacked whatever a file is called. Records are read whole, checked and unpacked, and only
// the requested box is kept: for a grid, and for a file system, pack() them as HDF5, from which every rank reads only its block.
// If the first file has one record, all must; files with several are scanned once, when the source is made. Errors, with the
// file: missing, none in the folder, not TFRecord, truncated, a wrong checksum, not tf.train.Example, no such name, another
// number of bytes or targets than in the first record.
class RecordSource : public Source {
 public:
  explicit RecordSource(const std::filesystem::path& path, RecordOptions options = {});

  std::int64_t size() const override;
  const SampleType& sample_type() const override;
  void read(std::int64_t sample, const Box& box, std::byte* out) const override;
  void read_targets(std::int64_t sample, const Box& box, std::byte* out) const override;
  std::string name_of_sample(std::int64_t sample) const override;
  JobQueue& queue() const override;
  // Reads the beginning of every file.
  void check(std::int64_t part, std::int64_t parts) const override;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

// True if a file has a name that RecordSource reads: *.tfrecord or *.tfrecords, also followed by -00000-of-00008 and .gz. The
// file is not opened.
bool is_record_file(const std::filesystem::path& path);

}  // namespace mpigrad::data
