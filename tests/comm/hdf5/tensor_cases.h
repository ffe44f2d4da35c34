#pragma once
// Distributed tensors written to HDF5 files and read from them, on the ranks of any transport.

#include <filesystem>

#include "comm/communicator.h"

namespace mpigrad::testing {

// Writes to files in `folder`, which all ranks see, and removes them. An Error names what is wrong.
void check_hdf5_tensors(const Communicator& world, const std::filesystem::path& folder);

}  // namespace mpigrad::testing
