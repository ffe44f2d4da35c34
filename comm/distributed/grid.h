#pragma once
// A process grid: the ranks of a communicator arranged by named axes, with a communicator along every set of axes.

#include <map>

#include "comm/communicator.h"
#include "framework/tensor/layout.h"

namespace mpigrad {

// Of weights that are cut in both dimensions, inputs and outputs, `filter` is a second axis beside `channel`.
struct GridExtents {
  int sample = 1, depth = 1, height = 1, width = 1, channel = 1, filter = 1;
};
int ranks_of(const GridExtents& extents);

// Whether convolutions of split volumes compute on their own block while halos travel (comm/halos/overlapped.h): where that
// pays, not at all, or wherever it can be done. All ranks have to agree.
enum class Overlap : std::uint8_t { automatic, never, always };

class Grid : public GridShape {
 public:
  Grid(const Communicator& world, std::vector<std::string> names, std::vector<int> extents, Overlap overlap = Overlap::automatic);

  const Communicator& world() const { return world_; }
  Overlap overlap() const { return overlap_; }
  // Ranks that differ from this one only along `axes`. Collective among them at the first use.
  Communicator along(const std::vector<int>& axes) const;
  // These ranks of the grid, in the order of that communicator.
  std::vector<int> members(const std::vector<int>& axes) const;
  Tensor sum_over(const std::vector<int>& axes, const Tensor& x) const override;

 private:
  Communicator world_;
  Overlap overlap_;
  mutable std::map<std::vector<int>, Communicator> groups_;
};
using GridPtr = std::shared_ptr<const Grid>;

// sample x depth x height x width over all ranks of `world`, and x channel and x filter where these are more than 1: without them
// grids have four axes. An Error if the product is not their number.
GridPtr make_grid(const Communicator& world, const GridExtents& extents, Overlap overlap = Overlap::automatic);
const Grid& grid_of(const Layout& layout);

// ---- layouts on a grid; cuts left out are balanced

// Replicated on all ranks.
LayoutPtr replicated_layout(const GridPtr& grid, const Shape& global);
// The name of version 0.1; it goes with the next minor version.
inline LayoutPtr same_layout(const GridPtr& grid, const Shape& global) { return replicated_layout(grid, global); }
// The layout of a plain tensor, for programs that work with and without a grid: one rank has all of it. Its grid has no
// communicators: tensors stay plain, and nn::Module::build() makes a network for plain tensors of it.
LayoutPtr plain_layout(const Shape& global);
bool is_plain(const Layout& layout);
// Activations [N, D, H, W, C] with every dimension split over the axis of make_grid that goes with it, C over `channel`.
LayoutPtr activation_layout(const GridPtr& grid, const Shape& global);
// The same with all channels on every rank: of what networks take in, which has few.
LayoutPtr input_layout(const GridPtr& grid, const Shape& global);
// Axis a of the grid splits dimension dimensions[a] (-1: replicated, and axes left out at the end).
LayoutPtr split_layout(const GridPtr& grid, const Shape& global, const std::vector<int>& dimensions);
// With dimension `dimension` cut at `cuts` along the grid axis that splits it.
LayoutPtr with_cuts(const LayoutPtr& layout, int dimension, std::vector<std::int64_t> cuts);

}  // namespace mpigrad
