#pragma once
// A lower bound of the time of a training step of the 3D U-Net: only the bare oneDNN primitives of its convolutions and the
// necessary passes over memory of its norms, pools and joins.

#include <map>
#include <memory>
#include <string>

#include "models/networks/unet3d.h"

namespace mpigrad::bench {

// Counts the following, once for each layer that the network runs:
//   conv, expand   products "forward", for the "data" (of all but the first layer) and for the "weight"; for volumes of
//                  64 cells or fewer, or without an optimised kernel in oneDNN, an sgemm of columns, without gathering them
//   reorder        of a weight to the layout of the forward primitive, and of its gradient from the layout of its primitive
//   norm           with its ReLU: x read for the statistics, x read and y written; g and x read for the sums, then again, and the
//                  gradient written
//   pool           the input read, the output written, and back
//   join           both parts read, the whole written, and back
//   optimizer      p, m, v and g read, p, m and v written
// Nothing is counted for biases, the sum of a skip's two gradients, and the loss.
class UNetFloor {
 public:
  // For float32 inputs [N, D, H, W, C] of this shape and the current number of OpenMP threads. The layers are those that the
  // network runs on the dry device. Throws an Error if the network runs an unknown op on volumes.
  UNetFloor(UNet3d& net, const Shape& input);
  ~UNetFloor();
  // Runs all actions in the order of a training step, so that caches are as cold as in training.
  void step(bool count);
  // Seconds over the counted steps: the median of the step, and the median of each kind.
  double median() const;
  std::map<std::string, double> medians_by_kind() const;

 private:
  class Step;
  std::unique_ptr<Step> step_;
};

}  // namespace mpigrad::bench
