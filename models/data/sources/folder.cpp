#include "models/data/sources/folder.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "framework/base/job_queue.h"
#include "framework/base/printable.h"
#include "models/data/images/decode.h"
#include "models/data/volumes/volume_formats.h"

namespace mpigrad::data {

namespace fs = std::filesystem;

namespace {

std::string lower(std::string text) {
  for (auto& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

// A decoded file.
struct Picture {
  Shape extents;
  std::int64_t channels = 0;
  DType type = DType::uint8;
  Bytes values;
};

Picture decode(const fs::path& path, int channels) {
  const auto name = printable(path.string());
  if (is_volume(path)) {
    const auto volume = volume_format_of(path).read_scaled(path);
    Picture result{volume.extents, volume.channels, DType::float32, Bytes(volume.values.size() * sizeof(float))};
    std::memcpy(result.values.data(), volume.values.data(), result.values.size());
    return result;
  }
  const auto bytes = read_bytes(path);
  // The first bytes identify a file more reliably than its name.
  const bool png = bytes.size() >= 4 && bytes[0] == std::byte{0x89} && bytes[1] == std::byte{'P'};
  const bool jpeg = bytes.size() >= 3 && bytes[0] == std::byte{0xff} && bytes[1] == std::byte{0xd8};
  require(png || jpeg, "[data] {}: neither PNG nor JPEG", name);
  const auto pixels = png ? decode_png(bytes, channels, name) : decode_jpeg(bytes, channels, name);
  const auto type = pixels.bits == 16 ? DType::uint16 : DType::uint8;
  Picture result{{1, pixels.height, pixels.width}, pixels.channels, type, Bytes(pixels.values.size())};
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

struct FolderSource::State {
  std::vector<fs::path> files;
  std::vector<std::string> classes;
  std::vector<Labels> labels;
  FolderOptions options;
  augment::Fit fit = augment::Fit::cover;
  SampleType type{.extents = {}, .channels = 0};
  std::optional<JobQueue> queue;  // destroyed first

  void list(const fs::path& path);
  Picture load(std::int64_t sample) const;
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
  require(!files.empty(), "[data] {}: no pictures (*.png, *.jpg) and no volumes ({}) in this folder", path.string(),
          volume_patterns());
  for (const auto& file : files)
    require(is_volume(file) == is_volume(files.front()), "[data] {} is a picture, {} a volume: one folder has one kind",
            (is_volume(file) ? files.front() : file).string(), (is_volume(file) ? file : files.front()).string());
  require(classes.empty() || labels_of_folders.values.size() == files.size(),
          "[data] {}: files next to folders: {} belongs to no class", path.string(), files.front().string());
  labels = std::move(options.labels);
  for (const auto& each : labels) require_labels(each, static_cast<std::int64_t>(files.size()), path.string());
  if (labels.empty() && !classes.empty()) labels.push_back(std::move(labels_of_folders));
  for (const auto& each : labels) type.targets.names.push_back(each.name);
  if (!labels.empty()) type.targets.type = DType::int64, type.targets.shape = {static_cast<std::int64_t>(labels.size())};
}

// The first file determines what the others must be, unless the options do.
Picture FolderSource::State::load(std::int64_t sample) const {
  const auto& path = files[static_cast<std::size_t>(sample)];
  auto decoded = decode(path, options.channels);
  const auto& extents = type.extents;
  if (options.extents.rank() > 0 && decoded.extents != extents) {
    Bytes values(static_cast<std::size_t>(extents.elements() * decoded.channels * size_of(decoded.type)));
    fit_stored(decoded.values.data(), decoded.type, decoded.extents, decoded.channels, extents, fit, values.data());
    decoded.extents = extents, decoded.values = std::move(values);
  }
  const auto first = files.front().string();
  require(type.channels == 0 || decoded.channels == type.channels,
          "[data] {} has {} channels, {} has {}: choose the number of channels", path.string(), decoded.channels, first,
          type.channels);
  require(type.channels == 0 || decoded.type == type.type,
          "[data] {} has {} bits for each value, {} has {}: save both in the same way", path.string(), 8 * size_of(decoded.type),
          first, 8 * size_of(type.type));
  require(extents.rank() == 0 || decoded.extents == extents, "[data] {} is {}, {} is {}: choose the extents", path.string(),
          decoded.extents, first, extents);
  return decoded;
}

FolderSource::FolderSource(const fs::path& path, FolderOptions options) : state_(std::make_shared<State>()) {
  auto& s = *state_;
  s.options = std::move(options);
  const auto& o = s.options;
  require(o.channels == 0 || o.channels == 1 || o.channels == 3, "[data] pictures must have 1 or 3 channels, not {}", o.channels);
  s.list(path);
  s.fit = o.fit.value_or(is_volume(s.files.front()) ? augment::Fit::pad : augment::Fit::cover);
  auto& t = s.type;
  if (o.extents.rank() > 0) t.extents = o.extents.rank() == 2 ? Shape{1, o.extents[0], o.extents[1]} : o.extents;
  require(o.extents.rank() == 0 || (t.extents.rank() == 3 && t.extents.elements() > 0),
          "[data] extents must be [H, W] or [D, H, W], at least 1 each: {}", o.extents);
  const auto first = s.load(0);
  t.extents = first.extents, t.channels = first.channels, t.type = first.type;
  if (t.type == DType::uint8) t.transform = Transform::unit;
  if (t.type == DType::uint16) t.transform = Transform::unit16;
  s.queue.emplace(o.threads);
}

std::int64_t FolderSource::size() const { return static_cast<std::int64_t>(state_->files.size()); }
const SampleType& FolderSource::sample_type() const { return state_->type; }
const std::vector<std::string>& FolderSource::classes() const { return state_->classes; }
JobQueue& FolderSource::queue() const { return *state_->queue; }

std::string FolderSource::name_of_sample(std::int64_t sample) const {
  require_sample(*this, sample);
  return printable(state_->files[static_cast<std::size_t>(sample)].string());
}

void FolderSource::read(std::int64_t sample, const Box& box, std::byte* out) const {
  require_sample(*this, sample);
  const auto decoded = state_->load(sample);
  copy_box(decoded.values.data(), decoded.channels * size_of(decoded.type), decoded.extents, box, out);
}

void FolderSource::read_targets(std::int64_t sample, const Box&, std::byte* out) const {
  require_sample(*this, sample);
  auto* to = reinterpret_cast<std::int64_t*>(out);
  for (const auto& each : state_->labels) *to++ = each.values[static_cast<std::size_t>(sample)];
}

void FolderSource::check(std::int64_t part, std::int64_t parts) const {
  std::vector<std::future<void>> checks;
  for (std::int64_t sample = part; sample < size(); sample += parts)
    checks.push_back(queue().submit([state = state_.get(), sample] { (void)state->load(sample); }));
  for (const auto& each : checks) each.wait();
  for (auto& each : checks) each.get();
}

}  // namespace mpigrad::data
