#pragma once
// Norms, on plain tensors and on distributed ones, whose parameters are as those in distributed.h. Ranks combine (count, mean,
// M2) by Chan's formula: exact for blocks of different sizes, and for ranks that have none.

#include "comm/distributed/grid.h"
#include "ops/elementwise/activation.h"
#include "ops/norm/channel_norm.h"

namespace mpigrad {

// Over which ranks statistics are taken: this rank's part alone, the parts of its samples, the same part of all samples, or the
// whole batch.
enum class StatisticsOver : std::uint8_t { local, spatial_group, batch_group, all };

struct ChannelNormAttributes {
  double epsilon = 1e-5;
  StatisticsOver statistics = StatisticsOver::all;
  Activation activation = Activation::none;
};
struct BatchNormResult {
  Tensor y;
  BatchNormStatistics statistics;  // biased variance
  double count = 0;                // rows they were taken over
};
// activation((x - mean) / sqrt(variance + epsilon) gamma + beta), x: [N, ..., C], gamma and beta: [C].
BatchNormResult batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta,
                           const ChannelNormAttributes& attributes = {});
// With given statistics.
Tensor normalise(const Tensor& x, const BatchNormStatistics& statistics, const Tensor& gamma, const Tensor& beta,
                 const ChannelNormAttributes& attributes = {});

struct ChannelGroupNormAttributes {
  // Of channels, all of one size; 0: each channel by itself (instance norm), 1: all of them (layer norm).
  std::int64_t groups = 0;
  double epsilon = 1e-5;
  StatisticsOver statistics = StatisticsOver::spatial_group;  // or local: each sample has statistics of its own
  Activation activation = Activation::none;
};
// The same with statistics of each sample and group of channels (Wu and He 2018; Ulyanov et al. 2016 for single channels).
Tensor group_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const ChannelGroupNormAttributes& attributes = {});

// Norms of each row by itself, along the last dimension, which is whole on every rank: (x - mean) / sqrt(variance + epsilon),
// with the biased variance (Ba et al. 2016), and x / sqrt(mean of x^2 + epsilon) (Zhang and Sennrich 2019); times gamma [C], plus
// beta [C], where there are any. 16-bit elements are computed with in float32.
Tensor layer_norm(const Tensor& x, const Tensor& gamma = {}, const Tensor& beta = {}, double epsilon = 1e-5);
Tensor rms_norm(const Tensor& x, const Tensor& gamma = {}, double epsilon = 1e-5);

}  // namespace mpigrad
