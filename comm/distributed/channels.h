#pragma once
// Products of x and a weight whose channels are split along grid axes (Dryden et al. 2019; for features of a linear layer the
// 1.5D product of Gholami et al. 2018), alone or beside splits of samples and space along other axes. The operands' layouts say
// how conv(), conv_transpose() and linear() run along each axis:
//
//   filters   the weight's outputs are split: every rank needs all of x and makes its channels of y. x is replicated where it is
//             the same (adjoint: allreduce), gathered where its channels are split (adjoint: reduce-scatter)
//   channels  x's channels, the weight's inputs or both are split: every rank has a partial sum, made whole by an allreduce or,
//             where split outputs are asked for, by a reduce-scatter
//   groups    of a grouped product; x, weight and y are cut between groups, and nothing is sent
//
// A weight that has a split layout stays split, and so does its gradient: 1/P of the memory. One that is the same on all ranks is
// used in part, and its gradient is put together again. Biases and the parameters of norms likewise.

#include <cstdint>
#include <string_view>
#include <vector>

#include "framework/tensor/tensor.h"

namespace mpigrad {

// What a product does along a grid axis; none is data parallelism: the weight is whole, which it is made where it was not.
enum class ChannelSplit : std::uint8_t { none, filters, channels, groups };
constexpr std::string_view name_of(ChannelSplit split) {
  constexpr std::string_view names[] = {"none", "filters", "channels", "groups"};
  return names[static_cast<std::size_t>(split)];
}

// The grid axis along which the channels of a result are to be split, at `cuts`, balanced where left out (between groups, if
// there are any); -1: as the operands' layouts have it, where sums are made whole.
struct SplitOutputs {
  int axis = -1;
  std::vector<std::int64_t> cuts{};
};

struct ProductAttributes {
  std::int64_t groups = 1;
  bool transposed = false;  // of a transposed convolution, whose weight is [C, ..., K/groups]
  SplitOutputs outputs{};
};
// One for each axis of x's grid, of conv, conv_transpose or linear; refuses what these refuse.
std::vector<ChannelSplit> channel_splits(const Tensor& x, const Tensor& w, const ProductAttributes& attributes = {});

// How many channels x has, the last dimension, those of other ranks included.
std::int64_t channels_of(const Tensor& x);
// x with all of its channels on every rank, by an exchange where they are split.
Tensor whole_channels(const Tensor& x);

}  // namespace mpigrad
