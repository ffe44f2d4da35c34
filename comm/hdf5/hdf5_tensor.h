#pragma once
// Distributed tensors in HDF5 files: one call writes them, one call reads them, on any grid.

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/distributed/grid.h"
#include "framework/tensor/tensor.h"

namespace mpigrad {

// Writes a new file with one dataset of the tensor's global shape and type. Collective on the communicator of the tensor's grid:
// each rank writes its block, of values that several ranks hold the first of them. A tensor without a layout is written by the
// calling process only. Nothing is recorded. The file appears under its name when it is complete; after an error nothing of it
// remains. Errors, the same on all ranks: the file exists and is not to be overwritten, or cannot be made; partial sums
// (redistribute() adds them up); tensors of the dry device, which has no elements.
void write_hdf5(const std::filesystem::path& path, const std::string& name, const Tensor& x, bool overwrite = false);
// The same with a dataset for each tensor. Further errors: no tensors, a name given twice, tensors of different grids.
void write_hdf5(const std::filesystem::path& path, const std::vector<std::pair<std::string, Tensor>>& tensors,
                bool overwrite = false);

// Reads a dataset of numbers on the current device: its block on each rank, as the layout says. Collective on the communicator of
// the layout's grid. The elements are of `type`, or of the smallest type that holds all that the file can store; 16-bit
// floating-point numbers are then float32. Errors, the same on all ranks: what Hdf5Reader refuses (a missing file or dataset, no
// numbers, floating-point numbers asked for as integers, a value that does not fit); a layout of another global shape, or with
// partial sums.
Tensor read_hdf5(const std::filesystem::path& path, const std::string& name, const LayoutPtr& layout,
                 std::optional<DType> type = {});
// The same where the file knows the shape: axis a of the grid splits dimension dimensions[a], as of split_layout(); {}: the whole
// tensor on every rank.
Tensor read_hdf5(const std::filesystem::path& path, const std::string& name, const GridPtr& grid,
                 const std::vector<int>& dimensions, std::optional<DType> type = {});
// The whole tensor without a layout, by the calling process only.
Tensor read_hdf5(const std::filesystem::path& path, const std::string& name, std::optional<DType> type = {});

}  // namespace mpigrad
