#include "models/trainer/segmentation/label_values.h"

#include <algorithm>
#include <cstddef>

namespace mpigrad::trainer::segmenting {
namespace {

// The value of a cell in one channel of the file.
double value_of(const FileValues& file, std::size_t cell, std::int64_t channel) {
  return static_cast<double>(file.values[cell * static_cast<std::size_t>(file.channels) + static_cast<std::size_t>(channel)]);
}

}  // namespace

void LabelValues::add(const LabelValues& other) {
  if (other.cells == 0) return;
  const double all = static_cast<double>(cells + other.cells), part = static_cast<double>(other.cells) / all;
  means.resize(other.means.size()), variances.resize(other.means.size());
  for (std::size_t c = 0; c < means.size(); ++c) {
    const double apart = other.means[c] - means[c];
    means[c] += part * apart;
    variances[c] += part * (other.variances[c] - variances[c]) + part * (1 - part) * apart * apart;
  }
  cells += other.cells;
}

std::map<std::int64_t, LabelValues> values_by_label(const std::vector<std::int32_t>& labels,
                                                    const std::vector<FileValues>& files) {
  std::map<std::int64_t, LabelValues> result;
  // The entry of each cell; neighbours mostly have the same label.
  std::vector<LabelValues*> entries(labels.size());
  for (std::size_t i = 0; i < labels.size(); ++i) {
    entries[i] = i > 0 && labels[i] == labels[i - 1] ? entries[i - 1] : &result[labels[i]];
    ++entries[i]->cells;
  }
  for (const auto& file : files)
    for (std::int64_t c = 0; c < file.channels; ++c) {
      for (auto& [label, entry] : result) entry.means.push_back(0), entry.variances.push_back(0);
      for (std::size_t i = 0; i < entries.size(); ++i) entries[i]->means.back() += value_of(file, i, c);
      for (auto& [label, entry] : result) entry.means.back() /= static_cast<double>(entry.cells);
      for (std::size_t i = 0; i < entries.size(); ++i) {
        const double apart = value_of(file, i, c) - entries[i]->means.back();
        entries[i]->variances.back() += apart * apart;
      }
      for (auto& [label, entry] : result) entry.variances.back() /= static_cast<double>(entry.cells);
    }
  return result;
}

LabelValues foreground_of(const std::map<std::int64_t, LabelValues>& labels) {
  LabelValues result;
  for (const auto& [label, values] : labels)
    if (label > 0 && !values.means.empty()) result.add(values);
  return result;
}

std::vector<std::vector<double>> foreground_samples(const std::vector<std::int32_t>& labels, const std::vector<FileValues>& files,
                                                    std::int64_t count) {
  std::vector<std::size_t> cells;
  for (std::size_t i = 0; i < labels.size(); ++i)
    if (labels[i] > 0) cells.push_back(i);
  std::vector<std::vector<double>> result;
  if (cells.empty()) return result;
  const double step = static_cast<double>(cells.size()) / static_cast<double>(count);
  for (const auto& file : files)
    for (std::int64_t c = 0; c < file.channels; ++c) {
      auto& of = result.emplace_back();
      for (std::int64_t i = 0; i < count; ++i)
        of.push_back(value_of(file, cells[static_cast<std::size_t>((static_cast<double>(i) + 0.5) * step)], c));
    }
  return result;
}

}  // namespace mpigrad::trainer::segmenting
