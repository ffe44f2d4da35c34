#pragma once
// Segmentation of volumes of any extents by a network that was trained on windows: it looks at windows that overlap, and what it
// says of a cell is the weighted mean of what it says in all windows that hold it.

#include <vector>

#include "comm/distributed/grid.h"
#include "models/data/source.h"
#include "models/nn/module.h"

namespace mpigrad::segmentation {

struct SlidingWindowOptions {
  Shape window{};        // [D, H, W]; volumes that are smaller lie in the middle, zeros around them
  double overlap = 0.5;  // least part of a window that its neighbour holds, too, along each axis; from 0 to below 1
  bool gaussian = true;  // weights exp(-r^2 / 2 s^2) about the window's middle, s an eighth of its extent along each axis; else 1
  std::int64_t batch = 1;        // windows at once
  GridPtr grid{};                // splits every window; its axis `sample` is 1. None: one rank
  DType dtype = DType::float32;  // of the network's input
  DeviceKind device = current_device();
};

// Where windows begin along an axis of n cells: the first at its begin, the last at its end, the others evenly between; one in
// the middle where n is not larger than the window.
std::vector<std::int64_t> window_places(std::int64_t n, std::int64_t window, double overlap);

// Probabilities [D, H, W, K] of one sample, softmax of the network's scores [N, D, H, W, K]: float32, on the CPU, a constant, and
// whole on every rank of the grid. Collective over the grid; the network is in evaluation mode meanwhile. Errors, which all ranks
// have: what reading says, scores of another shape.
Tensor sliding_window(nn::Module& net, const data::Source& source, std::int64_t sample, const SlidingWindowOptions& options);
// The class of the largest probability in each cell, the first of equals: int32 [D, H, W] of float32 [D, H, W, K] on the CPU.
Tensor most_likely(const Tensor& probabilities);

}  // namespace mpigrad::segmentation
