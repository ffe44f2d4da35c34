#include "models/data/sources/folder.h"

#include <algorithm>

#include "framework/tensor/printable.h"
#include "models/data/images/decode.h"
#include "models/data/sources/formats.h"

namespace mpigrad::data {

namespace fs = std::filesystem;

namespace {

std::string lower(std::string text) {
  for (auto& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

// One decoded file.
struct Decoded {
  Shape extents;
  std::int64_t channels = 0;
  DType type = DType::uint8;
  Bytes values;
};

Decoded decode(const fs::path& path, int channels) {
  const auto name = printable(path.string());
  if (is_volume(path)) {
    const auto volume = read_nifti(path);
    Decoded result{volume.extents, volume.channels, DType::float32, Bytes(volume.values.size() * sizeof(float))};
    std::memcpy(result.values.data(), volume.values.data(), result.values.size());
    return result;
  }
  const auto bytes = read_bytes(path);
  // What a file is, its first bytes say better than its name.
  const bool png = bytes.size() >= 4 && bytes[0] == std::byte{0x89} && bytes[1] == std::byte{'P'};
  const bool jpeg = bytes.size() >= 3 && bytes[0] == std::byte{0xff} && bytes[1] == std::byte{0xd8};
  require(png || jpeg, "[data] {}: neither PNG nor JPEG", name);
  const auto pixels = png ? decode_png(bytes, channels, name) : decode_jpeg(bytes, channels, name);
  Decoded result{{1, pixels.height, pixels.width}, pixels.channels, DType::uint8, Bytes(pixels.values.size())};
  std::memcpy(result.values.data(), pixels.values.data(), pixels.values.size());
  return result;
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> entries;
  fs::directory_iterator iterator(folder, error);
  require(!error, "[data] {}: the folder cannot be read: {}", folder.string(), error.message());
  for (const auto& entry : iterator)
    if (entry.path().filename().string().front() != '.') entries.push_back(entry.path());
  std::sort(entries.begin(), entries.end());
  return entries;
}

std::vector<fs::path> samples_in(const fs::path& folder) {
  auto files = entries_of(folder);
  std::erase_if(files, [](const fs::path& path) { return !is_picture(path) && !is_volume(path); });
  return files;
}

}  // namespace

bool is_picture(const fs::path& path) {
  const auto extension = lower(path.extension().string());
  return extension == ".png" || extension == ".jpg" || extension == ".jpeg";
}

bool is_volume(const fs::path& path) {
  const auto name = lower(path.filename().string());
  return name.ends_with(".nii") || name.ends_with(".nii.gz");
}

struct FolderSource::State {
  std::vector<fs::path> files;
  std::vector<std::string> classes, names;
  std::vector<Labels> labels;
  FolderOptions options;
  augment::Fit fit = augment::Fit::cover;
  Shape extents{};
  std::int64_t channels = 0;
  DType type = DType::uint8;

  void list(const fs::path& path);
  Decoded load(std::int64_t sample) const;
};

void FolderSource::State::list(const fs::path& path) {
  std::error_code error;
  require(fs::is_directory(path, error), "[data] {}: not a folder", path.string());
  files = samples_in(path);
  Labels labels_of_folders{"class", {}};
  for (const auto& folder : entries_of(path)) {
    if (!fs::is_directory(folder, error)) continue;
    const auto inside = samples_in(folder);
    require(!inside.empty(), "[data] {}: no pictures and no volumes in this class", folder.string());
    files.insert(files.end(), inside.begin(), inside.end());
    labels_of_folders.values.insert(labels_of_folders.values.end(), inside.size(), static_cast<std::int64_t>(classes.size()));
    classes.push_back(printable(folder.filename().string()));
  }
  require(!files.empty(), "[data] {}: no pictures (*.png, *.jpg) and no volumes (*.nii, *.nii.gz) in this folder", path.string());
  for (const auto& file : files)
    require(is_volume(file) == is_volume(files.front()), "[data] {} is a picture, {} a volume: one folder has one kind",
            (is_volume(file) ? files.front() : file).string(), (is_volume(file) ? file : files.front()).string());
  require(classes.empty() || labels_of_folders.values.size() == files.size(),
          "[data] {}: files beside folders: {} belongs to no class", path.string(), files.front().string());
  labels = std::move(options.labels);
  for (const auto& each : labels) require_labels(each, static_cast<std::int64_t>(files.size()), path.string());
  if (labels.empty() && !classes.empty()) labels.push_back(std::move(labels_of_folders));
  for (const auto& each : labels) names.push_back(each.name);
}

// The first file settles what the others must be, as far as the options do not.
Decoded FolderSource::State::load(std::int64_t sample) const {
  const auto& path = files[static_cast<std::size_t>(sample)];
  auto decoded = decode(path, options.channels);
  if (options.extents.rank() > 0 && decoded.extents != extents) {
    Bytes values(static_cast<std::size_t>(extents.elements() * decoded.channels * size_of(decoded.type)));
    fit_stored(decoded.values.data(), decoded.type, decoded.extents, decoded.channels, extents, fit, values.data());
    decoded.extents = extents, decoded.values = std::move(values);
  }
  const auto first = files.front().string();
  require(channels == 0 || decoded.channels == channels, "[data] {} has {} channels, {} has {}: say which number is wanted",
          path.string(), decoded.channels, first, channels);
  require(extents.rank() == 0 || decoded.extents == extents, "[data] {} is {}, {} is {}: say which extents are wanted",
          path.string(), decoded.extents, first, extents);
  return decoded;
}

FolderSource::FolderSource(const fs::path& path, FolderOptions options) : state_(std::make_shared<State>()) {
  auto& s = *state_;
  s.options = std::move(options);
  const auto& o = s.options;
  require(o.channels == 0 || o.channels == 1 || o.channels == 3, "[data] pictures have 1 or 3 channels, not {}", o.channels);
  s.list(path);
  s.fit = o.fit.value_or(is_volume(s.files.front()) ? augment::Fit::pad : augment::Fit::cover);
  if (o.extents.rank() > 0) s.extents = o.extents.rank() == 2 ? Shape{1, o.extents[0], o.extents[1]} : o.extents;
  require(o.extents.rank() == 0 || (s.extents.rank() == 3 && s.extents.elements() > 0),
          "[data] extents are [H, W] or [D, H, W], at least 1 each: {}", o.extents);
  const auto first = s.load(0);
  s.extents = first.extents, s.channels = first.channels, s.type = first.type;
  workers_ = std::make_shared<Workers>(o.threads);
}

std::int64_t FolderSource::size() const { return static_cast<std::int64_t>(state_->files.size()); }
const Shape& FolderSource::extents() const { return state_->extents; }
std::int64_t FolderSource::channels() const { return state_->channels; }
DType FolderSource::type() const { return state_->type; }
const std::vector<std::string>& FolderSource::target_names() const { return state_->names; }
const std::vector<std::string>& FolderSource::classes() const { return state_->classes; }

std::string FolderSource::name_of_sample(std::int64_t sample) const {
  require(sample >= 0 && sample < size(), "[data] sample {} of {}", sample, size());
  return printable(state_->files[static_cast<std::size_t>(sample)].string());
}

std::future<void> FolderSource::read_async(std::int64_t sample, std::span<const std::int64_t> begin,
                                           std::span<const std::int64_t> end, DType type, void* out) const {
  require(sample >= 0 && sample < size(), "[data] sample {} of {}", sample, size());
  return workers_->submit([state = state_, sample, type, out, from = std::vector(begin.begin(), begin.end()),
                           to = std::vector(end.begin(), end.end())] {
    const auto decoded = state->load(sample);
    copy_box(decoded.values.data(), decoded.type, decoded.extents, decoded.channels, from, to, type, out);
  });
}

std::future<std::vector<double>> FolderSource::targets_async(std::int64_t sample) const {
  require(sample >= 0 && sample < size(), "[data] sample {} of {}", sample, size());
  std::vector<double> row;
  for (const auto& each : state_->labels) row.push_back(static_cast<double>(each.values[static_cast<std::size_t>(sample)]));
  std::promise<std::vector<double>> done;
  done.set_value(std::move(row));
  return done.get_future();
}

void FolderSource::check(std::int64_t part, std::int64_t parts) const {
  std::vector<std::future<void>> checks;
  for (std::int64_t sample = part; sample < size(); sample += parts)
    checks.push_back(workers_->submit([state = state_, sample] { (void)state->load(sample); }));
  for (auto& each : checks) each.get();
}

}  // namespace mpigrad::data
