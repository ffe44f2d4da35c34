#pragma once
// Several views of the same samples as one batch, so that an encoder runs once and its batch norm sees all of them.

#include "comm/communicator.h"
#include "framework/engine/op.h"

namespace mpigrad::contrastive {

// Views of one shape (and layout), [n, ...] each -> [views * n, ...], one after the other on each rank; nothing is sent. A
// distributed result is split over the same ranks, in blocks with `views` times as many samples: its global order is the order of
// the ranks, which matters only to layers that draw random numbers by sample.
Tensor join_views(const Tensors& views);
// Splits the embeddings of join_views() into those of each view.
Tensors split_views(const Tensor& joined, int views = 2);

}  // namespace mpigrad::contrastive
