#pragma once
// Samples that are all in memory: what the small formats are read into. And what labels are.

#include <filesystem>

#include "models/data/augment/geometry.h"
#include "models/data/data_source.h"
#include "models/data/sources/bytes.h"

namespace mpigrad::data {

// One integer per sample: its class, or another class of it.
struct Labels {
  std::string name = "label";
  std::vector<std::int64_t> values;
};

struct Samples {
  std::filesystem::path file;  // for messages
  std::int64_t count = 0, channels = 1;
  Shape extents{1, 1, 1};  // [D, H, W]
  DType type = DType::uint8;
  Bytes values{};  // [count, D, H, W, C]
};

class MemorySource : public Source {
 public:
  // Error, by name: labels whose number is not that of the samples.
  MemorySource(Samples samples, std::vector<Labels> labels);

  std::int64_t size() const override { return samples_.count; }
  const Shape& extents() const override { return samples_.extents; }
  std::int64_t channels() const override { return samples_.channels; }
  DType type() const override { return samples_.type; }
  Transform transform() const override { return samples_.type == DType::uint8 ? Transform::unit : Transform::none; }
  const std::vector<std::string>& target_names() const override { return names_; }
  DType target_type() const override { return DType::int64; }
  bool in_memory() const override { return true; }
  std::string name_of_sample(std::int64_t sample) const override;
  std::future<void> read_async(std::int64_t sample, std::span<const std::int64_t> begin, std::span<const std::int64_t> end,
                               DType type, void* out) const override;
  std::future<std::vector<double>> targets_async(std::int64_t sample) const override;
  void check(std::int64_t, std::int64_t) const override {}

 private:
  Samples samples_;
  std::vector<Labels> labels_;
  std::vector<std::string> names_;
};

// Labels of `samples` samples, or an Error that names the file of either; so for classes of magnitude 2^53 or more.
void require_labels(const Labels& labels, std::int64_t samples, const std::string& of);
// Every sample with other extents, of the same type.
Samples fitted(Samples samples, const Shape& extents, augment::Fit fit);
// One sample [D, H, W, C] of `extents` as it is stored, with the extents `to` instead. Where nothing is scaled, all its bits
// stay; else it is resized in double and rounded to the nearest number of its type, so that integers up to 2^53 are not changed
// on the way. Labels are none of a sample's values and are never resized.
void fit_stored(const std::byte* values, DType type, const Shape& extents, std::int64_t channels, const Shape& to,
                augment::Fit fit, std::byte* out);

}  // namespace mpigrad::data
