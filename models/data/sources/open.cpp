#include "models/data/sources/open.h"

#include <algorithm>
#include <regex>

#include "comm/hdf5/hdf5_file.h"
#include "framework/base/joined.h"
#include "framework/base/printable.h"
#include "models/data/records/source.h"
#include "models/data/sources/formats.h"
#include "models/data/volumes/npy_pairs.h"
#include "models/data/volumes/volume_formats.h"

namespace mpigrad::data {

namespace fs = std::filesystem;

namespace {

bool ends(const fs::path& path, std::initializer_list<std::string_view> endings) {
  const auto name = path.filename().string();
  return std::any_of(endings.begin(), endings.end(), [&](std::string_view ending) { return name.ends_with(ending); });
}

// Refuses options that this kind of data does not support; `what` is the kind.
struct Uses {
  bool group = false, channels = false, names = false;
};
void require_used(const fs::path& path, const OpenOptions& o, const char* what, const Uses& uses) {
  const auto refuse = [&](const std::string& option) { fail("[data] {}: {} means nothing for {}", path.string(), option, what); };
  if (!o.group.empty() && !uses.group) refuse(fmt::format("the part '{}'", o.group));
  if (o.channels != 0 && !uses.channels) refuse(fmt::format("a choice of {} channels", o.channels));
  const ArrayNames usual;
  if (uses.names) return;
  if (o.names.volume != usual.volume) refuse(fmt::format("a dataset of volumes, '{}',", o.names.volume));
  if (o.names.label != usual.label) refuse(fmt::format("a dataset of labels, '{}',", o.names.label));
}

bool is_idx(const fs::path& path) {
  static const std::regex pattern(R"(.*idx\d-[a-z]+(\.gz)?|.*\.idx(\.gz)?)");
  return std::regex_match(path.filename().string(), pattern);
}

NumberArray read_array(const fs::path& path) { return ends(path, {".npy", ".npy.gz"}) ? read_npy_array(path) : read_idx(path); }

// Appends one label array for a vector, one for each column of a matrix.
void append_labels(std::vector<Labels>& to, const NumberArray& array, const std::string& name, const fs::path& file) {
  const auto text = fmt::format("{}: '{}'", file.string(), printable(name));
  require(array.shape.rank() == 1 || array.shape.rank() == 2, "[data] {}: labels are [n] or [n, T], not {}", text, array.shape);
  require(array.shape.elements() > 0, "[data] {}: no labels in {}", text, array.shape);
  const auto columns = array.shape.rank() == 2 ? static_cast<std::size_t>(array.shape[1]) : 1;
  require_target_count(static_cast<std::int64_t>(to.size() + columns), "[data] " + text);
  const auto values = integers(array.values, array.type, text);
  const auto shown = printable(name);
  for (std::size_t t = 0; t < columns; ++t) {
    auto& labels = to.emplace_back(Labels{columns == 1 ? shown : fmt::format("{} {}", shown, t), {}});
    labels.values.reserve(values.size() / columns);
    for (std::size_t i = t; i < values.size(); i += columns) labels.values.push_back(values[i]);
  }
}

std::vector<Labels> given_labels(const OpenOptions& o) {
  std::vector<Labels> labels;
  for (const auto& [name, path] : o.labels) append_labels(labels, read_array(path), name, path);
  return labels;
}

// The labels of P-images-idx3-ubyte are in P-*-idx1-ubyte, also with dots and with .gz.
std::vector<Labels> labels_beside(const fs::path& path) {
  static const std::regex images(R"((.*?)images([-.]idx)\d(-[a-z]+)(\.gz)?)");
  const auto file = path.filename().string();
  std::smatch parts;
  std::vector<Labels> labels;
  if (!std::regex_match(file, parts, images)) return labels;
  const std::string prefix = parts[1], ending = std::string(parts[2]) + "1" + std::string(parts[3]);
  const auto folder = path.parent_path().empty() ? fs::path(".") : path.parent_path();
  std::map<std::string, fs::path> found;  // packed and unpacked files are the same labels
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    auto name = entry.path().filename().string();
    if (name.ends_with(".gz")) name.resize(name.size() - 3);
    if (!name.starts_with(prefix) || !name.ends_with(ending) || name.size() <= prefix.size() + ending.size()) continue;
    const auto middle = name.substr(prefix.size(), name.size() - prefix.size() - ending.size());
    if (middle.find('-') == std::string::npos)
      found.emplace(middle, entry.path());  // otherwise a file of another set with a
                                            // longer name
  }
  for (const auto& [name, labels_path] : found) append_labels(labels, read_idx(labels_path), name, labels_path);
  return labels;
}

SourcePtr in_memory(Samples samples, std::vector<Labels> labels, const OpenOptions& o) {
  if (!o.labels.empty()) labels = given_labels(o);
  if (o.extents.rank() > 0) {
    const auto to = o.extents.rank() == 2 ? Shape{1, o.extents[0], o.extents[1]} : o.extents;
    const bool picture = samples.extents[0] == 1;
    samples = fitted(std::move(samples), to, o.fit.value_or(picture ? augment::Fit::cover : augment::Fit::pad));
  }
  return std::make_shared<MemorySource>(std::move(samples), std::move(labels));
}

SourcePtr open_npz(const fs::path& path, const OpenOptions& o) {
  require_used(path, o, "arrays of .npz", {.group = true});
  const auto prefix = o.group.empty() ? "" : o.group + "_";
  auto arrays = read_npz(path, prefix);
  std::vector<std::string> names, images;
  std::vector<Labels> labels;
  for (const auto& [name, array] : arrays) {
    names.push_back(fmt::format("{} {}", printable(name), array.shape));
    const auto rank = array.shape.rank();
    if (rank >= 3) images.push_back(name);
    if ((rank == 1 || rank == 2) && !is_floating(array.type)) append_labels(labels, array, name.substr(prefix.size()), path);
  }
  require(images.size() == 1,
          "[data] {}: {} arrays '{}*' of samples, of rank 3 to 5; a group (train, val, test) chooses. It has: {}", path.string(),
          images.size(), prefix, names.empty() ? "none" : joined(names, ", "));
  const auto found = std::find_if(arrays.begin(), arrays.end(), [&](const auto& each) { return each.name == images.front(); });
  return in_memory(samples_of(std::move(found->array), path), std::move(labels), o);
}

SourcePtr open_cifar(std::vector<fs::path> files, const OpenOptions& o) {
  auto [samples, labels] = read_cifar(files);
  return in_memory(std::move(samples), std::move(labels), o);
}

SourcePtr open_records(const fs::path& path, const OpenOptions& o) {
  require_used(path, o, "TFRecord files", {.channels = true, .names = true});
  require(o.labels.empty(), "[data] {}: targets of TFRecord files are in them", path.string());
  RecordOptions options{.extents = o.extents, .threads = o.threads};
  const ArrayNames usual;
  if (o.names.volume != usual.volume) options.volume = o.names.volume;
  if (o.names.label != usual.label) options.targets = o.names.label;
  if (!o.targets) options.targets.clear();
  if (o.channels > 0) options.channels = o.channels;
  return std::make_shared<RecordSource>(path, options);
}

SourcePtr open_npy_pairs(const fs::path& path, const OpenOptions& o) {
  require_used(path, o, "volumes and labels of .npy", {});
  require(o.labels.empty() && o.extents.rank() == 0, "[data] {}: volumes of .npy keep their extents and have their own labels",
          path.string());
  return o.targets ? std::make_shared<NpyPairs>(path) : std::make_shared<NpyPairs>(path, NpyPairsOptions{.label = ""});
}

// Universes have a dataset `full`; files of pack() and all other files of that kind have a volume by name.
SourcePtr open_hdf5(const fs::path& path, const OpenOptions& o) {
  require(o.extents.rank() == 0,
          "[data] {}: samples of HDF5 files keep their extents; resize them when they are packed, or in the "
          "recipe",
          path.string());
  require(o.labels.empty(), "[data] {}: labels of HDF5 files are in them", path.string());
  const auto files = hdf5_files(path);
  const Hdf5Reader first(files.front(), Hdf5Reach::folder);
  const bool universes = o.group.empty() && first.contains("full");
  require_used(path, o, universes ? "universes" : "HDF5", {.group = true, .names = !universes});
  if (universes) return std::make_shared<UniverseSource>(path, UniverseOptions{.targets = o.targets});
  auto names = o.names;
  // Labels may be missing unless they were asked for by name.
  const bool usual = names.label == ArrayNames{}.label;
  if (!o.targets || (usual && !first.contains((o.group.empty() ? "" : o.group + "/") + names.label))) names.label.clear();
  return std::make_shared<ArraySource>(path, o.group, names);
}

SourcePtr open_folder(const fs::path& path, const OpenOptions& o) {
  std::vector<fs::path> train, test;
  bool hdf5 = false, records = false, other = false;
  std::error_code error;
  fs::directory_iterator entries(path, error);
  require(!error, "[data] {}: the folder cannot be read: {}", path.string(), error.message());
  for (const auto& entry : entries) {
    const auto& each = entry.path();
    if (ends(each, {".bin", ".bin.gz"})) (each.filename().string().starts_with("test") ? test : train).push_back(each);
    hdf5 = hdf5 || ends(each, {".h5", ".hdf5"});
    records = records || is_record_file(each);
    other = other || is_picture(each) || is_volume(each) || fs::is_directory(each, error);
  }
  if (!train.empty() || !test.empty()) {
    require_used(path, o, "CIFAR", {.group = true});
    require(o.group.empty() || o.group == "train" || o.group == "test", "[data] {}: CIFAR has the groups train and test, not {}",
            path.string(), o.group);
    auto& files = o.group == "test" ? test : train;
    std::erase_if(files, [](const fs::path& file) { return file.filename().string().starts_with("batches"); });
    require(!files.empty(), "[data] {}: no files of the group {}", path.string(), o.group == "test" ? "test" : "train");
    std::sort(files.begin(), files.end());
    return open_cifar(files, o);
  }
  if (hdf5) return open_hdf5(path, o);
  if (records) return open_records(path, o);
  if (has_npy_pairs(path)) return open_npy_pairs(path, o);
  require(other,
          "[data] {}: nothing readable in this folder: pictures, volumes, folders of them, *.h5, *.tfrecord, *_x.npy, "
          "CIFAR's *.bin",
          path.string());
  const auto source = std::make_shared<FolderSource>(
      path,
      FolderOptions{.extents = o.extents, .fit = o.fit, .channels = o.channels, .threads = o.threads, .labels = given_labels(o)});
  const bool pictures = source->type() != DType::float32;
  require_used(path, o, pictures ? "a folder of pictures" : "a folder of volumes", {.channels = pictures});
  return source;
}

}  // namespace

