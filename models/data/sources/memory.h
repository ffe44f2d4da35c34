#pragma once
// Samples in memory, the result of reading the small formats; labels.

#include <filesystem>
#include <optional>

#include "framework/tensor/tensor.h"
#include "models/data/augment/geometry.h"
#include "models/data/source.h"
#include "models/data/sources/bytes.h"

namespace mpigrad::data {

// One integer per sample: its class, or another of its classes.
struct Labels {
  std::string name = "label";
  std::vector<std::int64_t> values;
};

struct Samples {
  std::filesystem::path file;  // for messages
  std::int64_t count = 0, channels = 1;
  Shape extents{1, 1, 1};  // [D, H, W]
  DType type = DType::uint8;
  Bytes values{};                        // [count, D, H, W, C]
  std::optional<Transform> transform{};  // none: unit for bytes, else none
};

// Targets of all samples: [count, shape...], or, per cell, [count, D, H, W, shape...].
struct Targets {
  TargetType type{};
  Bytes values{};
};

class MemorySource : public Source {
 public:
  // Errors, by name: no samples; values or targets that do not match the number of samples.
  MemorySource(Samples samples, Targets targets);
  // With classes. Error, by name: labels that do not match the number of samples.
  MemorySource(Samples samples, const std::vector<Labels>& labels);

  std::int64_t size() const override { return samples_.count; }
  const SampleType& sample_type() const override { return type_; }
  void read(std::int64_t sample, const Box& box, std::byte* out) const override;
  void read_targets(std::int64_t sample, const Box& box, std::byte* out) const override;
  std::string name_of_sample(std::int64_t sample) const override;
  bool in_memory() const override { return true; }

 private:
  void validate() const;

  Samples samples_;
  Targets targets_;
  SampleType type_;
};

struct TensorsOptions {
  Transform transform = Transform::of_source;  // of_source: unit for bytes, else none
  bool per_cell = false;                       // targets [n, D, H, W, ...]: labels of the volumes' cells
  std::vector<std::string> target_names{};     // one for each element of a row; none: "target 0", ...
  std::string name = "tensor";                 // for messages: "NAME [i]"
};
// Samples [n, D, H, W, C] with targets [n, ...] of any shape and type (integers are classes): copies of two tensors on the host,
// of float32, float64, integers or booleans. Errors: other shapes and types, targets for another number of samples or cells.
SourcePtr from_tensors(const Tensor& volumes, const Tensor& targets, const TensorsOptions& options = {});

// Error, with both files: the number of labels is not `samples`. Error: classes of magnitude 2^53 or more.
void require_labels(const Labels& labels, std::int64_t samples, const std::string& of);
// Every sample fitted to other extents, with the same type.
Samples fitted(Samples samples, const Shape& extents, augment::Fit fit);
// Fits one sample [D, H, W, C] of `extents`, as stored, to the extents `to`. Where nothing is scaled, all its bits stay; else it
// is resized in double and rounded to the nearest number of its type, so that integers up to 2^53 are not changed on the way.
// Labels are not values of a sample and are never resized.
void fit_stored(const std::byte* values, DType type, const Shape& extents, std::int64_t channels, const Shape& to,
                augment::Fit fit, std::byte* out);

}  // namespace mpigrad::data
