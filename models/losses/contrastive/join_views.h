#pragma once
// Several views of the same samples as one batch, so that an encoder runs once and its batch norm sees all of them.

#include "comm/communicator.h"
#include "framework/engine/op.h"

namespace mpigrad::contrastive {

// Views of one shape (and layout), [n, ...] each -> [views * n, ...], one after the other on each rank; nothing is sent. A
// distributed result is split over the same ranks, in blocks of so many times as many samples: its global order is that of the
// ranks, which matters to nothing but layers that draw random numbers by sample.
Tensor join_views(const Tensors& views);
// What an encoder made of join_views(): the embeddings of each view.
Tensors split_views(const Tensor& joined, int views = 2);

}  // namespace mpigrad::contrastive
