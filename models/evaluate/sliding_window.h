#pragma once
// Segmentation of volumes of any extents by networks trained on windows: runs the networks on overlapping windows; the result for
// a cell is the weighted mean over all windows that contain it.

#include <vector>

#include "models/data/source.h"
#include "models/evaluate/window_options.h"

namespace mpigrad::segmentation {

// Probabilities [D, H, W, K] of one sample, softmax or sigmoid of the networks' scores [N, D, H, W, K]: float32, on the CPU, a
// constant, stored on every rank of the grid. Collective over the grid; networks are in evaluation mode meanwhile. Errors, on all
// ranks: those of reading the sample; scores of another shape, or not finite.
Tensor sliding_window(const Ensemble& nets, const data::Source& source, std::int64_t sample, const SlidingWindowOptions& options);
Tensor sliding_window(nn::Module& net, const data::Source& source, std::int64_t sample, const SlidingWindowOptions& options);
// The class of the largest probability in each cell, the first one if several are equal: int32 [D, H, W] of float32 [D, H, W, K]
// on the CPU.
Tensor most_likely(const Tensor& probabilities);

// The most likely class in each cell, or, of regions, the class that the last region with a probability above 1/2 writes, 0 if
// there is none. The cells are those of `extents` [D, H, W] cells that cover the same volume as the sample's cells, with
// probabilities interpolated linearly between the sample's cells: row-major on rank 0 of the grid, empty on the other ranks. No
// rank stores the probabilities of the volume: each has the sums of some rows and columns, and only of the planes that windows
// have not finished, so that its memory falls with the number of ranks (sliding_window_memory). A result does not depend on the
// grid, but for the rounding of the network. Otherwise as sliding_window(). Error: the regions do not write a class each.
std::vector<std::int32_t> sliding_window_classes(const Ensemble& nets, const data::Source& source, std::int64_t sample,
                                                 const Shape& extents, const SlidingWindowOptions& options);

// Bytes of memory of sliding_window_classes() on the rank of `ranks` that needs most, besides what the networks and the source
// need.
struct SlidingWindowMemory {
  double sums = 0;     // of probabilities
  double results = 0;  // of networks for the windows of a batch, with messages
  double classes = 0;  // of all cells, on rank 0
  double total() const { return sums + results + classes; }
};
SlidingWindowMemory sliding_window_memory(const Shape& sample, const Shape& extents, std::int64_t classes, int ranks,
                                          const SlidingWindowOptions& options);

}  // namespace mpigrad::segmentation
