#pragma once
// Any data there is, by its name and content.
//
//   source                                        labels
//   *-images-idx3-ubyte[.gz]  (IDX)               every *-NAME-idx1-ubyte[.gz] beside it, as NAME
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
// Samples are [1, H, W, C] or [D, H, W, C]; bytes and pictures of 16 bits are seen as [0, 1] (Transform::unit, unit16), other
// numbers as they are stored, volumes of those formats scaled to [0, 1].

#include <map>

#include "models/data/sources/folder.h"
#include "models/data/sources/hdf5.h"

namespace mpigrad::data {

struct OpenOptions {
  // Of HDF5 the group, of .npz the first part of the arrays' names up to "_" ("train" for train_images), of CIFAR train or test.
  std::string group{};
  // Files of integers (IDX or .npy), one for each sample; the key names them. These instead of the labels in the table.
  std::map<std::string, std::filesystem::path> labels{};
  Shape extents{};  // [H, W] or [D, H, W]: samples of other extents get these; not for HDF5
  std::optional<augment::Fit> fit{};
  int channels = 0;  // of folders of pictures; of TFRecord files, where 0 is 4
  int threads = 2;   // that decode folders and records
  ArrayNames names{};
  bool targets = true;  // no: of HDF5 the samples alone, whether or not targets are there
};

// Errors name the file: missing, of no known format, an option that its format has no use for, and what the formats say
// (models/data/sources/formats.h).
SourcePtr open_source(const std::filesystem::path& path, const OpenOptions& options = {});

}  // namespace mpigrad::data
