#include "models/data/volumes/volume_formats.h"

#include <algorithm>
#include <vector>

#include "framework/base/joined.h"
#include "models/data/sources/formats.h"
#include "models/data/volumes/nifti.h"

namespace mpigrad::data {
namespace {

constexpr std::string_view nifti_endings[]{".nii", ".nii.gz"};

// To add a format: a row here, its functions in a file next to nifti.cpp, its valid and damaged files in tests/fuzz/readers.cpp.
constexpr VolumeFormat formats[]{
    {.name = nifti_name,
     .endings = nifti_endings,
     .read_header = read_nifti_header,
     .read_values = read_nifti_volume,
     .read_labels = read_nifti_labels,
     .read_scaled = read_nifti,
     .write_labels = write_nifti_labels},
};

// The ending of a file's name, of any format; "": none.
std::string_view ending_of(const std::filesystem::path& path, const VolumeFormat& format) {
  auto name = path.filename().string();
  for (auto& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  for (const auto ending : format.endings)
    if (name.ends_with(ending)) return ending;
  return {};
}

}  // namespace

std::span<const VolumeFormat> volume_formats() { return formats; }

const VolumeFormat* find_volume_format(const std::filesystem::path& path) {
  const auto* found = std::find_if(std::begin(formats), std::end(formats),
                                   [&](const VolumeFormat& format) { return !ending_of(path, format).empty(); });
  return found == std::end(formats) ? nullptr : found;
}

const VolumeFormat& volume_format_of(const std::filesystem::path& path) {
  const auto* format = find_volume_format(path);
  require(format != nullptr, "[data] {}: not a known format of volumes: {}", path.string(), volume_patterns());
  return *format;
}

std::string volume_stem(const std::filesystem::path& path) {
  auto name = path.filename().string();
  if (const auto* format = find_volume_format(path)) name.resize(name.size() - ending_of(path, *format).size());
  return name;
}

std::string label_file_name(const std::filesystem::path& image) {
  const auto* own = find_volume_format(image);
  if (own != nullptr && own->write_labels != nullptr) return image.filename().string();
  const auto* written = std::find_if(std::begin(formats), std::end(formats),
                                     [](const VolumeFormat& format) { return format.write_labels != nullptr; });
  return volume_stem(image) + std::string(written->endings.back());
}

std::string volume_format_names() {
  std::vector<std::string_view> names;
  for (const auto& format : formats) names.push_back(format.name);
  return joined(names, ", ");
}

std::string volume_patterns() {
  std::vector<std::string> patterns;
  for (const auto& format : formats)
    for (const auto ending : format.endings) patterns.push_back("*" + std::string(ending));
  return joined(patterns, ", ");
}

}  // namespace mpigrad::data
