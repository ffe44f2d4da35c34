#pragma once
// Folders of volumes, in any format of volume_formats.h, whose extents and spacings may differ, with or without a volume of
// labels for each.

#include <array>
#include <filesystem>
#include <optional>

#include "models/data/source.h"
#include "models/data/volumes/label_rules.h"
#include "models/data/volumes/volume.h"

namespace mpigrad::data {

constexpr std::int64_t volumes_in_memory = std::int64_t{1} << 30;  // bytes that stay in a process's memory by default

struct VolumesOptions {
  // The orientation, such as "RAS", to which every volume whose file places its cells is turned by exchanges and flips of axes
  // (orientation.h). "": volumes stay as stored. [D, H, W] are below those of the turned volume.
  std::string orientation{};
  // mm between cells along D, H, W to which every volume is resampled: values linearly, or by cubic B-splines (the mean over a
  // larger cell), labels the one with most of its weight. None: cells as stored.
  std::optional<std::array<double, 3>> spacing{};
  bool cubic = false;
  // Without `spacing`: a volume whose spacing along an axis is more than 1 % outside this range is resampled along this axis, to
  // the nearest spacing of the range. 0: any spacing.
  std::array<double, 3> least_spacing{}, most_spacing{};
  LabelRules labels{};  // classes of stored labels
  // Without labels: every channel is a file, NAME_0000, NAME_0001, ... With labels their names say that (cases.h).
  bool channel_files = false;
  // A table (CSV) with the images' file names in its first column and numbers in the others: targets [T] of each volume, float64,
  // named by their columns. Replaces the labels.
  std::filesystem::path targets{};
  // Bytes of volumes that stay in memory after they are read; the most recently read ones stay. Negative:
  // volumes_in_memory.
  std::int64_t cache_bytes = -1;
  // A folder, made if it does not exist, for volumes and labels as read() returns them, unpacked, turned and resampled: 4 bytes
  // for each value and label. read() then reads the cells of its box, and no volume stays in memory. Processes share it, and
  // later ones use it as long as paths, sizes and times of the files, the options above and the library's own file are the same.
  // A full disk is a warning: further volumes stay in memory as without a cache. "": none.
  std::filesystem::path cache{};
};

// The volumes of the folder `images`, in the order of their names, or the volume in the file `images`, and the files of the
// folder `labels` with the same names ("": no labels): int32 labels of cells. The channels of a volume may be files of their own;
// cases.h has the rules for names. All headers are read when the source is made; volumes, whole, when they are asked for. Errors,
// with the file: a folder that is missing or without volumes, an image without labels, a channel that is missing, channels or
// labels of other extents or at other places, another number of channels than the first file; and when a file is asked for, the
// errors of its format's readers.
class VolumeFolder : public Source {
 public:
  VolumeFolder(const std::filesystem::path& images, const std::filesystem::path& labels, const VolumesOptions& options = {});

  std::int64_t size() const override;
  const SampleType& sample_type() const override;
  Shape extents_of(std::int64_t sample) const override;
  void read(std::int64_t sample, const Box& box, std::byte* out) const override;
  void read_targets(std::int64_t sample, const Box& box, std::byte* out) const override;
  std::string name_of_sample(std::int64_t sample) const override;
  // Reads the files, including the images, but not those that the cache has.
  void check(std::int64_t part, std::int64_t parts) const override;

  // As in the file: neither turned nor resampled.
  const VolumeHeader& header(std::int64_t sample) const;
  VolumeHeader turned_header(std::int64_t sample) const;  // turned, not resampled
  // The labels of the file by the rules for labels, neither turned nor resampled.
  std::vector<std::int32_t> stored_labels(std::int64_t sample) const;
  // Labels of the cells of turned_header(), in the file's order of cells.
  std::vector<std::int32_t> labels_in_file(std::int64_t sample, std::vector<std::int32_t> labels) const;
  const std::filesystem::path& image(std::int64_t sample) const;   // of the first channel
  bool channel_files() const;                                      // every channel is a file
  std::string label_file(std::int64_t sample) const;               // the name of a file of predicted labels
  const std::filesystem::path& labels(std::int64_t sample) const;  // Error: there are no labels
  std::array<double, 3> spacing_of(std::int64_t sample) const;     // mm between cells along D, H, W, turned and resampled

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace mpigrad::data
