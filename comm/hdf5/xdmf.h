#pragma once
// XDMF files: descriptions of fields in HDF5 files from which ParaView, VisIt and VTK open them.

#include <array>
#include <filesystem>
#include <string>
#include <vector>

namespace mpigrad {

// The fields of one time, as write_hdf5() has written them.
struct XdmfStep {
  std::filesystem::path hdf5;
  double time = 0;
};

struct XdmfOptions {
  std::array<double, 3> spacing = {1, 1, 1};  // of the points along D, H and W
  // The first point. The viewer's x runs along W, y along H and z along D.
  std::array<double, 3> origin = {0, 0, 0};  // along D, H and W
  // The datasets to show; none: all of real numbers with shape [N, D, H, W, C] or [D, H, W] and no extent 0.
  std::vector<std::string> fields{};
  // Those with C = 3 whose channels are the components along D, H and W of a vector. The viewer gets (W, H, D).
  std::vector<std::string> vectors{};
  bool overwrite = false;
};

// Writes `path` with a time series of the fields; one step is a series, too. A program that adds steps writes the file again
// with all of them (options.overwrite). Every channel and sample is a scalar at the points, of the dataset's name, with " 2" for
// channel 2 if there are more than one, and with "[1]" for sample 1 if there are more than one. The file refers to the HDF5 files
// by paths relative to its own folder.
//
// By the calling process only, on one rank, when the HDF5 files are complete: after write_hdf5(), which is collective. Errors: no
// steps; times that do not ascend; `path` exists and is not to be overwritten; a file or a dataset that is missing, has another
// shape, has complex numbers or none; fields of different extents; names of files or datasets that viewers do not find, with
// other characters than ASCII, with ':', or with a blank at either end.
void write_xdmf(const std::filesystem::path& path, const std::vector<XdmfStep>& steps, const XdmfOptions& options = {});

}  // namespace mpigrad
