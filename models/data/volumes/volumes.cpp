#include "models/data/volumes/volumes.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <list>
#include <unordered_map>

#include "framework/base/host_memory.h"
#include "framework/base/job_queue.h"
#include "framework/base/printable.h"
#include "models/data/augment/geometry.h"
#include "models/data/sources/bytes.h"
#include "models/data/volumes/orientation.h"
#include "models/data/volumes/table.h"
#include "models/data/volumes/volume_formats.h"

namespace mpigrad::data {

namespace fs = std::filesystem;

namespace {

std::vector<fs::path> volumes_in(const fs::path& folder) {
  std::error_code error;
  if (is_volume(folder) && fs::is_regular_file(folder, error)) return {folder};
  require(fs::is_directory(folder, error), "[data] {}: not a folder of volumes ({})", folder.string(), volume_patterns());
  fs::directory_iterator iterator(folder, error);
  require(!error, "[data] {}: the folder cannot be read: {}", folder.string(), error.message());
  std::vector<fs::path> files;
  for (const auto& entry : iterator)
    if (is_volume(entry.path()) && entry.path().filename().string().front() != '.') files.push_back(entry.path());
  require(!files.empty(), "[data] {}: no volumes ({}) in this folder", folder.string(), volume_patterns());
  std::sort(files.begin(), files.end());
  return files;
}

// The nearest cells, with boxes of cells as in augment::resized.
std::vector<std::int32_t> nearest(const std::vector<std::int32_t>& labels, const Shape& extents, const Shape& to) {
  std::array<std::vector<std::int64_t>, 3> from;
  for (std::size_t a = 0; a < 3; ++a) {
    const auto n = extents[static_cast<int>(a)], m = to[static_cast<int>(a)];
    for (std::int64_t i = 0; i < m; ++i)
      from[a].push_back(std::min(
          n - 1, static_cast<std::int64_t>((static_cast<double>(i) + 0.5) * static_cast<double>(n) / static_cast<double>(m))));
  }
  std::vector<std::int32_t> result;
  result.reserve(static_cast<std::size_t>(to.elements()));
  for (const auto d : from[0])
    for (const auto h : from[1])
      for (const auto w : from[2]) result.push_back(labels[static_cast<std::size_t>((d * extents[1] + h) * extents[2] + w)]);
  return result;
}

// A cache of files; the most recently used ones stay.
template <class T>
class Kept {
 public:
  explicit Kept(std::int64_t bytes) : left_(bytes) {}
  template <class Read>
  std::shared_ptr<const std::vector<T>> get(std::int64_t sample, Read read) {
    if (const auto found = entries_.find(sample); found != entries_.end()) {
      order_.splice(order_.begin(), order_, found->second.place);
      return found->second.values;
    }
    auto values = std::make_shared<const std::vector<T>>(read());
    left_ -= bytes_of(*values);
    order_.push_front(sample);
    entries_[sample] = {values, order_.begin()};
    while (left_ < 0 && !order_.empty()) {
      const auto last = entries_.find(order_.back());
      left_ += bytes_of(*last->second.values);
      entries_.erase(last), order_.pop_back();
    }
    return values;
  }

 private:
  static std::int64_t bytes_of(const std::vector<T>& values) { return static_cast<std::int64_t>(values.size() * sizeof(T)); }
  struct Entry {
    std::shared_ptr<const std::vector<T>> values;
    std::list<std::int64_t>::iterator place;
  };
  std::int64_t left_;
  std::list<std::int64_t> order_;  // most recently used first
  std::unordered_map<std::int64_t, Entry> entries_;
};

// The targets of each file, by the file's name without the ending of its format.
std::unordered_map<std::string, std::vector<double>> targets_of(const Table& table, const std::string& where) {
  require(table.columns.size() >= 2, "[data] {}: needs a column of file names and a column for each target", where);
  std::unordered_map<std::string, std::vector<double>> result;
  for (const auto& row : table.rows) {
    const auto [found, fresh] = result.try_emplace(volume_stem(row.front()));
    require(fresh, "[data] {}: '{}' is in two lines", where, printable(row.front()));
    for (std::size_t i = 1; i < row.size(); ++i) {
      char* end = nullptr;
      const double value = std::strtod(row[i].c_str(), &end);
      require(!row[i].empty() && *end == '\0' && std::isfinite(value), "[data] {}: the target '{}' of '{}' is '{}', not a number",
              where, printable(table.columns[i]), printable(row.front()), printable(row[i]));
      found->second.push_back(value);
    }
  }
  return result;
}

constexpr std::int64_t cache_default = std::int64_t{1} << 30;

}  // namespace

struct VolumeFolder::State {
  explicit State(std::int64_t cache) : values(cache / 2), labels(cache / 2) {}
  struct File {
    fs::path image, labels;
    VolumeHeader header;  // as in the file
    Augmentation turn{};
    Shape stored_extents, extents;  // turned; turned and resampled
    std::vector<double> targets{};
  };
  std::vector<File> files;
  SampleType type{.extents = {0, 0, 0}};
  VolumesOptions options;
  Kept<float> values;
  Kept<std::int32_t> labels;

