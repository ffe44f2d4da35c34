#pragma once
// The plan of a convolution, made from layouts before anything moves: which channels and halos ranks exchange, what each rank
// convolves, which sums follow, and whether a pooling uses the same halos. Not installed.

#include <optional>

#include "comm/collectives/neighbor.h"
#include "comm/distributed/channel_parts.h"
#include "comm/distributed/local_parts.h"
#include "ops/conv/conv.h"
#include "ops/pool/pool_ops.h"

namespace mpigrad::spatial {

// The elements before or after the block along one grid axis; corners belong to the first axis that has them. The messages of one
// slab follow each other, in the order of ranks.
struct Slab {
  Box box;
  std::vector<Box> parts{};  // one for each message, in the slab's coordinates
  std::int64_t first = 0;    // index of its first element in the received buffer
  ConvAttributes a{};        // the convolution of the slab
  Box out{};                 // its outputs, in coordinates of this rank's outputs
};
// Planes that other ranks send while the block itself is convolved, as messages in their order.
struct Halos {
  Topology topology;
  Rows sent_rows{}, received_rows{};
  std::vector<Box> sent{};  // in the block's coordinates
  std::vector<Slab> slabs{};
};

// A pooling of the outputs that this rank convolves.
struct PoolPlan {
  ops::Window window;
  LayoutPtr out;
  Extent3 in{};  // extents of the convolution on all ranks together
};

struct ConvPlan {
  ProductPlan product;
  Activation activation = Activation::none;
  WindowedPlan window{};           // unused for a plain tensor
  ConvAttributes a{};              // the convolution of the block with its halos; where they overlap, of the block only
  std::optional<Halos> halos{};    // overlapped with the convolution of the block; none: one exchange comes first
  std::optional<PoolPlan> pool{};  // none: the outputs are those of conv()
};

// Plans conv(x, w, bias, attributes, outputs); sends nothing. Errors: operands or attributes that do not fit, padding modes other
// than zeros, which with_copies() in padding.h turns into zeros. `pool` is the
// pooling that follows, if there is one. There is one exchange for both, and each rank computes all places that its windows read,
// where halos wide enough for both windows are fewer bytes than two separate halos, and the places that ranks then compute twice
// are few in comparison.
ConvPlan plan_conv(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvAttributes& attributes,
                   const SplitOutputs& outputs, const PoolAttributes* pool = nullptr);

// pooling(): the window of a pooling of `in` places. local_window(): the local op of this rank, whose input has extent `padded`.
VolumeWindow pooling(const Extent3& in, const PoolAttributes& a);
ops::Window local_window(const Extent3& padded, const Layout& out, const std::array<bool, 3>& split,
                         const std::array<WindowPart, 3>& part, const PoolAttributes& a);
// pool(y) where y is the result of run_conv() for `plan`; if the plan has no pooling, y is the distributed tensor. In
// distributed.cpp.
Tensor avg_pool(const ConvPlan& plan, const Tensor& y, const PoolAttributes& pool, Activation activation = Activation::none);
Tensor max_pool(const ConvPlan& plan, const Tensor& y, const PoolAttributes& pool);

}  // namespace mpigrad::spatial
