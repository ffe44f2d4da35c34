#ifndef MPIGRAD_FRAMEWORK_TENSOR_LAYOUT_H
#define MPIGRAD_FRAMEWORK_TENSOR_LAYOUT_H
// Layouts: how a global tensor is placed on a grid of ranks. Data only: the code that moves parts between ranks is in comm/.
//
// Ranks form a process grid. For each grid axis a tensor is
//   split       one of its dimensions is cut in blocks along the axis;
//   replicated  one value, stored on all ranks of the axis; its cotangent is replicated, too;
//   partial     a partial sum: the value is the sum over the ranks of the axis. Its cotangent is replicated.
// A tensor without a layout is plain: nothing says how its values on different ranks are related, and an op whose operands are
// all plain is local. If functions of comm/distributed/ get a distributed tensor and a plain parameter, such as a weight, they
// take the parameter to be equal on all ranks.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/tensor/shape.h"

namespace mpigrad {

class Tensor;

// Half-open box in global coordinates.
struct Box {
  Shape begin, end;
  Shape extents() const;
  std::int64_t elements() const { return extents().elements(); }
  bool operator==(const Box&) const = default;
};
Box intersection(const Box& a, const Box& b);  // empty boxes have begin == end in some dimension
std::string to_string(const Box& box);

// Cuts n elements into balanced blocks; if n is not a multiple of `parts`, the first n mod parts blocks are one longer. Returns
// parts + 1 offsets from 0 to n.
std::vector<std::int64_t> balanced_cuts(std::int64_t n, int parts);

// Shape of the process grid and this rank's place in it; comm/distributed/grid.h adds communicators. Ranks are row-major in the
// extents.
struct GridShape {
  std::vector<std::string> names;
  std::vector<int> extents;
  int rank = 0;

  virtual ~GridShape() = default;
  int axes() const { return static_cast<int>(extents.size()); }
  int ranks() const;
  std::vector<int> coordinates(int rank) const;
  // The sum of x over the ranks that differ from this one only along `axes`, as a constant and outside of any tape: for counts.
  // Collective among these ranks. Here, without communicators, it is an Error.
  virtual Tensor sum_over(const std::vector<int>& axes, const Tensor& x) const;
  // Called before an op whose operands are on different grids or devices. It is called on the grid of the first operand that has
  // a layout. Grids of pipelines move the operands to one stage (comm/distributed/stages.h); others leave them, and the op
  // refuses them.
  virtual void bring_together(std::string_view op, std::vector<Tensor>& operands) const;
  // Moves x from another grid of the same pipeline to this grid. Returns x unchanged if the two grids do not belong to one
  // pipeline.
  virtual Tensor brought(const Tensor& x) const;

  // For values whose rows are divided among all ranks (framework/optim/division.h): all ranks of this grid as one axis, the same
  // object in every call. Null for one rank, and without communicators.
  virtual std::shared_ptr<const GridShape> in_line() const;
  // Number of the communicator of all ranks (Communicator::number()); 0 without communicators.
  virtual std::uint64_t number() const;
  // Sum of `in` over all ranks, of which each rank gets counts[rank] elements; and all ranks' elements, counts[r] of rank r. They
  // return at once, and the buffers are complete after the returned function. `in` may be this rank's part of the gathered `out`.
  // Collective, in the same order on all ranks; Errors without communicators.
  using Wait = std::function<void()>;
  virtual Wait start_sum(const Tensor& in, const Tensor& out, std::span<const std::int64_t> counts) const;
  virtual Wait start_gather(const Tensor& in, const Tensor& out, std::span<const std::int64_t> counts) const;
  // Gathers and waits, apart from the started calls: a rank that calls it while the others do not waits until they do, and never
  // gets another call's elements.
  virtual void gather(const Tensor& in, const Tensor& out, std::span<const std::int64_t> counts) const;
};

// `same` and `share` are names of versions before 0.2, which 0.3 will remove.
enum class Placement : std::uint8_t { split, replicated, partial, same = replicated, share = partial };

struct AxisPlacement {
  Placement placement = Placement::replicated;
  int dimension = -1;              // for split
  std::vector<std::int64_t> cuts;  // for split: extent + 1 offsets into the global dimension
  bool operator==(const AxisPlacement&) const = default;
};

struct Layout {
  std::shared_ptr<const GridShape> grid;
  Shape global;
  std::vector<AxisPlacement> axes;  // one per grid axis

  Box box(int rank) const;  // the part of rank `rank` of the grid
  Box box() const { return box(grid->rank); }
  bool has(Placement placement) const;
  // The grid axis that splits `dimension`, or -1.
  int axis_of(int dimension) const;
  // Grid axes along which the local tensor differs from rank to rank: split or partial.
  std::vector<int> varying_axes() const;
  bool operator==(const Layout& other) const { return grid == other.grid && global == other.global && axes == other.axes; }
};
using LayoutPtr = std::shared_ptr<const Layout>;

// "[8, 32, 32] sample: split dim 0 at 0|4|8, depth: replicated"
std::string to_string(const Layout& layout);

}  // namespace mpigrad

#endif