  // The spacing to which a volume is resampled, from its own along an axis.
  double target_spacing(double mm, std::size_t axis) const {
    constexpr double tolerance = 0.01;
    if (options.spacing) return (*options.spacing)[axis];
    const double least = options.least_spacing[axis], most = options.most_spacing[axis];
    if (!(least > 0) || (mm >= least * (1 - tolerance) && mm <= most * (1 + tolerance))) return mm;
    return mm < least ? least : most;
  }

  // Extents after resampling, of the header of the turned volume.
  Shape extents_of(const VolumeHeader& header) const {
    Shape result = header.extents;
    for (std::size_t a = 0; a < 3; ++a) {
      const auto n = static_cast<double>(header.extents[static_cast<int>(a)]);
      const double mm = target_spacing(header.spacing[a], a);
      if (mm == header.spacing[a]) continue;
      const double cells = n * header.spacing[a] / mm;
      require(cells < 0x1p31, "[data] {} cells of {} mm would be {:.0f} of {} mm", n, header.spacing[a], cells, mm);
      result[static_cast<int>(a)] = std::max<std::int64_t>(1, std::llround(cells));
    }
    return result;
  }

  std::shared_ptr<const std::vector<float>> values_of(std::int64_t sample) {
    return values.get(sample, [&] { return load_values(at(sample)); });
  }
  std::shared_ptr<const std::vector<std::int32_t>> labels_of(std::int64_t sample) {
    return labels.get(sample, [&] { return load_labels(at(sample)); });
  }
  const File& at(std::int64_t sample) const { return files[static_cast<std::size_t>(sample)]; }

  std::vector<float> load_values(const File& file) const {
    auto volume = volume_format_of(file.image).read_values(file.image);
    require(volume.header.extents == file.header.extents && volume.header.channels == type.channels,
            "[data] {} has changed since its header was read", file.image.string());
    auto values = turned(std::move(volume.values), volume.header.extents, type.channels, file.turn);
    if (file.extents == file.stored_extents) return values;
    const auto bytes = static_cast<double>(file.extents.elements() * type.channels) * sizeof(float);
    require_host_memory(fmt::format("[data] {} at {}", file.image.string(), file.extents), 2 * bytes);
    augment::Sample sample;
    sample.extents = file.stored_extents, sample.channels = type.channels, sample.values = std::move(values);
    return augment::resized(sample, augment::whole(sample.extents), file.extents, augment::Filter::area).values;
  }

