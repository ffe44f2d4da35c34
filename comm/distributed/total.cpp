// Sums of scalars over ranks, outside the tape: comm/collectives/collectives.h.

#include <vector>

#include "comm/collectives/collectives.h"
#include "comm/distributed/grid.h"
#include "comm/transport/launcher.h"
#include "framework/base/error.h"

namespace mpigrad {

double total(const Tensor& share, const Communicator& comm) { return total(detail::local_item(share), share.layout(), comm); }

double total(const Tensor& share) {
  if (!share.layout() && !has_several_ranks() && (launcher_of_environment().processes <= 1 || singletons_allowed()))
    return share.item();
  require(share.layout() != nullptr,
          "[total] a plain tensor does not say over which ranks it is a partial sum; pass their communicator: {}", share);
  return total(detail::local_item(share), share.layout(), {});
}

double total(double value, const LayoutPtr& layout, const Communicator& comm) {
  if (layout) {
    std::vector<int> axes;
    for (std::size_t a = 0; a < layout->axes.size(); ++a)
      if (layout->axes[a].placement == Placement::partial) axes.push_back(static_cast<int>(a));
    const auto group = grid_of(*layout).along(axes);
    group.transport().allreduce(&value, &value, 1, DType::float64, CombineOp::sum);
  } else {
    comm.transport().allreduce(&value, &value, 1, DType::float64, CombineOp::sum);
  }
  return value;
}

}  // namespace mpigrad
