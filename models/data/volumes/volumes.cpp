#include "models/data/volumes/volumes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <span>
#include <unordered_map>

#include "framework/base/host_memory.h"
#include "framework/base/job_queue.h"
#include "framework/base/printable.h"
#include "models/data/augment/geometry.h"
#include "models/data/sources/bytes.h"
#include "models/data/volumes/cases.h"
#include "models/data/volumes/orientation.h"
#include "models/data/volumes/table.h"
#include "models/data/volumes/volume_cache.h"
#include "models/data/volumes/volume_formats.h"

namespace mpigrad::data {

namespace fs = std::filesystem;

namespace {

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

// The header of the image, or of the first channel's with the number of channels.
VolumeHeader header_of(const VolumeCase& of) {
  const auto& first = of.images.front();
  auto header = volume_format_of(first).read_header(first);
  if (of.images.size() == 1) return header;
  for (const auto& path : of.images) {
    const auto other = volume_format_of(path).read_header(path);
    require(other.channels == 1, "[data] {} has {} channels; a file of one channel has one", path.string(), other.channels);
    const auto apart = difference(header, other);
    require(apart.empty(), "[data] {} and {} do not have the same cells: {}", first.string(), path.string(), apart);
  }
  header.channels = static_cast<std::int64_t>(of.images.size());
  return header;
}

}  // namespace

struct VolumeFolder::State {
  explicit State(std::int64_t cache) : values(cache / 2), labels(cache / 2) {}
  struct File : VolumeCase {
    VolumeHeader header;  // as in the file
    Augmentation turn{};
    Shape stored_extents, extents;  // turned; turned and resampled
    std::vector<double> targets{};
  };
  std::vector<File> files;
  bool channel_files = false;
  SampleType type{.extents = {0, 0, 0}};
  VolumesOptions options;
  Kept<float> values;
  Kept<std::int32_t> labels;
  std::optional<VolumeCache> cache{};
  bool full = false;  // nothing more could be written to the cache

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

  void read_values(std::int64_t sample, const Box& box, std::byte* out) {
    const auto& file = at(sample);
    const auto key = fmt::format("{} channels, {}", type.channels, options.cubic ? "cubic" : "linear");
    read_box(
        values, sample, file.images, key, type.channels, [&] { return load_values(file); }, box, out);
  }
  void read_labels(std::int64_t sample, const Box& box, std::byte* out) {
    const auto& file = at(sample);
    const auto& rules = options.labels;
    const auto key = fmt::format("classes {}, without {}", std::map(rules.numbers.begin(), rules.numbers.end()), rules.ignored);
    read_box(
        labels, sample, {file.labels}, key, 1, [&] { return load_labels(file); }, box, out);
  }
  // From the cache or from memory; else loads the volume and keeps it there.
  template <class T, class Load>
  void read_box(Kept<T>& memory, std::int64_t sample, const std::vector<fs::path>& paths, std::string key, std::int64_t channels,
                Load load, const Box& box, std::byte* out) {
    const auto& file = at(sample);
    const auto cell = channels * static_cast<std::int64_t>(sizeof(T));
    std::error_code none;
    const auto copy = [&](const std::vector<T>& all) {
      copy_box(reinterpret_cast<const std::byte*>(all.data()), cell, file.extents, box, out);
    };
    if (!cache) return copy(*memory.get(sample, load));
    for (const auto& path : paths) key += "\n" + fs::absolute(path, none).string();
    key += fmt::format("\naxes {}, flips {}, {} to {}", file.turn.axes, file.turn.flip, file.stored_extents, file.extents);
    const CachedVolume there{key, state_of(paths), file.extents, cell};
    if (cache->read(there, box, out)) return;
    if (full) return copy(*memory.get(sample, load));
    const auto all = load();
    if (state_of(paths) == there.state) full = !cache->add(there, std::as_bytes(std::span(all)));
    copy(all);
  }
  const File& at(std::int64_t sample) const { return files[static_cast<std::size_t>(sample)]; }

  std::vector<float> load_values(const File& file) const {
    auto values = turned(stored_values(file), file.header.extents, type.channels, file.turn);
    if (file.extents == file.stored_extents) return values;
    const auto bytes = static_cast<double>(file.extents.elements() * type.channels) * sizeof(float);
    require_host_memory(fmt::format("[data] {} at {}", file.images.front().string(), file.extents), 2 * bytes);
    augment::Sample sample;
    sample.extents = file.stored_extents, sample.channels = type.channels, sample.values = std::move(values);
    const auto resampled = [&](augment::Filter filter) {
      return augment::resized(sample, augment::whole(sample.extents), file.extents, filter).values;
    };
    auto values_there = resampled(augment::Filter::area);
    if (!options.cubic) return values_there;
    // A spline is nowhere 0 in surroundings that were set to 0, and these would count as measured.
    std::vector<bool> is_zero;
    for (const float value : values_there) is_zero.push_back(value == 0);
    values_there = {};
    values_there = resampled(augment::Filter::cubic);
    for (std::size_t i = 0; i < is_zero.size(); ++i)
      if (is_zero[i]) values_there[i] = 0;
    return values_there;
  }

