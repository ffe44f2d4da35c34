#pragma once
// Writes and reads distributed tensors in HDF5 files, on the ranks of any transport.

#include <filesystem>

#include "comm/communicator.h"

namespace mpigrad::testing {

// Writes files in `folder`, which all ranks share, and removes them. Throws an Error that names the failed check.
void check_hdf5_tensors(const Communicator& world, const std::filesystem::path& folder);

}  // namespace mpigrad::testing
