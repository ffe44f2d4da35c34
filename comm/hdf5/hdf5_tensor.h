#pragma once
// Writing and reading distributed tensors in HDF5 files, on any grid.

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/distributed/grid.h"
#include "framework/tensor/tensor.h"

namespace mpigrad {

// Writes a new file with one dataset of the tensor's global shape and type (complex: a compound of r and i, as in h5py).
// Collective on the communicator of the tensor's grid: each rank writes its block; a block that several ranks hold is written by
// the first of them. A tensor without a layout is written by the calling process only. Nothing is recorded. The file appears
// under its name when it is complete; after an error no file remains. Errors, the same on all ranks: the file exists and is not
// to be overwritten, or cannot be made; partial sums (redistribute() adds them up); tensors of the dry device, which have no
// elements.
void write_hdf5(const std::filesystem::path& path, const std::string& name, const Tensor& x, bool overwrite = false);
// Writes a dataset for each tensor. Further errors: no tensors, a name given twice, tensors of different grids.
void write_hdf5(const std::filesystem::path& path, const std::vector<std::pair<std::string, Tensor>>& tensors,
                bool overwrite = false);

// Reads a dataset of numbers to the current device, on each rank its block of the layout. Collective on the communicator of the
// layout's grid. The elements are of `type`, or of the smallest type that holds all values that the file can store; 16-bit
// floating-point numbers are then read as float32. Errors, the same on all ranks: those of Hdf5Reader (a missing file or dataset,
// a dataset without numbers, floating-point numbers requested as integers, a value that does not fit); a layout of another global
// shape, or with partial sums.
Tensor read_hdf5(const std::filesystem::path& path, const std::string& name, const LayoutPtr& layout,
                 std::optional<DType> type = {});
// The same with the shape taken from the file: axis a of the grid splits dimension dimensions[a], as in split_layout(); {}: the
// whole tensor on every rank.
Tensor read_hdf5(const std::filesystem::path& path, const std::string& name, const GridPtr& grid,
                 const std::vector<int>& dimensions, std::optional<DType> type = {});
// The whole tensor without a layout, by the calling process only.
Tensor read_hdf5(const std::filesystem::path& path, const std::string& name, std::optional<DType> type = {});

}  // namespace mpigrad
