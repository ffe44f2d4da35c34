#pragma once
// Products of x and a weight whose channels are split along grid axes (Dryden et al. 2019; for features of a linear layer the
// 1.5D product of Gholami et al. 2018), possibly combined with splits of samples and space along other axes. The operands'
// layouts determine how conv(), conv_transpose() and linear() run along each axis:
//
//   filters   the weight's outputs are split: every rank needs all of x and computes its channels of y. Where x is replicated, it
//             is used as it is (adjoint: allreduce); where its channels are split, they are gathered (adjoint: reduce-scatter)
//   channels  x's channels, the weight's inputs or both are split: every rank has a partial sum, which is completed by an
//             allreduce or, where split outputs are requested, by a reduce-scatter
//   groups    the product is grouped; x, weight and y are cut between groups, and nothing is sent
//
// A weight that has a split layout stays split, and so does its gradient: 1/P of the memory. If a weight is replicated, each rank
// uses a part of it, and the gradient is assembled from the parts. The same holds for biases and the parameters of norms.

#include <cstdint>
#include <string_view>
#include <vector>

#include "framework/tensor/tensor.h"

namespace mpigrad {

// How a product runs along a grid axis. none is data parallelism: all of the weight is used, and a split weight is gathered.
enum class ChannelSplit : std::uint8_t { none, filters, channels, groups };
constexpr std::string_view name_of(ChannelSplit split) {
  constexpr std::string_view names[] = {"none", "filters", "channels", "groups"};
  return names[static_cast<std::size_t>(split)];
}

// The grid axis along which the channels of a result are split, at `cuts`; if `cuts` is empty, balanced (between groups, if there
// are any). -1: determined by the operands' layouts, and partial sums are completed.
struct SplitOutputs {
  int axis = -1;
  std::vector<std::int64_t> cuts{};
};

struct ProductAttributes {
  std::int64_t groups = 1;
  bool transposed = false;  // transposed convolution, whose weight is [C, ..., K/groups]
  SplitOutputs outputs{};
};
// How conv, conv_transpose or linear runs along each axis of x's grid. Errors: those of these functions.
std::vector<ChannelSplit> channel_splits(const Tensor& x, const Tensor& w, const ProductAttributes& attributes = {});

// The number of channels of x, the last dimension, including those of other ranks.
std::int64_t channels_of(const Tensor& x);
// x with all of its channels on every rank, by an exchange where they are split.
Tensor whole_channels(const Tensor& x);

}  // namespace mpigrad
