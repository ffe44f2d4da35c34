#pragma once
// How fast a CosmoFlow training step could be: the bare oneDNN primitives of its layers and nothing else.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace mpigrad::bench {

// Medians in seconds. `data` is 0 for the first layer, whose image gradient nobody needs; `reorder` moves the weight into the
// forward primitive's own layout and the weight gradient out of its primitive's.
struct FloorLayer {
  std::string name;  // "conv1", "pool1", ..., "fc1"
  double forward = 0, data = 0, weight = 0, reorder = 0;
  double flop = 0;              // of one of the three products
  std::string implementations;  // "forward | data | weight" in oneDNN's words
  double total() const { return forward + data + weight + reorder; }
};

struct Floor {
  std::vector<FloorLayer> layers;
  double optimizer = 0;  // one streaming pass: read p, m, v, g, write p, m, v
  std::int64_t parameters = 0;
  double total() const;
};

// CosmoFlow, hybrid variant, width^3 input (16 to 512), batch 1, float32, for the OpenMP threads set when it is made. All
// primitives run in the order of a training step, so caches are as cold as they are there.
class CosmoFlowFloor {
 public:
  // Throws Error where oneDNN would use a reference implementation.
  explicit CosmoFlowFloor(std::int64_t width);
  ~CosmoFlowFloor();
  void step(bool count);
  // Medians over the steps that counted.
  Floor medians() const;

 private:
  class Step;
  std::unique_ptr<Step> step_;
};

}  // namespace mpigrad::bench