  // [D, H, W, C] of the file, or of the files of all channels.
  std::vector<float> stored_values(const File& file) const {
    std::vector<float> values;
    const auto channels = file.images.size();
    for (std::size_t c = 0; c < channels; ++c) {
      auto volume = volume_format_of(file.images[c]).read_values(file.images[c]);
      require(volume.header.extents == file.header.extents &&
                  volume.header.channels * static_cast<std::int64_t>(channels) == type.channels,
              "[data] {} has changed since its header was read", file.images[c].string());
      if (channels == 1) return std::move(volume.values);
      values.resize(channels * volume.values.size());
      for (std::size_t i = 0; i < volume.values.size(); ++i) values[i * channels + c] = volume.values[i];
    }
    return values;
  }

  std::vector<std::int32_t> stored_labels(const File& file) const {
    auto volume = volume_format_of(file.labels).read_labels(file.labels);
    require(volume.header.extents == file.header.extents, "[data] {} has changed since its header was read",
            file.labels.string());
    options.labels.apply(volume.values, printable(file.labels.string()));
    return std::move(volume.values);
  }

  std::vector<std::int32_t> load_labels(const File& file) const {
    auto values = turned(stored_labels(file), file.header.extents, file.turn);
    return file.extents == file.stored_extents ? values : augment::resized_labels(values, file.stored_extents, file.extents);
  }
};

VolumeFolder::VolumeFolder(const fs::path& images, const fs::path& labels, const VolumesOptions& options)
    : state_(std::make_shared<State>(options.cache_bytes < 0 ? volumes_in_memory : options.cache_bytes)) {
  auto& s = *state_;
  s.options = options;
  if (!options.cache.empty()) s.cache.emplace(options.cache);
  if (options.spacing)
    for (const double mm : *options.spacing)
      require(mm > 0 && std::isfinite(mm), "[data] a spacing must be positive, in mm, not {}", mm);
  require(options.orientation.empty() || is_orientation(options.orientation), "[data] '{}' is no orientation such as RAS",
          options.orientation);
  auto found = volume_cases(images, labels, options.channel_files);
  require(found.problems.empty(), "[data] {}", found.problems.empty() ? "" : found.problems.front());
  s.channel_files = found.channel_files;
  if (!labels.empty()) s.type.targets = {.type = DType::int32, .shape = {}, .per_cell = true};
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
  for (auto& each : found.cases) {
    auto& file = s.files.emplace_back();
    static_cast<VolumeCase&>(file) = std::move(each);
    const auto& path = file.images.front();
    file.header = header_of(file);
    const auto& first = s.files.front();
    require(file.header.channels == first.header.channels, "[data] {} has {} channels, {} has {}", path.string(),
            file.header.channels, first.images.front().string(), first.header.channels);
    if (!labels.empty()) {
      const auto apart = difference(file.header, volume_format_of(file.labels).read_header(file.labels));
      require(apart.empty(), "[data] {} and its labels {} do not have the same cells: {}", path.string(), file.labels.string(),
              apart);
    }
    if (!options.targets.empty()) {
      const auto row = targets.find(file.name);
      require(row != targets.end(), "[data] {} has no targets for {}", options.targets.string(), path.string());
      file.targets = row->second;
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
  return state_->at(sample).images.front();
}

std::string VolumeFolder::label_file(std::int64_t sample) const {
  auto file = image(sample).filename().string();
  if (state_->channel_files) file.replace(0, volume_stem(file).size(), state_->at(sample).name);
  return label_file_name(file);
}

bool VolumeFolder::channel_files() const { return state_->channel_files; }

std::vector<std::int32_t> VolumeFolder::stored_labels(std::int64_t sample) const {
  (void)labels(sample);
  return state_->stored_labels(state_->at(sample));
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
  state_->read_values(sample, box, out);
}

void VolumeFolder::read_targets(std::int64_t sample, const Box& box, std::byte* out) const {
  require_sample(*this, sample);
  if (const auto& targets = state_->at(sample).targets; !targets.empty())
    std::memcpy(out, targets.data(), targets.size() * sizeof(double));
  if (!target_type().per_cell) return;
  state_->read_labels(sample, box, out);
}

void VolumeFolder::check(std::int64_t part, std::int64_t parts) const {
  std::vector<std::byte> cell(static_cast<std::size_t>(channels()) * sizeof(float));
  for (auto sample = part; sample < size(); sample += parts)
    queue().run([&] {
      read(sample, {{0, 0, 0}, {1, 1, 1}}, cell.data());
      if (target_type().per_cell) read_targets(sample, {{0, 0, 0}, {1, 1, 1}}, cell.data());
    });
}

}  // namespace mpigrad::data
