#pragma once
// A process grid: the ranks of a communicator arranged by named axes, with a communicator along every set of axes.

#include <map>

#include "comm/communicator.h"
#include "framework/tensor/layout.h"

namespace mpigrad {

// `channel` and `filter` split layers by channels: nn::LayerSplit (models/nn/module.h) says whether a rank computes some output
// channels or takes some input channels. With both axes weights are cut in both dimensions. The trainers' --grid has filter for
// output channels and channel for input channels.
// `stage` is the number of stages of a pipeline (models/nn/pipeline.h). Each stage has a grid whose extents are the other
// members, without an axis for `stage`. A grid with an axis "stage" occurs only in the layouts that Stages::stored() returns:
// they describe, on the grid of all ranks, a tensor that one stage stores.
struct GridExtents {
  int sample = 1, depth = 1, height = 1, width = 1, channel = 1, filter = 1, stage = 1;
};
int ranks_of(const GridExtents& extents);

// Whether convolutions of split volumes compute on their own block while halos travel (comm/halos/overlapped.h): where it saves
// time, never, or wherever it is possible. All ranks must pass the same value.
enum class Overlap : std::uint8_t { automatic, never, always };

class Grid : public GridShape {
 public:
  Grid(const Communicator& world, std::vector<std::string> names, std::vector<int> extents, Overlap overlap = Overlap::automatic);

  const Communicator& world() const { return world_; }
  Overlap overlap() const { return overlap_; }
  // The ranks that differ from this one only along `axes`. Collective among them at the first use.
  Communicator along(const std::vector<int>& axes) const;
  // The numbers that these ranks have in the grid, in the order of the communicator along(axes).
  std::vector<int> members(const std::vector<int>& axes) const;
  Tensor sum_over(const std::vector<int>& axes, const Tensor& x) const override;
  std::shared_ptr<const GridShape> in_line() const override;
  std::uint64_t number() const override { return world_.number(); }
  Wait start_sum(const Tensor& in, const Tensor& out, std::span<const std::int64_t> counts) const override;
  Wait start_gather(const Tensor& in, const Tensor& out, std::span<const std::int64_t> counts) const override;
  void gather(const Tensor& in, const Tensor& out, std::span<const std::int64_t> counts) const override;

 private:
  Communicator world_;
  Overlap overlap_;
  mutable std::map<std::vector<int>, Communicator> groups_;
  mutable std::shared_ptr<const Grid> line_;
  mutable Communicator apart_;  // for gather()
};
using GridPtr = std::shared_ptr<const Grid>;

// Arranges all ranks of `world` as sample x depth x height x width. The axis channel is added only if channel or filter is more
// than 1, the axis filter only if filter is: .filter = 2 gives six axes, the fifth of extent 1. Error: the product is not the
// number of ranks of `world`.
GridPtr make_grid(const Communicator& world, const GridExtents& extents, Overlap overlap = Overlap::automatic);
const Grid& grid_of(const Layout& layout);

// ---- layouts on a grid; cuts left out are balanced

// Replicated on all ranks.
LayoutPtr replicated_layout(const GridPtr& grid, const Shape& global);
// The name of versions before 0.2, which 0.3 will remove.
inline LayoutPtr same_layout(const GridPtr& grid, const Shape& global) { return replicated_layout(grid, global); }
// The layout of a plain tensor, for programs that work with and without a grid: one rank has all of it. Its grid has no
// communicators: tensors stay plain, and nn::Module::build() with this layout builds a network for plain tensors.
LayoutPtr plain_layout(const Shape& global);
bool is_plain(const Layout& layout);
// Activations [N, D, H, W, C] with every dimension split over the axis of make_grid that goes with it, C over `channel`.
LayoutPtr activation_layout(const GridPtr& grid, const Shape& global);
// The same with all channels on every rank: for the inputs of networks, which have few channels.
LayoutPtr input_layout(const GridPtr& grid, const Shape& global);
// Axis a of the grid splits dimension dimensions[a]; -1, and axes left out at the end: replicated.
LayoutPtr split_layout(const GridPtr& grid, const Shape& global, const std::vector<int>& dimensions);
// The layout with dimension `dimension` cut at `cuts` along the grid axis that splits it.
LayoutPtr with_cuts(const LayoutPtr& layout, int dimension, std::vector<std::int64_t> cuts);

}  // namespace mpigrad
