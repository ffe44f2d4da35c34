#pragma once
// The table of volume formats, with one volume in each file. Readers, the choice of output format for predictions, messages and
// the help of command lines follow it; README.md of models/data says how to add a row.

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "models/data/augment/sample.h"
#include "models/data/volumes/volume.h"

namespace mpigrad::data {

struct VolumeFormat {
  std::string_view name;                      // "NIfTI"
  std::span<const std::string_view> endings;  // of file names, lower case: ".nii"; the last is the default for writing
  // Errors of all functions name the file. read_header() reads no elements.
  VolumeHeader (*read_header)(const std::filesystem::path& path);
  VolumeValues (*read_values)(const std::filesystem::path& path);
  // Whole numbers of one channel, also negative ones; other values are an Error.
  VolumeLabels (*read_labels)(const std::filesystem::path& path);
  // float32, scaled in double from its own least and greatest finite value to [0, 1]; a constant volume becomes 0.
  augment::Sample (*read_scaled)(const std::filesystem::path& path);
  // Labels [D, H, W] on the cells of `like`, a header of any format; null: the format cannot be written. The file appears when it
  // is complete. Error: it exists and `overwrite` is false.
  void (*write_labels)(const std::filesystem::path& path, std::span<const std::int32_t> labels, const VolumeHeader& like,
                       bool overwrite);
};

// All rows of the table. The first row with an ending of the file name is the format of the file.
std::span<const VolumeFormat> volume_formats();

// ---- a file's format, by the end of its name, in upper or lower case

// Null: none.
const VolumeFormat* find_volume_format(const std::filesystem::path& path);
// Error: no format; the message lists the known ones.
const VolumeFormat& volume_format_of(const std::filesystem::path& path);
inline bool is_volume(const std::filesystem::path& path) { return find_volume_format(path) != nullptr; }
// The file's name without its format's ending: volumes and labels with the same stem belong together.
std::string volume_stem(const std::filesystem::path& path);
// The name of a label file for the volume `image`: in the volume's own format if that can be written, else in the first format
// that can.
std::string label_file_name(const std::filesystem::path& image);

// ---- the formats in messages and help

std::string volume_format_names();  // "NIfTI"
std::string volume_patterns();      // "*.nii, *.nii.gz"

}  // namespace mpigrad::data
