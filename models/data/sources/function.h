#pragma once
// Samples computed by a function: simulated ones, or those of a format of your own.

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
  // Writes the box `box` of [D, H, W] of sample `sample`, with all channels, row-major [d, h, w, C]. A rank asks only for its
  // block, or for whole samples where they are shifted or transposed. Called by one thread at a time, the process's I/O thread,
  // with one OpenMP thread, during the step and in any order; the same number must give the same values on every rank.
  std::function<void(std::int64_t sample, const Box& box, std::span<float> out)> values{};
  // One value for each of target_names; class numbers if `classes` is true.
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
  // Errors: exceptions of the functions; another number of targets than names; targets that are not classes where they should be.
  void read(std::int64_t sample, const Box& box, std::byte* out) const override;
  void read_targets(std::int64_t sample, const Box& box, std::byte* out) const override;
  std::string name_of_sample(std::int64_t sample) const override;

 private:
  FunctionSamples samples_;
  SampleType type_;
};

}  // namespace mpigrad::data
