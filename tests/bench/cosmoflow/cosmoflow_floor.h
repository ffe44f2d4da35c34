#pragma once
// A lower bound of the time of a CosmoFlow training step: only the bare oneDNN primitives of its layers.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace mpigrad::bench {

// Medians in seconds. `data` is 0 for the first layer, which needs no gradient of the image; `reorder` converts the weight to the
// layout of the forward primitive, and the weight gradient from the layout of its primitive.
struct FloorLayer {
  std::string name;  // "conv1", "pool1", ..., "fc1"
  double forward = 0, data = 0, weight = 0, reorder = 0;
  double flop = 0;              // of one of the three products
  std::string implementations;  // "forward | data | weight", oneDNN's names
  double total() const { return forward + data + weight + reorder; }
};

struct Floor {
  std::vector<FloorLayer> layers;
  double optimizer = 0;  // one streaming pass: read p, m, v, g, write p, m, v
  std::int64_t parameters = 0;
  double total() const;
};

// CosmoFlow, hybrid variant, width^3 input (16 to 512), batch 1, float32, for the number of OpenMP threads at construction. All
// primitives run in the order of a training step, so that caches are as cold as in training.
class CosmoFlowFloor {
 public:
  // Throws an Error if oneDNN would use a reference implementation.
  explicit CosmoFlowFloor(std::int64_t width);
  ~CosmoFlowFloor();
  void step(bool count);
  // Medians over the counted steps.
  Floor medians() const;

 private:
  class Step;
  std::unique_ptr<Step> step_;
};

}  // namespace mpigrad::bench
