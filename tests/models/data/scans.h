#pragma once
// Samples of different extents, without files.

#include <array>
#include <cstdint>
#include <vector>

#include "framework/base/error.h"
#include "framework/tensor/random.h"
#include "models/data/source.h"

namespace mpigrad::testing {

// Volumes of several extents whose cells hold their position: channel a holds 1 + the coordinate along axis a. Labels are random
// from 0 to 2, except in cell (1, 2, 3), which has label 7.
class Scans : public data::Source {
 public:
  Scans() {
    type_.extents = {9, 12, 10}, type_.channels = 3, type_.same_extents = false;
    type_.targets = {.type = DType::int32, .shape = {}, .per_cell = true};
  }
  std::int64_t size() const override { return static_cast<std::int64_t>(extents.size()); }
  const data::SampleType& sample_type() const override { return type_; }
  Shape extents_of(std::int64_t sample) const override { return extents[static_cast<std::size_t>(sample)]; }
  void read(std::int64_t sample, const Box& box, std::byte* out) const override {
    cells(sample, box, [&, to = reinterpret_cast<float*>(out)](const std::array<std::int64_t, 3>& at) mutable {
      for (const auto place : at) *to++ = static_cast<float>(place + 1);
    });
  }
  void read_targets(std::int64_t sample, const Box& box, std::byte* out) const override {
    cells(sample, box, [&, to = reinterpret_cast<std::int32_t*>(out)](const auto& at) mutable { *to++ = label(sample, at); });
  }
  static std::int32_t label(std::int64_t sample, const std::array<std::int64_t, 3>& at) {
    if (at == std::array<std::int64_t, 3>{1, 2, 3}) return 7;
    const Philox random{11, static_cast<std::uint64_t>(sample)};
    return static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>((at[0] * 64 + at[1]) * 64 + at[2]), 3));
  }
  static inline const std::vector<Shape> extents{{7, 12, 5}, {9, 4, 10}, {3, 8, 9}, {8, 8, 8}, {2, 5, 4}};

 private:
  template <class F>
  void cells(std::int64_t sample, const Box& box, F f) const {
    const auto whole = whole_of(sample);
    for (int a = 0; a < 3; ++a)
      require(box.begin[a] >= 0 && box.begin[a] < box.end[a] && box.end[a] <= whole.end[a], "[test] {} of {}", to_string(box),
              whole.end);
    for (auto d = box.begin[0]; d < box.end[0]; ++d)
      for (auto h = box.begin[1]; h < box.end[1]; ++h)
        for (auto w = box.begin[2]; w < box.end[2]; ++w) f(std::array{d, h, w});
  }
  data::SampleType type_;
};

}  // namespace mpigrad::testing
