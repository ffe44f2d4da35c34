#pragma once
// The cells of one label: how many there are, and their values.

#include <cstdint>
#include <map>
#include <vector>

namespace mpigrad::trainer::segmenting {

struct LabelValues {
  std::int64_t cells = 0;
  std::vector<double> means{}, variances{};  // of each channel; empty if the values are not known
  // Adds cells whose values are known.
  void add(const LabelValues& other);
};

// Values [D, H, W, C] of a file.
struct FileValues {
  std::vector<float> values{};
  std::int64_t channels = 0;
};

// The cells of each label. `files`: their channels come one after the other; without files no values are known.
std::map<std::int64_t, LabelValues> values_by_label(const std::vector<std::int32_t>& labels,
                                                    const std::vector<FileValues>& files);

// All cells with a label above 0 whose values are known.
LabelValues foreground_of(const std::map<std::int64_t, LabelValues>& labels);

// Of each channel `count` values of cells with a label above 0, at equal distances in the order of these cells.
std::vector<std::vector<double>> foreground_samples(const std::vector<std::int32_t>& labels, const std::vector<FileValues>& files,
                                                    std::int64_t count);

}  // namespace mpigrad::trainer::segmenting
