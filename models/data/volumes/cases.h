#pragma once
// The files of a folder of volumes, by case: the images of one subject, and its labels.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace mpigrad::data {

struct VolumeCase {
  std::string name;                             // of the file, without the ending of its format and the number of its channel
  std::vector<std::filesystem::path> images{};  // one, or one for each channel, in their order
  std::filesystem::path labels{};               // empty: none
};

struct VolumeCases {
  std::vector<VolumeCase> cases{};              // in the order of their names
  bool channel_files = false;                   // true: every channel is a file, NAME_0000, NAME_0001, ...
  std::vector<std::string> problems{};          // images without labels, channels that are missing: a line each, with the file
  std::vector<std::filesystem::path> unused{};  // labels without an image
};

// The volumes of the folder `images` (or the volume in the file `images`) and of the folder `labels` ("": no labels), without
// hidden files. An image belongs to the labels with its name, whatever the endings of their formats. If no image has the name of
// labels, but images are called NAME_0000, NAME_0001, ... and labels NAME, as nnU-Net has them, then each image is a channel.
// Without labels `channel_files` says whether images are channels. Errors: a folder that is missing or without volumes.
VolumeCases volume_cases(const std::filesystem::path& images, const std::filesystem::path& labels, bool channel_files = false);

}  // namespace mpigrad::data
