#pragma once
// Samples computed by a function and kept in memory: steps of small networks are too short to compute them in the meantime.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "examples/studies/scaling/tasks/task.h"

namespace mpigrad::scaling {

struct SampleSet {
  std::string name;  // for messages: "NAME [i]"
  std::int64_t count = 0;
  Shape extents{1, 1, 1};  // [D, H, W]
  std::int64_t channels = 1;
  // Writes sample i, row-major [D, H, W, C]. Called by several threads at once.
  using Make = std::function<void(std::int64_t sample, std::span<float> values)>;
};

// Calls body(0) to body(count - 1) on all threads, `at_once` in a row on each. The first exception is thrown at the end: none may
// leave a parallel region.
void for_each_sample(std::int64_t count, int at_once, const std::function<void(std::int64_t)>& body);

// Samples with one class each, which `make` returns.
data::SourcePtr classed(const SampleSet& set,
                        const std::function<std::int64_t(std::int64_t sample, std::span<float> values)>& make);
// Samples that are their own targets, in one row [D * H * W * C].
data::SourcePtr own_targets(const SampleSet& set, const SampleSet::Make& make);

// Numbers of training and test samples: those asked for, else the task's. Error: a negative number, or a folder, which tasks with
// computed data do not use.
std::pair<std::int64_t, std::int64_t> sample_numbers(const std::string& task, const TaskOptions& options, std::int64_t training,
                                                     std::int64_t test);

// The number of samples of a batch whose largest score is not that of their class.
double misclassified(const Tensor& scores, const Tensor& classes);

}  // namespace mpigrad::scaling
