#pragma once
// Code that the distributed functions of layers share. Not installed.

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "comm/distributed/grid.h"
#include "comm/halos/exchange.h"
#include "comm/halos/window_plan.h"
#include "framework/engine/tape.h"
#include "ops/extents.h"

namespace mpigrad::spatial {

// The plan of an op whose outputs read boxes of a distributed [N, D, H, W, C]: the exchange, this rank's part of each split
// dimension, and the layout of the result.
struct WindowedPlan {
  std::vector<int> axes;                   // grid axes that split a spatial dimension
  Communicator group;                      // the ranks along these axes
  RankBoxesPtr boxes;                      // this rank's, over them
  std::vector<AxisBlocks> have{}, need{};  // of all ranks along each of these axes: their blocks, and what they need
  bool moves = false;                      // true if any rank needs more or less than its own block
  LayoutPtr out;
  std::array<WindowPart, 3> part{};  // this rank's, for split dimensions
  std::array<bool, 3> split{};
};
// A spatial dimension that is cut into blocks: the cuts of its outputs, and every rank's part.
struct SplitDimension {
  std::vector<std::int64_t> cuts;
  std::vector<WindowPart> parts;
};
// The cuts of spatial dimension i in a layout; null if it is not cut.
const std::vector<std::int64_t>* cuts_of(const Layout& layout, std::size_t i);
// The plan for inputs with that layout. The result has extents `out` and `channels` channels on all ranks together, split as
// those of the inputs. `along`: the dimensions that the layout cuts.
WindowedPlan windowed_plan(const Layout& layout, const Extent3& out, std::int64_t channels,
                           const std::array<SplitDimension, 3>& along);

// A sliding window over the whole volume and the number of its outputs.
struct VolumeWindow {
  Extent3 kernel, stride, dilation, low, out;
  bool transposed = false;
  WindowSpec along(std::size_t i) const {
    return {.kernel = kernel[i], .stride = stride[i], .low = low[i], .dilation = dilation[i]};
  }
};
// Each output belongs to the rank that owns the centre of its window.
WindowedPlan windowed_plan(const Layout& layout, const VolumeWindow& window, std::int64_t channels);
// The global extents of [N, D, H, W, C].
Extent3 global_spatial(const Tensor& x);
// The first spatial dimension that the plan splits, or -1.
int halo_dimension(const WindowedPlan& plan);

// The first split dimension between those of the samples and the channels, or -1: outputs are allocated with room for halos
// there.
int halo_dimension(const Layout& layout);
// True if each rank stores a part of weight w by a layout on another grid than x's. Such a weight is gathered before it is used.
bool is_stored(const Tensor& x, const Tensor& w);
// w, a parameter used with x's local part, replicated over the axes along which x varies; a w stored in parts is gathered.
Tensor replicated_for(const Tensor& x, const Tensor& w);

// The grid of weights of which each rank stores some rows (nn::BuildOptions::sharded_weights): all ranks in one line. It knows in
// which order a training step gathers them, so that a weight is on its way while the layer before computes.
class StoredWeights final : public Grid {
 public:
  explicit StoredWeights(const Communicator& world) : Grid(world, {"rank"}, {world.size()}) {}

  // Starts to gather the weight that came after w in the first step, if it still exists. To be called when w is gathered under
  // that tape. Collective.
  void begin_next(const Tensor& w, Tape& tape) const;
  // The memory in which all rows of w arrive if begin_next() has begun to gather it under that tape; else no tensor.
  Tensor begun(const Tensor& w, Tape& tape) const;

 private:
  struct Weight {
    std::uint64_t id = 0;
    TensorType rows;  // this rank's
    std::weak_ptr<Storage> storage;
    std::int64_t offset = 0;
    Shape whole;
    std::vector<std::int64_t> counts;  // elements of each rank
  };
  static Weight describe(const Tensor& w);

  mutable std::unordered_map<std::uint64_t, Weight> after_;   // by the number of the weight before
  mutable std::uint64_t last_ = 0, step_ = 0, expected_ = 0;  // numbers of weights, and of the step
};

}  // namespace mpigrad::spatial
