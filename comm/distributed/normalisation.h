#pragma once
// Norms of plain and of distributed tensors; parameters as in distributed.h. Ranks combine (count, mean, M2) by Chan's formula:
// exact for blocks of different sizes, and for ranks that have no elements.

#include "comm/distributed/grid.h"
#include "ops/elementwise/activation.h"
#include "ops/norm/channel_norm.h"

namespace mpigrad {

// The ranks over which statistics are taken: only this rank's part, the parts of its samples, the same part of all samples, or
// the whole batch.
enum class StatisticsOver : std::uint8_t { local, spatial_group, batch_group, all };

struct ChannelNormAttributes {
  double epsilon = 1e-5;
  StatisticsOver statistics = StatisticsOver::all;
  Activation activation = Activation::none;
};
struct BatchNormResult {
  Tensor y;
  BatchNormStatistics statistics;  // biased variance
  double count = 0;                // number of rows they were taken over
};
// activation((x - mean) / sqrt(variance + epsilon) gamma + beta), x: [N, ..., C], gamma and beta: [C].
BatchNormResult batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta,
                           const ChannelNormAttributes& attributes = {});
// The same with given statistics.
Tensor normalise(const Tensor& x, const BatchNormStatistics& statistics, const Tensor& gamma, const Tensor& beta,
                 const ChannelNormAttributes& attributes = {});

struct ChannelGroupNormAttributes {
  // Number of groups of channels, all of one size; 0: each channel is a group (instance norm), 1: all of them are (layer norm).
  std::int64_t groups = 0;
  double epsilon = 1e-5;
  StatisticsOver statistics = StatisticsOver::spatial_group;  // or local; each sample has its own statistics
  Activation activation = Activation::none;
};
// The same with statistics of each sample and group of channels (Wu and He 2018; Ulyanov et al. 2016 for single channels).
Tensor group_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const ChannelGroupNormAttributes& attributes = {});

// Norms of each row separately, along the last dimension, which is whole on every rank: (x - mean) / sqrt(variance + epsilon)
// with the biased variance (Ba et al. 2016), and x / sqrt(mean of x^2 + epsilon) (Zhang and Sennrich 2019); times gamma [C], plus
// beta [C], if given. 16-bit elements are computed in float32.
Tensor layer_norm(const Tensor& x, const Tensor& gamma = {}, const Tensor& beta = {}, double epsilon = 1e-5);
Tensor rms_norm(const Tensor& x, const Tensor& gamma = {}, double epsilon = 1e-5);

}  // namespace mpigrad
