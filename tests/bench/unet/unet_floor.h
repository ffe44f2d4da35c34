#pragma once
// How fast a training step of the 3D U-Net could be: the bare oneDNN primitives of its convolutions, the passes over memory that
// its norms, pools and joins cannot do without, and nothing else.

#include <map>
#include <memory>
#include <string>

#include "models/networks/unet3d.h"

namespace mpigrad::bench {

// What is counted, once for each layer that the network runs:
//   conv, expand   products "forward", for the "data" (of all but the first layer) and for the "weight"; where a volume has
//                  64 cells or fewer, or oneDNN no optimised kernel, an sgemm of columns that nobody gathered
//   reorder        of a weight into the forward primitive's own layout, of its gradient out of its primitive's
//   norm           with its ReLU: x read for the statistics, x read and y written; g and x read for the sums, then again, and the
//                  gradient written
//   pool           the input read, the output written, and back
//   join           both parts read, the whole written, and back
//   optimizer      p, m, v and g read, p, m and v written
// Nothing is counted for biases, the sum of a skip's two gradients, and the loss.
class UNetFloor {
 public:
  // Of float32, for inputs [N, D, H, W, C] of this shape, for the OpenMP threads set now. The layers are those that the network
  // runs on the dry device. Error: it runs an op on volumes that is not known here.
  UNetFloor(UNet3d& net, const Shape& input);
  ~UNetFloor();
  // All of it, in the order of a training step, so that caches are as cold as they are there.
  void step(bool count);
  // Of the steps that counted, in seconds: the median, and that of each kind.
  double median() const;
  std::map<std::string, double> medians_by_kind() const;

 private:
  class Step;
  std::unique_ptr<Step> step_;
};

}  // namespace mpigrad::bench
