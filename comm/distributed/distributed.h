#pragma once
// The arithmetic of layers; norms are in normalisation.h. Every function takes distributed or plain tensors; for plain ones it is
// the local function (local::conv, ... in ops/). With a layout, windows that cross a cut are first completed by an exchange of
// boxes. Parameters are equal on all ranks. The op `replicate` is applied to them along exactly those grid axes along which x
// varies, so that their gradient is summed over these; along a further axis, equal gradients would be added and the sum too large
// by its extent. If x has 16 bits, float32 weights and biases are rounded to x's type after they are replicated; so their
// gradients are reduced in float32. On CPUs kernels take float32 weights and round them only where they compute in bfloat16.
// Halos travel in 16 bits. Norms' statistics, gamma and beta stay float32. Channels and weights may be split, too; channels.h
// describes this. Padding modes other than zeros cost one more exchange for each split dimension: pad() of comm/halos/padding.h
// comes before the window.

#include "comm/distributed/bias_activation.h"
#include "comm/distributed/channels.h"
#include "comm/distributed/normalisation.h"
#include "comm/distributed/redistribute.h"
#include "ops/conv/conv.h"
#include "ops/elementwise/activation.h"
#include "ops/pool/pool.h"

namespace mpigrad {

// activation(conv(x, w) + bias), x: [N, D, H, W, C], w: [K, kd, kh, kw, C/groups], bias [K] -> [N, D', H', W', K], or the same
// without a bias. Each output belongs to the rank that owns the centre of its window. A layer whose bias is optional may pass an
// empty tensor for none, here and in the other convolutions.
Tensor conv(const Tensor& x, const Tensor& w, const ConvAttributes& attributes = {}, const SplitOutputs& outputs = {});
Tensor conv(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvAttributes& attributes = {},
            const SplitOutputs& outputs = {});
// The same for the transposed convolution, w: [C, kd, kh, kw, K/groups], bias [K].
Tensor conv_transpose(const Tensor& x, const Tensor& w, const ConvTransposeAttributes& attributes = {},
                      const SplitOutputs& outputs = {});
Tensor conv_transpose(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvTransposeAttributes& attributes = {},
                      const SplitOutputs& outputs = {});
// avg_pool(activation(x)). If the activation is fused, the tape keeps only the sign of each element of x (one bit).
Tensor avg_pool(const Tensor& x, const PoolAttributes& attributes, Activation activation = Activation::none);
Tensor max_pool(const Tensor& x, const PoolAttributes& attributes);
// Convolutions of fewer dimensions: conv2d of [N, H, W, C] by w: [K, kh, kw, C/groups] -> [N, H', W', K], conv1d of [N, W, C] by
// w: [K, kw, C/groups] -> [N, W', K]. They are conv() with unit extents, also on split tensors.
struct Conv2dAttributes {
  Pair stride = 1, dilation = 1;
  Padding2d padding = 0;
  std::int64_t groups = 1;
  Activation activation = Activation::none;
};
struct Conv1dAttributes {
  std::int64_t stride = 1, dilation = 1;
  Padding1d padding = 0;
  std::int64_t groups = 1;
  Activation activation = Activation::none;
};
Tensor conv2d(const Tensor& x, const Tensor& w, const Conv2dAttributes& attributes = {});
Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dAttributes& attributes = {});
Tensor conv1d(const Tensor& x, const Tensor& w, const Conv1dAttributes& attributes = {});
Tensor conv1d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv1dAttributes& attributes = {});
// Mean over D, H, W: [N, D, H, W, C] -> [N, C], replicated along the spatial axes.
Tensor global_avg_pool(const Tensor& x);

// activation(x w^T + bias); x: [N, in], w: [out, in], bias [out] or none.
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias = {}, Activation activation = Activation::none,
              const SplitOutputs& outputs = {});
// Row indices[i] of the table [rows, features] in place of each index: integers [...] -> [..., features]. The cotangents of a row
// that is used more than once are added up. Error: an index outside [0, rows). Indices may be split over ranks; the table is a
// parameter.
Tensor embedding(const Tensor& indices, const Tensor& table);
// [N, ...] -> [N, product]; the features become replicated along the axes that split them.
Tensor flatten(const Tensor& x);

}  // namespace mpigrad
