#include "examples/studies/scaling/tasks/sample_set.h"

#include <algorithm>
#include <cmath>
#include <exception>

#include "models/data/sources/memory.h"
#include "models/trainer/tool/together.h"

namespace mpigrad::scaling {
namespace {

struct Values {
  explicit Values(const SampleSet& set)
      : elements(static_cast<std::size_t>(set.extents.elements() * set.channels)),
        bytes(static_cast<std::size_t>(set.count) * elements * sizeof(float)) {}
  std::span<float> of(std::int64_t sample) {
    return {reinterpret_cast<float*>(bytes.data()) + static_cast<std::size_t>(sample) * elements, elements};
  }
  std::size_t elements;
  data::Bytes bytes;
};

data::Samples samples_of(const SampleSet& set, Values values) {
  return {.file = set.name,
          .count = set.count,
          .channels = set.channels,
          .extents = set.extents,
          .type = DType::float32,
          .values = std::move(values.bytes)};
}

}  // namespace

void for_each_sample(std::int64_t count, int at_once, const std::function<void(std::int64_t)>& body) {
  std::exception_ptr failure;
#pragma omp parallel for schedule(dynamic, at_once)
  for (std::int64_t i = 0; i < count; ++i) {
    try {
      body(i);
    } catch (...) {
#pragma omp critical(scaling_samples)
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

data::SourcePtr classed(const SampleSet& set,
                        const std::function<std::int64_t(std::int64_t sample, std::span<float> values)>& make) {
  Values values(set);
  data::Labels labels{.name = "class", .values = std::vector<std::int64_t>(static_cast<std::size_t>(set.count))};
  for_each_sample(set.count, 16, [&](std::int64_t i) { labels.values[static_cast<std::size_t>(i)] = make(i, values.of(i)); });
  return std::make_shared<data::MemorySource>(samples_of(set, std::move(values)), std::vector{std::move(labels)});
}

data::SourcePtr own_targets(const SampleSet& set, const SampleSet::Make& make) {
  Values values(set);
  for_each_sample(set.count, 16, [&](std::int64_t i) { make(i, values.of(i)); });
  data::Targets targets{.type = {.type = DType::float32, .shape = {static_cast<std::int64_t>(values.elements)}},
                        .values = values.bytes};
  return std::make_shared<data::MemorySource>(samples_of(set, std::move(values)), std::move(targets));
}

std::pair<std::int64_t, std::int64_t> sample_numbers(const std::string& task, const TaskOptions& options, std::int64_t training,
                                                     std::int64_t test) {
  if (!options.folder.empty()) throw tool::UsageError(fmt::format("the task {} makes its samples; a folder is for images", task));
  const auto chosen = [&](std::int64_t asked, std::int64_t own, const char* what) {
    if (asked < 0) throw tool::UsageError(fmt::format("{}: {} {} samples", task, asked, what));
    return asked > 0 ? asked : own;
  };
  return {chosen(options.training, training, "training"), chosen(options.test, test, "test")};
}

double misclassified(const Tensor& scores, const Tensor& classes) {
  const auto n = static_cast<std::size_t>(classes.elements());
  const auto values = scores.to_vector(), truth = classes.to_vector();
  const auto width = n == 0 ? 0 : values.size() / n;
  double wrong = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const auto row = values.begin() + static_cast<std::ptrdiff_t>(i * width), end = row + static_cast<std::ptrdiff_t>(width);
    // If a score is NaN, none is the largest.
    const bool numbers = std::none_of(row, end, [](double x) { return std::isnan(x); });
    wrong += numbers && static_cast<double>(std::max_element(row, end) - row) == truth[i] ? 0 : 1;
  }
  return wrong;
}

}  // namespace mpigrad::scaling
