#pragma once
// What the distributed functions of layers share. Not installed.

#include <vector>

#include "comm/spatial/grid.h"

namespace mpigrad::spatial {

// The first split dimension between that of the samples and that of the channels, or -1: outputs get room for halos there.
int halo_dimension(const Layout& layout);
Communicator group_of(const Tensor& x, const std::vector<int>& axes);
// A parameter beside x's local part: replicated over the axes along which x varies.
Tensor replicated_for(const Tensor& x, const Tensor& w);
// Error, for `op`: channels that are split; a share.
void require_whole_channels(const char* op, const Tensor& x);

}  // namespace mpigrad::spatial
