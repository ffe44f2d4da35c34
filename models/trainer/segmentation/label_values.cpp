#include "models/trainer/segmentation/label_values.h"

#include <algorithm>
#include <cstddef>

namespace mpigrad::trainer::segmenting {

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

LabelValues foreground_of(const std::map<std::int64_t, LabelValues>& labels) {
  LabelValues result;
  for (const auto& [label, values] : labels)
    if (label > 0 && !values.means.empty()) result.add(values);
  return result;
}

CellValues::CellValues(const std::vector<std::int32_t>& labels, const Shape& extents, std::int64_t samples)
    : labels_(labels), extents_(extents), wanted_(samples), first_{extents[0], extents[1], extents[2]} {
  std::int64_t foreground = 0;
  each([&](std::size_t i, LabelValues& entry) { ++entry.cells, foreground += labels_[i] > 0; });
  if (samples == 0 || foreground == 0) return;
  std::int64_t passed = 0;
  const auto place = [&](std::int64_t sample) {
    return static_cast<std::int64_t>((static_cast<double>(sample) + 0.5) * static_cast<double>(foreground) /
                                     static_cast<double>(samples));
  };
  for (std::size_t i = 0; i < labels_.size(); ++i) {
    if (labels_[i] <= 0) continue;
    while (static_cast<std::int64_t>(sampled_.size()) < samples && place(static_cast<std::int64_t>(sampled_.size())) == passed)
      sampled_.push_back(i);
    ++passed;
  }
}

// Calls f(cell, entry of its label) for all cells. Neighbours mostly have the same label.
template <class F>
void CellValues::each(F f) {
  constexpr std::size_t small = 1 << 12;
  std::vector<LabelValues*> known(small);
  LabelValues* entry = nullptr;
  for (std::size_t i = 0; i < labels_.size(); ++i) {
    const auto label = labels_[i];
    if (i == 0 || label != labels_[i - 1]) {
      const bool direct = label >= 0 && static_cast<std::size_t>(label) < small;
      entry = direct ? known[static_cast<std::size_t>(label)] : nullptr;
      if (entry == nullptr) entry = &by_label_[label];
      if (direct) known[static_cast<std::size_t>(label)] = entry;
    }
    f(i, *entry);
  }
}

void CellValues::widen_box(const std::vector<float>& values, std::int64_t channels) {
  const auto& e = extents_;
  for (std::int64_t cell = 0; cell < e.elements(); ++cell) {
    const auto* at = values.data() + cell * channels;
    if (std::all_of(at, at + channels, [](float x) { return x == 0; })) continue;
    const std::array<std::int64_t, 3> place{cell / e[2] / e[1], cell / e[2] % e[1], cell % e[2]};
    for (std::size_t a = 0; a < 3; ++a) first_[a] = std::min(first_[a], place[a]), last_[a] = std::max(last_[a], place[a]);
  }
}

double CellValues::nonzero() const {
  double part = 1;
  for (std::size_t a = 0; a < 3; ++a)
    part *= static_cast<double>(std::max<std::int64_t>(0, last_[a] - first_[a] + 1)) /
            static_cast<double>(extents_[static_cast<int>(a)]);
  return part;
}

void CellValues::add(const std::vector<float>& values, std::int64_t channels) {
  const auto cells = static_cast<std::size_t>(extents_.elements()), all = static_cast<std::size_t>(channels);
  complete_ = complete_ && labels_.size() == cells && values.size() == cells * all;
  if (!complete_) return;
  for (std::size_t c = 0; c < all; ++c) {
    const auto value = [&](std::size_t cell) { return static_cast<double>(values[cell * all + c]); };
    for (auto& [label, entry] : by_label_) entry.means.push_back(0), entry.variances.push_back(0);
    each([&](std::size_t i, LabelValues& entry) { entry.means.back() += value(i); });
    for (auto& [label, entry] : by_label_) entry.means.back() /= static_cast<double>(entry.cells);
    each([&](std::size_t i, LabelValues& entry) {
      const double apart = value(i) - entry.means.back();
      entry.variances.back() += apart * apart;
    });
    for (auto& [label, entry] : by_label_) entry.variances.back() /= static_cast<double>(entry.cells);
    if (sampled_.empty()) continue;
    auto& of = samples_.emplace_back();
    for (const auto cell : sampled_) of.push_back(value(cell));
  }
  if (wanted_ > 0) widen_box(values, channels);
}

}  // namespace mpigrad::trainer::segmenting