SourcePtr open_source(const fs::path& path, const OpenOptions& o) {
  std::error_code error;
  require(fs::exists(path, error), "[data] {}: no such file or folder", path.string());
  if (fs::is_directory(path, error)) return open_folder(path, o);
  if (ends(path, {".h5", ".hdf5"})) return open_hdf5(path, o);
  if (ends(path, {".npz"})) return open_npz(path, o);
  if (is_record_file(path)) return open_records(path, o);
  require_used(path, o, "a file of this kind", {});
  if (ends(path, {".bin", ".bin.gz"})) return open_cifar({path}, o);
  if (ends(path, {".npy", ".npy.gz"})) return in_memory(samples_of(read_npy_array(path), path), {}, o);
  if (is_idx(path))
    return in_memory(samples_of(read_idx(path), path), o.labels.empty() ? labels_beside(path) : std::vector<Labels>{}, o);
  if (is_volume(path)) {
    const auto volume = volume_format_of(path).read_scaled(path);
    Samples samples{path, 1, volume.channels, volume.extents, DType::float32, Bytes(volume.values.size() * sizeof(float))};
    std::memcpy(samples.values.data(), volume.values.data(), samples.values.size());
    return in_memory(std::move(samples), {}, o);
  }
  fail(
      "[data] {}: no known format: IDX (*-idx3-ubyte), .npy, .npz, CIFAR's .bin, .tfrecord, .h5, each but the last also packed "
      "by "
      "gzip, {}, or a folder of pictures or volumes",
      path.string(), volume_patterns());
}

}  // namespace mpigrad::data
