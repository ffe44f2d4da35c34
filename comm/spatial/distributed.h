#pragma once
// Layers' arithmetic on distributed tensors. Every function takes a plain tensor, too, and then is the local op. With a layout,
// windows that cross a cut are completed by an exchange of boxes first, and parameters, which are the same on all ranks, are
// replicated over exactly those grid axes along which x varies: replicating over more would multiply their gradient. Where x has
// 16 bits, float32 weights and biases are rounded to its type behind that, so that their gradients are float32 when they are
// reduced, and halos travel in 16 bits; statistics, gamma and beta of norms stay float32.

#include "comm/spatial/redistribute.h"
#include "ops/conv.h"
#include "ops/norm.h"
#include "ops/pool.h"

namespace mpigrad::distributed {

// leaky_relu(conv(x, w) + bias, slope), x: [N, D, H, W, C]; bias may be none, slope 1 is no activation. Output blocks belong to
// the rank that owns the centre of their window.
Tensor conv(const Tensor& x, const Tensor& w, const Tensor& bias = {}, double slope = 1, const ConvAttributes& attributes = {});
Tensor conv_transpose(const Tensor& x, const Tensor& w, const Tensor& bias = {}, const ConvTransposeAttributes& attributes = {});
Tensor avg_pool(const Tensor& x, const PoolAttributes& attributes);
Tensor leaky_avg_pool(const Tensor& x, double slope, const PoolAttributes& attributes);
Tensor max_pool(const Tensor& x, const PoolAttributes& attributes);
// leaky_relu(x + bias, slope), bias [C] or none.
Tensor bias_activation(const Tensor& x, const Tensor& bias, double slope);
// Mean over D, H, W: [N, D, H, W, C] -> [N, C], the same on all ranks of the spatial axes.
Tensor global_avg_pool(const Tensor& x);

// Over which ranks batch statistics are taken: this rank's part alone, the parts of its samples, or the whole batch.
enum class Statistics : std::uint8_t { local, spatial_group, all };
struct BatchNormResult {
  Tensor y;
  BatchNormStatistics statistics;  // biased variance
  double count = 0;                // rows they were taken over
};
// Ranks combine (count, mean, M2) by Chan's formula. Then leaky_relu(., slope).
BatchNormResult batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double epsilon,
                           Statistics over = Statistics::all, double slope = 1);
// With given statistics.
Tensor normalise(const Tensor& x, const BatchNormStatistics& statistics, const Tensor& gamma, const Tensor& beta, double epsilon,
                 double slope = 1);

// leaky_relu(x w^T + bias, slope); x: [N, in], whose features are whole on every rank.
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias = {}, double slope = 1);
// [N, ...] -> [N, product]; the features become the same on all ranks of the axes that split them.
Tensor flatten(const Tensor& x);

// w for use beside x: replicated over the axes along which x varies, and float32 cast to x's type if that has 16 bits. Once per
// tape, x's type and axes: a weight that is used twice is cast once.
Tensor parameter_for(const Tensor& x, const Tensor& w);

}  // namespace mpigrad::distributed
