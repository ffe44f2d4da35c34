#pragma once
// The cells of a volume by their labels: how many there are, and their values.

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "framework/tensor/shape.h"

namespace mpigrad::trainer::segmenting {

struct LabelValues {
  std::int64_t cells = 0;
  std::vector<double> means{}, variances{};  // of each channel; empty if the values are not known
  // Adds cells whose values are known.
  void add(const LabelValues& other);
};

// All cells with a label above 0 whose values are known.
LabelValues foreground_of(const std::map<std::int64_t, LabelValues>& labels);

// Takes the values of a volume file by file, so that one file at a time is in memory.
class CellValues {
 public:
  // `labels` [D, H, W] stay where they are. `samples`: how many values of cells with a label above 0 are taken of each channel,
  // at equal distances in the order of these cells; 0: none, and the box around cells that are not 0 is not looked for.
  CellValues(const std::vector<std::int32_t>& labels, const Shape& extents, std::int64_t samples);
  CellValues(const CellValues&) = delete;
  CellValues& operator=(const CellValues&) = delete;
  // Values [D, H, W, C] of the next channels. If they are of other cells, complete() is false from then on.
  void add(const std::vector<float>& values, std::int64_t channels);

  bool complete() const { return complete_; }
  const std::map<std::int64_t, LabelValues>& by_label() const { return by_label_; }
  const std::vector<std::vector<double>>& samples() const { return samples_; }
  // The part of the volume that the smallest box around its cells that are not 0 takes.
  double nonzero() const;

 private:
  template <class F>
  void each(F f);
  void widen_box(const std::vector<float>& values, std::int64_t channels);

  const std::vector<std::int32_t>& labels_;
  Shape extents_;
  std::int64_t wanted_;
  std::map<std::int64_t, LabelValues> by_label_{};
  std::vector<std::size_t> sampled_{};  // cells
  std::vector<std::vector<double>> samples_{};
  std::array<std::int64_t, 3> first_, last_{-1, -1, -1};
  bool complete_ = true;
};

}  // namespace mpigrad::trainer::segmenting
