#pragma once
// Windows of samples: at random places, some of them where something is labelled, and what of them each rank reads.

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "models/data/data_augment.h"
#include "models/data/source.h"

namespace mpigrad::data {

// A part of every sample, at another place in each epoch.
struct Crop {
  Shape extents{};  // [D, H, W]; where a sample is smaller it lies in the middle, zeros around it
  // How many of the windows, from 0 to 1, have in their middle (or, at the sample's ends, have in them) a cell of a class drawn
  // from those that the sample has, class 0 not counted. For labels of cells; samples that have no such class are cropped
  // anywhere.
  double foreground = 0;
};

// Which cells of a sample belong to which class: for drawing, at most `most` of each class, all alike likely to be among them.
class ForegroundCells {
 public:
  static constexpr std::size_t most = 512;
  explicit ForegroundCells(SourcePtr source) : source_(std::move(source)) {}
  // By class, without class 0 and classes that do not occur; numbers of cells in row-major order. The same on every rank; labels
  // are read when a sample is first asked for. For one thread.
  const std::vector<std::vector<std::int64_t>>& of(std::int64_t sample);

 private:
  SourcePtr source_;
  std::unordered_map<std::int64_t, std::vector<std::vector<std::int64_t>>> found_;
};

// Where the window of a sample of `extents` begins, negative where it begins before the sample: a function of its arguments
// alone.
std::array<std::int64_t, 3> draw_window(std::uint64_t seed, std::int64_t epoch, std::int64_t sample, const Shape& extents,
                                        const Crop& crop, ForegroundCells* foreground);
// Along one axis of n cells, in the middle: of a window that is not smaller.
inline std::int64_t centred(std::int64_t n, std::int64_t window) { return -((window - n) / 2); }

// Pieces of a window, whose boxes are the window's cells, as pieces of the sample in which it begins at `begin`; what lies
// outside the sample is left out.
std::vector<Piece> pieces_in_sample(const std::vector<Piece>& pieces, const std::array<std::int64_t, 3>& begin,
                                    const Shape& extents);

// A box of a sample [d, h, w, C], some or all of which may lie outside it, where there are zeros: as `type`, transformed. Reads
// where the source wants it and waits.
void read_window(const Source& source, std::int64_t sample, const Box& box, DType type, void* to);

}  // namespace mpigrad::data
