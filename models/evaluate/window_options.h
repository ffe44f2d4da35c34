#pragma once
// Options of sliding windows, and where windows lie.

#include <cstdint>
#include <vector>

#include "comm/distributed/grid.h"
#include "models/nn/module.h"

namespace mpigrad::segmentation {

struct SlidingWindowOptions {
  Shape window{};          // [D, H, W]; smaller volumes are centred and padded with zeros
  double overlap = 0.5;    // least fraction of a window shared with its neighbour along each axis; in [0, 1)
  bool gaussian = true;    // weights exp(-r^2 / 2 s^2) around the window's centre, s an eighth of its extent per axis; else 1
  std::int64_t batch = 1;  // windows per call of a network
  GridPtr grid{};          // splits every window; its axis `sample` is 1. None: one rank
  DType dtype = DType::float32;  // of the networks' input
  DeviceKind device = current_device();
  // Axes of [D, H, W], each at most once: the result is the mean over all combinations of flips of the windows along these axes.
  std::vector<int> mirrored{};
  // The type of the sums over windows and of messages of probabilities: float32, or uint16, whole numbers of 1/65535 in half the
  // memory.
  DType sums = DType::float32;
  // The outputs are regions that may overlap: probabilities are sigmoids of scores instead of their softmax.
  bool sigmoid = false;
  // The class that each region writes (sliding_window_classes); none without `sigmoid`.
  std::vector<std::int64_t> written{};
};

// Networks whose probabilities are averaged: at least one, of the same classes.
using Ensemble = std::vector<nn::Module*>;

// Positions where windows begin along an axis of n cells: the first window at its begin, the last at its end, the others evenly
// between; one centred window if n is not larger than the window.
std::vector<std::int64_t> window_places(std::int64_t n, std::int64_t window, double overlap);

}  // namespace mpigrad::segmentation