  std::vector<std::int32_t> load_labels(const File& file) const {
    auto volume = volume_format_of(file.labels).read_labels(file.labels);
    require(volume.header.extents == file.header.extents, "[data] {} has changed since its header was read",
            file.labels.string());
    auto values = turned(std::move(volume.values), volume.header.extents, file.turn);
    return file.extents == file.stored_extents ? values : nearest(values, file.stored_extents, file.extents);
  }
};

VolumeFolder::VolumeFolder(const fs::path& images, const fs::path& labels, const VolumesOptions& options)
    : state_(std::make_shared<State>(options.cache_bytes < 0 ? cache_default : options.cache_bytes)) {
  auto& s = *state_;
  s.options = options;
  if (options.spacing)
    for (const double mm : *options.spacing)
      require(mm > 0 && std::isfinite(mm), "[data] a spacing must be positive, in mm, not {}", mm);
  require(options.orientation.empty() || is_orientation(options.orientation), "[data] '{}' is no orientation such as RAS",
          options.orientation);
  std::unordered_map<std::string, fs::path> labels_by_name;
  std::error_code ignored;
  if (!labels.empty()) {
    for (const auto& path : volumes_in(labels)) labels_by_name.emplace(volume_stem(path), path);
    s.type.targets = {.type = DType::int32, .shape = {}, .per_cell = true};
  }
  std::unordered_map<std::string, std::vector<double>> targets;
  if (!options.targets.empty()) {
    require(labels.empty(), "[data] {}: volumes can have labels or a table of targets, not both", images.string());
    const auto table = read_table(options.targets);
    targets = targets_of(table, options.targets.string());
    s.type.targets = {.type = DType::float64,
                      .shape = {static_cast<std::int64_t>(table.columns.size()) - 1},
                      .per_cell = false,
                      .names = {table.columns.begin() + 1, table.columns.end()}};
  }
  for (const auto& path : volumes_in(images)) {
    auto& file = s.files.emplace_back();
    file.image = path;
    file.header = volume_format_of(path).read_header(path);
    const auto& first = s.files.front();
    require(file.header.channels == first.header.channels, "[data] {} has {} channels, {} has {}", path.string(),
            file.header.channels, first.image.string(), first.header.channels);
    if (!labels.empty()) {
      const auto found = labels_by_name.find(volume_stem(path));
      require(found != labels_by_name.end(), "[data] {} has no labels: there is no such file in {}", path.string(),
              labels.string());
      file.labels = found->second;
      const auto apart = difference(file.header, volume_format_of(file.labels).read_header(file.labels));
      require(apart.empty(), "[data] {} and its labels {} do not have the same cells: {}", path.string(), file.labels.string(),
              apart);
    }
    if (!options.targets.empty()) {
      const auto found = targets.find(volume_stem(path));
      require(found != targets.end(), "[data] {} has no targets for {}", options.targets.string(), path.string());
      file.targets = found->second;
    }
    if (const auto letters = orientation_of(file.header); !options.orientation.empty() && !letters.empty())
      file.turn = turn_between(letters, options.orientation);
    const auto header = turned(file.header, file.turn);
    file.stored_extents = header.extents, file.extents = s.extents_of(header);
    for (int a = 0; a < 3; ++a) s.type.extents[a] = std::max(s.type.extents[a], file.extents[a]);
    s.type.same_extents = s.type.same_extents && file.extents == first.extents;
  }
  s.type.channels = s.files.front().header.channels;
}

std::int64_t VolumeFolder::size() const { return static_cast<std::int64_t>(state_->files.size()); }
const SampleType& VolumeFolder::sample_type() const { return state_->type; }

Shape VolumeFolder::extents_of(std::int64_t sample) const {
  require_sample(*this, sample);
  return state_->at(sample).extents;
}

const VolumeHeader& VolumeFolder::header(std::int64_t sample) const {
  require_sample(*this, sample);
  return state_->at(sample).header;
}

const fs::path& VolumeFolder::image(std::int64_t sample) const {
  require_sample(*this, sample);
  return state_->at(sample).image;
}

const fs::path& VolumeFolder::labels(std::int64_t sample) const {
  require_sample(*this, sample);
  require(target_type().per_cell, "[data] {} was opened without labels", image(sample).string());
  return state_->at(sample).labels;
}

VolumeHeader VolumeFolder::turned_header(std::int64_t sample) const { return turned(header(sample), state_->at(sample).turn); }

std::vector<std::int32_t> VolumeFolder::labels_in_file(std::int64_t sample, std::vector<std::int32_t> labels) const {
  require_sample(*this, sample);
  const auto& file = state_->at(sample);
  return turned(std::move(labels), file.stored_extents, inverse_turn(file.turn));
}

std::array<double, 3> VolumeFolder::spacing_of(std::int64_t sample) const {
  const auto stored = turned_header(sample);
  const auto extents = extents_of(sample);
  auto spacing = stored.spacing;
  for (std::size_t a = 0; a < 3; ++a)
    spacing[a] *= static_cast<double>(stored.extents[static_cast<int>(a)]) / static_cast<double>(extents[static_cast<int>(a)]);
  return spacing;
}

std::string VolumeFolder::name_of_sample(std::int64_t sample) const { return printable(image(sample).string()); }

void VolumeFolder::read(std::int64_t sample, const Box& box, std::byte* out) const {
  require_sample(*this, sample);
  const auto values = state_->values_of(sample);
  copy_box(reinterpret_cast<const std::byte*>(values->data()), channels() * static_cast<std::int64_t>(sizeof(float)),
           state_->at(sample).extents, box, out);
}

void VolumeFolder::read_targets(std::int64_t sample, const Box& box, std::byte* out) const {
  require_sample(*this, sample);
  if (const auto& targets = state_->at(sample).targets; !targets.empty())
    std::memcpy(out, targets.data(), targets.size() * sizeof(double));
  if (!target_type().per_cell) return;
  const auto values = state_->labels_of(sample);
  copy_box(reinterpret_cast<const std::byte*>(values->data()), sizeof(std::int32_t), state_->at(sample).extents, box, out);
}

void VolumeFolder::check(std::int64_t part, std::int64_t parts) const {
  for (auto sample = part; sample < size(); sample += parts)
    queue().run([&] {
      (void)state_->values_of(sample);
      if (target_type().per_cell) (void)state_->labels_of(sample);
    });
}

}  // namespace mpigrad::data
