#pragma once
// Segmentation of volumes of any extents by a network trained on windows: runs the network on overlapping windows; the result for
// a cell is the weighted mean over all windows that contain it.

#include <vector>

#include "comm/distributed/grid.h"
#include "models/data/source.h"
#include "models/nn/module.h"

namespace mpigrad::segmentation {

struct SlidingWindowOptions {
  Shape window{};          // [D, H, W]; smaller volumes are centred and padded with zeros
  double overlap = 0.5;    // least fraction of a window shared with its neighbour along each axis; in [0, 1)
  bool gaussian = true;    // weights exp(-r^2 / 2 s^2) around the window's centre, s an eighth of its extent per axis; else 1
  std::int64_t batch = 1;  // windows per call of the network
  GridPtr grid{};          // splits every window; its axis `sample` is 1. None: one rank
  DType dtype = DType::float32;  // of the network's input
  DeviceKind device = current_device();
};

// Positions where windows begin along an axis of n cells: the first window at its begin, the last at its end, the others evenly
// between; one centred window if n is not larger than the window.
std::vector<std::int64_t> window_places(std::int64_t n, std::int64_t window, double overlap);

// Probabilities [D, H, W, K] of one sample, softmax of the network's scores [N, D, H, W, K]: float32, on the CPU, a constant,
// stored on every rank of the grid. Collective over the grid; the network is in evaluation mode meanwhile. Errors, on all ranks:
// those of reading the sample; scores of another shape.
Tensor sliding_window(nn::Module& net, const data::Source& source, std::int64_t sample, const SlidingWindowOptions& options);
// The class of the largest probability in each cell, the first one if several are equal: int32 [D, H, W] of float32 [D, H, W, K]
// on the CPU.
Tensor most_likely(const Tensor& probabilities);

}  // namespace mpigrad::segmentation
