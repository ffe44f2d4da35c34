#include "comm/distributed/grid.h"

#include <algorithm>

#include "comm/collectives/collectives.h"
#include "framework/base/joined.h"

namespace mpigrad {

Grid::Grid(const Communicator& world, std::vector<std::string> axis_names, std::vector<int> axis_extents, Overlap overlap)
    : world_(world), overlap_(overlap) {
  names = std::move(axis_names);
  extents = std::move(axis_extents);
  rank = world.rank();
  const bool positive = std::all_of(extents.begin(), extents.end(), [](int extent) { return extent > 0; });
  if (!positive) fail("[grid] extents are at least 1, got {}", joined(extents, " x "));
  if (ranks() != world.size()) fail("[grid] {} = {} does not match {} ranks", joined(extents, " x "), ranks(), world.size());
}

std::vector<int> Grid::members(const std::vector<int>& free) const {
  const auto mine = coordinates(rank);
  const auto is_free = [&](int a) { return std::find(free.begin(), free.end(), a) != free.end(); };
  // Ranks are numbered with the last axis running fastest: each free axis multiplies the list, and it stays ascending.
  std::vector<int> result{0};
  for (int a = 0; a < axes(); ++a) {
    const int extent = extents[static_cast<std::size_t>(a)];
    std::vector<int> longer;
    longer.reserve(result.size() * static_cast<std::size_t>(is_free(a) ? extent : 1));
    for (const int before : result) {
      if (!is_free(a)) longer.push_back(before * extent + mine[static_cast<std::size_t>(a)]);
      for (int i = 0; is_free(a) && i < extent; ++i) longer.push_back(before * extent + i);
    }
    result = std::move(longer);
  }
  return result;
}

Communicator Grid::along(const std::vector<int>& axes) const {
  std::vector<int> wanted;
  int size = 1;
  for (const int axis : axes)
    if (const int extent = extents[static_cast<std::size_t>(axis)]; extent > 1) wanted.push_back(axis), size *= extent;
  std::sort(wanted.begin(), wanted.end());
  auto& group = groups_[wanted];
  if (group) return group;
  group = size == world_.size() ? world_ : world_.subgroup(members(wanted));
  return group;
}

Tensor Grid::sum_over(const std::vector<int>& axes, const Tensor& x) const {
  const Untaped scope;
  return allreduce(constant(x.without_layout()), along(axes));
}

std::shared_ptr<const GridShape> Grid::in_line() const {
  if (world_.size() == 1) return nullptr;
  if (!line_) line_ = std::make_shared<const Grid>(world_, std::vector<std::string>{"rank"}, std::vector<int>{world_.size()});
  return line_;
}

namespace {

// Keeps the buffers until the end of the operation, which is destroyed first.
struct Started {
  Tensor in, out;
  Pending operation;
};
using Start = Pending (Transport::*)(const void* in, void* out, std::span<const std::int64_t> counts, DType type);
GridShape::Wait started(const Communicator& comm, Start start, const Tensor& in, const Tensor& out,
                        std::span<const std::int64_t> counts) {
  if (!comm.moves(in)) return [] {};
  const auto made = std::make_shared<Started>(Started{in, out, {}});
  made->operation = (comm.reductions(in.device()).*start)(in.raw(), out.raw(), counts, in.dtype());
  made->operation.count_as_collective();
  return [made] { made->operation.wait(); };
}

}  // namespace

GridShape::Wait Grid::start_sum(const Tensor& in, const Tensor& out, std::span<const std::int64_t> counts) const {
  if (!apart_ && world_.moves(in)) apart_ = world_.duplicate();  // collective, and so is this call
  return started(world_, &Transport::start_sum_of_blocks, in, out, counts);
}
GridShape::Wait Grid::start_gather(const Tensor& in, const Tensor& out, std::span<const std::int64_t> counts) const {
  return started(world_, &Transport::start_allgather, in, out, counts);
}
void Grid::gather(const Tensor& in, const Tensor& out, std::span<const std::int64_t> counts) const {
  const auto& comm = apart_ ? apart_ : world_;
  if (comm.moves(in)) comm.transport(in.device()).allgather(in.raw(), out.raw(), counts, in.dtype());
}

int ranks_of(const GridExtents& e) { return e.sample * e.depth * e.height * e.width * e.channel * e.filter * e.stage; }

GridPtr make_grid(const Communicator& world, const GridExtents& e, Overlap overlap) {
  require(e.stage == 1, "[grid] {} stages are not an axis of a grid: nn::Pipeline has a grid for each stage", e.stage);
  std::vector<std::string> names{"sample", "depth", "height", "width"};
  std::vector<int> extents{e.sample, e.depth, e.height, e.width};
  if (e.channel != 1 || e.filter != 1) names.emplace_back("channel"), extents.push_back(e.channel);
  if (e.filter != 1) names.emplace_back("filter"), extents.push_back(e.filter);
  return std::make_shared<Grid>(world, std::move(names), std::move(extents), overlap);
}

const Grid& grid_of(const Layout& layout) {
  const auto* grid = dynamic_cast<const Grid*>(layout.grid.get());
  if (grid == nullptr) fail("[layout] its grid has no communicators: {}", to_string(layout));
  return *grid;
}

namespace {

void require_grid(const GridPtr& grid) {
  require(grid != nullptr, "[layout] a layout needs a process grid: make_grid() or session.grid() makes one, also of one rank");
}

}  // namespace

LayoutPtr split_layout(const GridPtr& grid, const Shape& global, const std::vector<int>& dimensions) {
  require_grid(grid);
  require(static_cast<int>(dimensions.size()) <= grid->axes(), "[layout] {} dimensions for {} grid axes", dimensions.size(),
          grid->axes());
  Layout layout{grid, global, std::vector<AxisPlacement>(grid->extents.size())};
  for (std::size_t a = 0; a < dimensions.size(); ++a) {
    if (dimensions[a] < 0 || grid->extents[a] == 1) continue;  // one rank along the axis: the value counts as replicated
    const int dimension = checked_dimension("layout", dimensions[a], global.rank());
    require(layout.axis_of(dimension) < 0, "[layout] two grid axes split dimension {}", dimension);
    layout.axes[a] = {Placement::split, dimension, balanced_cuts(global[dimension], grid->extents[a])};
  }
  return std::make_shared<Layout>(std::move(layout));
}

LayoutPtr replicated_layout(const GridPtr& grid, const Shape& global) {
  require_grid(grid);
  return split_layout(grid, global, std::vector<int>(grid->extents.size(), -1));
}

namespace {

// One grid for all plain layouts, because operands must be on the same grid.
std::shared_ptr<const GridShape> plain_grid() {
  static const auto grid = [] {
    GridShape shape;
    shape.names = {"sample", "depth", "height", "width"}, shape.extents = {1, 1, 1, 1};
    return std::make_shared<const GridShape>(shape);
  }();
  return grid;
}

}  // namespace

LayoutPtr plain_layout(const Shape& global) {
  return std::make_shared<Layout>(Layout{plain_grid(), global, std::vector<AxisPlacement>(4)});
}
bool is_plain(const Layout& layout) { return layout.grid == plain_grid(); }

LayoutPtr activation_layout(const GridPtr& grid, const Shape& global) {
  require_grid(grid);
  require(grid->axes() >= 4 && grid->axes() <= 6 && global.rank() == 5,
          "[layout] [N, D, H, W, C] on sample x depth x height x width, and x channel x filter or not: {} on {} axes", global,
          grid->axes());
  std::vector<int> dimensions{0, 1, 2, 3, 4, -1};
  dimensions.resize(static_cast<std::size_t>(grid->axes()));
  return split_layout(grid, global, dimensions);
}

LayoutPtr input_layout(const GridPtr& grid, const Shape& global) {
  require_grid(grid);
  require(grid->axes() >= 4 && global.rank() == 5, "[layout] [N, D, H, W, C] on sample x depth x height x width: {} on {} axes",
          global, grid->axes());
  return split_layout(grid, global, {0, 1, 2, 3});
}

LayoutPtr with_cuts(const LayoutPtr& layout, int dimension, std::vector<std::int64_t> cuts) {
  require(layout != nullptr, "[layout] only a layout has cuts, and a plain tensor has none");
  const int axis = layout->axis_of(dimension);
  if (axis < 0) fail("[layout] dimension {} is not split: {}", dimension, to_string(*layout));
  const auto a = static_cast<std::size_t>(axis);
  if (!(static_cast<int>(cuts.size()) == layout->grid->extents[a] + 1 && cuts.front() == 0 &&
        cuts.back() == layout->global[dimension] && std::is_sorted(cuts.begin(), cuts.end())))
    fail("[layout] cuts {} do not divide {} elements among {} ranks", joined(cuts, ", "), layout->global[dimension],
         layout->grid->extents[a]);
  Layout result = *layout;
  result.axes[a].cuts = std::move(cuts);
  return std::make_shared<Layout>(std::move(result));
}

}  // namespace mpigrad
