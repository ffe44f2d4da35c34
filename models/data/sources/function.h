#pragma once
// Samples that a function makes: simulated ones, or those of a format of one's own.

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "models/data/source.h"

namespace mpigrad::data {

struct FunctionSamples {
  std::int64_t size = 0;
  Shape extents;  // [D, H, W]
  std::int64_t channels = 1;
  // Writes the part `box` of [D, H, W] of sample `sample`, with all channels, row-major [d, h, w, C]. A rank asks for its part
  // alone, or for whole samples where they are shifted or transposed. Called by one thread at a time, the process's I/O thread
  // beside the step and with one thread of OpenMP, in no order; the same number must give the same values on every rank.
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
  const SampleType& sample_type() const override { return type_; }
  // Errors: what the functions throw; another number of targets than names; targets that are no classes where they should be.
  void read(std::int64_t sample, const Box& box, std::byte* out) const override;
  void read_targets(std::int64_t sample, const Box& box, std::byte* out) const override;
  std::string name_of_sample(std::int64_t sample) const override;

 private:
  FunctionSamples samples_;
  SampleType type_;
};

}  // namespace mpigrad::data
