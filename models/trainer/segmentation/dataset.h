#pragma once
// Folders of labelled volumes: images/ and labels/, or nnU-Net's imagesTr, labelsTr and dataset.json.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace mpigrad::trainer::segmenting {

struct DataFolders {
  std::filesystem::path images, labels;
};
// images/ with labels/, or imagesTr/ with labelsTr/; for volumes without labels images/, imagesTs/ or imagesTr/. None: the path
// has no such folder. Error: labels are wanted and there is no folder of them.
std::optional<DataFolders> data_folders(const std::filesystem::path& path, bool wants_labels);

// What dataset.json says, of nnU-Net's version 1 or 2 or of the Medical Segmentation Decathlon.
struct DatasetFile {
  std::filesystem::path path;             // empty: there is none
  std::int64_t classes = 0;               // 0: not said
  std::vector<std::int64_t> ignored{};    // the label called `ignore`
  std::int64_t channels = 0, images = 0;  // 0: not said
  // Where labels are unions: all labels above 0 as regions, "NAME=LABEL+LABEL", and regions_class_order (none: not said).
  std::vector<std::string> regions{};
  std::vector<std::int64_t> region_order{};
  std::vector<std::string> modalities{};  // of the channels; empty: not said
};
// dataset.json in the folder `path`, if its volumes are in imagesTr/. Error: a file that is no such description.
DatasetFile read_dataset_file(const std::filesystem::path& path);

}  // namespace mpigrad::trainer::segmenting
