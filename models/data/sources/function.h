#pragma once
// Samples that a function makes: simulated ones, or those of a format of one's own.

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "framework/tensor/layout.h"
#include "models/data/data_source.h"

namespace mpigrad::data {

struct FunctionSamples {
  std::int64_t size = 0;
  Shape extents;  // [D, H, W]
  std::int64_t channels = 1;
  // Writes the part `box` of [D, H, W] of sample `sample`, with all channels, row-major [d, h, w, C]. A rank asks for its part
  // alone, or for whole samples where they are shifted or transposed. Called by one thread at a time, in no order; the same
  // number must give the same values on every rank.
  std::function<void(std::int64_t sample, const Box& box, std::span<float> out)> values{};
  // A value for each of target_names; classes if `classes` says so.
  std::function<std::vector<double>(std::int64_t sample)> targets{};
  std::vector<std::string> target_names{"target"};
  bool classes = false;
  std::string name = "sample";  // for messages: "NAME [i]"
};

class FunctionSource : public Source {
 public:
  // Errors: no samples, no function, no targets.
  explicit FunctionSource(FunctionSamples samples);

  std::int64_t size() const override { return samples_.size; }
  const Shape& extents() const override { return samples_.extents; }
  std::int64_t channels() const override { return samples_.channels; }
  DType type() const override { return DType::float32; }
  Transform transform() const override { return Transform::none; }
  const std::vector<std::string>& target_names() const override { return samples_.target_names; }
  DType target_type() const override { return samples_.classes ? DType::int64 : DType::float32; }
  std::string name_of_sample(std::int64_t sample) const override;
  // `type` is float32 or float64. Errors, in the future: what the function throws; another number of targets than names.
  std::future<void> read_async(std::int64_t sample, std::span<const std::int64_t> begin, std::span<const std::int64_t> end,
                               DType type, void* out) const override;
  std::future<std::vector<double>> targets_async(std::int64_t sample) const override;
  void check(std::int64_t part, std::int64_t parts) const override;

 private:
  FunctionSamples samples_;
};

}  // namespace mpigrad::data
