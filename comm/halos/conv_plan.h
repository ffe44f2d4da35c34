#pragma once
// The plan of a convolution, made of layouts before anything moves: which channels and halos ranks exchange, what each rank
// convolves, which sums follow, whether a pooling follows on the same halos. Not installed.

#include <optional>

#include "comm/collectives/neighbor.h"
#include "comm/distributed/channel_parts.h"
#include "comm/distributed/local_parts.h"
#include "ops/conv/conv.h"
#include "ops/pool/pool_ops.h"

namespace mpigrad::spatial {

// The elements that lie before, or behind, the block along one grid axis, corners with the first axis that has them; in the order
// of ranks the messages of one slab follow each other.
struct Slab {
  Box box;
  std::vector<Box> parts{};  // one for each message, in the slab's coordinates
  std::int64_t first = 0;    // element of what has arrived
  ConvAttributes a{};        // the convolution of the slab
  Box out{};                 // its outputs, in coordinates of this rank's
};
// Planes that other ranks send while the block itself is convolved: the messages in their order.
struct Halos {
  Topology topology;
  Rows sent_rows{}, received_rows{};
  std::vector<Box> sent{};  // in the block's coordinates
  std::vector<Slab> slabs{};
};

// A pooling of what this rank convolves.
struct PoolPlan {
  ops::Window window;
  LayoutPtr out;
  Extent3 in{};  // places of the convolution on all ranks together
};

struct ConvPlan {
  ProductPlan product;
  Activation activation = Activation::none;
  WindowedPlan window{};           // not of a plain tensor
  ConvAttributes a{};              // the convolution of the block with its halos; where they overlap, of the block alone
  std::optional<Halos> halos{};    // overlap with the convolution of the block; none: one exchange comes first
  std::optional<PoolPlan> pool{};  // none: the outputs are those of conv()
};

// Plans conv(x, w, bias, attributes, outputs) and refuses what does not fit; sends nothing. `pool` is the pooling that follows,
// if one does: where halos that are wide enough for both windows are fewer bytes than those of the two, and what ranks then
// compute twice is little beside that, there is one exchange, and each rank makes the places that its windows read itself.
ConvPlan plan_conv(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvAttributes& attributes,
                   const SplitOutputs& outputs, const PoolAttributes* pool = nullptr);

// A pooling of `in` places, and the local op of this rank, whose input has extent `padded`.
VolumeWindow pooling(const Extent3& in, const PoolAttributes& a);
ops::Window local_window(const Extent3& padded, const Layout& out, const std::array<bool, 3>& split,
                         const std::array<WindowPart, 3>& part, const PoolAttributes& a);
// pool(y) of what run_conv() made of `plan`; where the plan has no pooling, of the distributed tensor y. In distributed.cpp.
Tensor avg_pool(const ConvPlan& plan, const Tensor& y, const PoolAttributes& pool, Activation activation = Activation::none);
Tensor max_pool(const ConvPlan& plan, const Tensor& y, const PoolAttributes& pool);

}  // namespace mpigrad::spatial
