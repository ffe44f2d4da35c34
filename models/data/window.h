#pragma once
// Windows of samples: at random places, some of them centred on a labelled cell, and the parts of them that each rank reads.

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "models/data/augment/part.h"
#include "models/data/data_augment.h"
#include "models/data/source.h"

namespace mpigrad::data {

// A window of every sample, at another place in each epoch.
struct Crop {
  Shape extents{};  // [D, H, W]; a smaller sample lies in the middle, with zeros around it
  // The fraction of windows, from 0 to 1, that are centred on (or, at the sample's ends, contain) a cell of a random class among
  // those present in the sample, class 0 excluded. For labels per cell; samples without such a class are cropped anywhere.
  double foreground = 0;
};

// Cells of a sample by class, for drawing: at most `most` of each class, each cell equally likely to be among them.
class ForegroundCells {
 public:
  static constexpr std::size_t most = 512;
  explicit ForegroundCells(SourcePtr source) : source_(std::move(source)) {}
  // By class, without class 0, labels below 0 (ignored cells) and absent classes: cell numbers in row-major order. The same on
  // every rank. Labels are read when a sample is first asked for. Not thread-safe.
  const std::vector<std::vector<std::int64_t>>& of(std::int64_t sample);

 private:
  SourcePtr source_;
  std::unordered_map<std::int64_t, std::vector<std::vector<std::int64_t>>> found_;
};

// The tones of samples, for changes of values that need the whole sample. The same on every rank.
class SampleTones {
 public:
  explicit SampleTones(SourcePtr source) : source_(std::move(source)) {}
  // Of each channel, transformed. Reads the sample when it is first asked for. Not thread-safe; the result stays where it is.
  const std::vector<augment::Tones>& of(std::int64_t sample);

 private:
  SourcePtr source_;
  std::unordered_map<std::int64_t, std::vector<augment::Tones>> found_;
};

// The place in the sample, of `extents`, where the window begins; negative where it begins before the sample. Depends only on the
// arguments.
std::array<std::int64_t, 3> draw_window(std::uint64_t seed, std::int64_t epoch, std::int64_t sample, const Shape& extents,
                                        const Crop& crop, ForegroundCells* foreground);
// The beginning of a centred window along one axis of n cells; for windows of at least n cells.
inline std::int64_t centred(std::int64_t n, std::int64_t window) { return -((window - n) / 2); }

// Converts pieces whose boxes are cells of the window into pieces of the sample, in which the window begins at `begin`; cells
// outside the sample are left out.
std::vector<Piece> pieces_in_sample(const std::vector<Piece>& pieces, const std::array<std::int64_t, 3>& begin,
                                    const Shape& extents);

// Reads a box of a sample [d, h, w, C] as `type`, transformed; cells outside the sample are zero. Reads on the source's queue and
// waits.
void read_window(const Source& source, std::int64_t sample, const Box& box, DType type, void* to);

}  // namespace mpigrad::data
