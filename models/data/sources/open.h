#pragma once
// Opens data in any supported format, recognised by name and content.
//
//   source                                        labels
//   *-images-idx3-ubyte[.gz]  (IDX)               every *-NAME-idx1-ubyte[.gz] next to it, as NAME
//   *.npy                                         given
//   *.npz                                         its integer arrays of rank 1 and 2
//   *.bin, or a folder of data_batch_*.bin or     in the records
//     train.bin and test.bin  (CIFAR)
//   a folder of pictures or volumes               its folders' names
//   one volume (volume_formats.h: *.nii[.gz])     given
//   *.h5, *.hdf5, or a folder of them             `label`
//   *.tfrecord, or a folder of them               `y` (and `x` the volume): records of tf.train.Example, as MLPerf's CosmoFlow
//   a folder of NAME_x.npy  (MLPerf's KiTS19)     of cells, NAME_y.npy
//
// Samples are [1, H, W, C] or [D, H, W, C]. Bytes and pictures of 16 bits are mapped to [0, 1] (Transform::unit, unit16), volumes
// of volume_formats.h are scaled to [0, 1], other numbers are as stored.

#include <map>

#include "models/data/sources/folder.h"
#include "models/data/sources/hdf5.h"

namespace mpigrad::data {

struct OpenOptions {
  // HDF5: the group. npz: the first part of the arrays' names up to "_" ("train" for train_images). CIFAR: train or test.
  std::string group{};
  // Files of integers (IDX or .npy), one for each sample; the key is the labels' name. Used instead of the labels in the table.
  std::map<std::string, std::filesystem::path> labels{};
  Shape extents{};  // [H, W] or [D, H, W] to which samples of other extents are fitted; not for HDF5
  std::optional<augment::Fit> fit{};
  int channels = 0;  // for folders of pictures; for TFRecord files, where 0 means 4
  int threads = 2;   // that decode folders and records
  ArrayNames names{};
  bool targets = true;  // false: only the samples are read (HDF5), whether or not there are targets
};

// Errors name the file: missing, not a known format, an option that its format does not support, and the errors of the formats
// (models/data/sources/formats.h).
SourcePtr open_source(const std::filesystem::path& path, const OpenOptions& options = {});

}  // namespace mpigrad::data
