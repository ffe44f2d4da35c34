#include "models/data/data_source.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <list>
#include <unordered_map>

#include "comm/hdf5/hdf5_file.h"
#include "comm/hdf5/io_thread.h"
#include "framework/joined.h"
#include "framework/tensor/host_memory.h"
#include "framework/tensor/printable.h"

namespace mpigrad::data {

namespace fs = std::filesystem;

namespace {

void check_sample(std::int64_t sample, std::int64_t size) {
  require(sample >= 0 && sample < size, "[data] sample {} of {}", sample, size);
}

// Files that are open for reading, the most recently used ones; for the I/O thread alone, so that needs no lock.
class OpenFiles {
 public:
  using Inspect = std::function<void(std::size_t, const Hdf5Reader&)>;  // what is wrong with a file that was opened
  OpenFiles(std::vector<fs::path> paths, std::size_t limit, Inspect inspect)
      : paths_(std::move(paths)), limit_(limit), inspect_(std::move(inspect)) {}

  const std::vector<fs::path>& paths() const { return paths_; }
  const Hdf5Reader& operator[](std::size_t file) {
    if (const auto found = where_.find(file); found != where_.end()) {
      open_.splice(open_.begin(), open_, found->second);
      return open_.front().second;
    }
    Hdf5Reader fresh(paths_[file]);
    inspect_(file, fresh);
    if (open_.size() >= limit_) {
      where_.erase(open_.back().first);
      open_.pop_back();
    }
    open_.emplace_front(file, std::move(fresh));
    where_[file] = open_.begin();
    return open_.front().second;
  }

 private:
  std::vector<fs::path> paths_;
  std::size_t limit_;
  Inspect inspect_;
  std::list<std::pair<std::size_t, Hdf5Reader>> open_;  // most recently used first
  std::unordered_map<std::size_t, std::list<std::pair<std::size_t, Hdf5Reader>>::iterator> where_;
};

bool is_number(const Hdf5Dataset& dataset) { return dataset.kind == Hdf5Dataset::Kind::number; }

// Texts of a file that people will read.
std::vector<std::string> names_in(const Hdf5Reader& reader, const std::string& dataset) {
  auto names = reader.read_strings(dataset);
  for (auto& name : names) name = printable(name);
  return names;
}

// Zeros that nobody wrote are no data.
void require_written(const Hdf5Reader& reader, const Hdf5Dataset& dataset) {
  require(dataset.written, "[data] {}: '{}' claims {} and was never written", reader.path().string(), printable(dataset.name),
          dataset.shape);
}

Transform transform_named(const std::string& name, const fs::path& path) {
  for (const auto transform : {Transform::none, Transform::log1p, Transform::unit})
    if (name_of(transform) == name) return transform;
  fail("[data] {}: the transform '{}' is not known", path.string(), printable(name));
}

}  // namespace

std::string_view name_of(Transform transform) {
  switch (transform) {
    case Transform::of_source: return "of_source";
    case Transform::none: return "none";
    case Transform::log1p: return "log1p";
    case Transform::unit: return "unit";
  }
  return "?";
}

void require_exact(double label, const std::string& name, const std::string& file) {
  require(std::abs(label) < 0x1p53, "[data] {}: the label '{}' is {:.0f}: from 2^53 on different classes become one", file, name,
          label);
}

std::vector<fs::path> hdf5_files(const fs::path& path) {
  std::error_code error;
  require(fs::exists(path, error), "[data] {}: no such file or folder", path.string());
  if (!fs::is_directory(path, error)) return {path};
  std::vector<fs::path> files;
  fs::directory_iterator entries(path, error);
  require(!error, "[data] {}: the folder cannot be read: {}", path.string(), error.message());
  for (const auto& entry : entries) {
    const auto extension = entry.path().extension();
    const bool hidden = entry.path().filename().string().front() == '.';
    if (!hidden && (extension == ".hdf5" || extension == ".h5")) files.push_back(entry.path());
  }
  require(!files.empty(), "[data] {}: no universes in this folder, that is no *.hdf5 and no *.h5", path.string());
  std::sort(files.begin(), files.end());
  return files;
}

// ---- universes

struct UniverseSource::State {
  State(std::vector<fs::path> paths, int limit)
      : files(std::move(paths), static_cast<std::size_t>(limit),
              [this](std::size_t, const Hdf5Reader& reader) { inspect(reader); }) {}

  OpenFiles files;
  Shape extents;
  std::int64_t channels = 0;
  DType type = DType::int16;
  std::vector<std::string> names;
  // The first file settles what all must be.
  void inspect(const Hdf5Reader& reader) {
    const auto path = reader.path().string();
    const auto full = reader.describe("full"), unit = reader.describe("unitPar");
    require(is_number(full) && !is_floating(full.type), "[data] {}: 'full' holds {}, not counts (integers)", path, full.stored);
    require(full.shape.rank() == 4 && full.shape.elements() > 0, "[data] {}: 'full' is [D, H, W, C], this is {}", path,
            full.shape);
    require(is_number(unit) && unit.shape.rank() == 1 && unit.shape[0] > 0, "[data] {}: 'unitPar' is numbers [T], this is {} {}",
            path, unit.stored, unit.shape);
    require_written(reader, full);
    const Shape volume{full.shape[0], full.shape[1], full.shape[2]};
    if (channels == 0) {
      extents = volume, channels = full.shape[3], type = full.type;
      if (reader.contains("namePar")) {
        const auto dataset = reader.describe("namePar");
        if (dataset.kind == Hdf5Dataset::Kind::text && dataset.shape == unit.shape) names = names_in(reader, "namePar");
      }
      if (names.empty() && unit.shape[0] == 4) names = {"Omega_m", "sigma_8", "n_s", "H_0"};
      for (std::int64_t i = static_cast<std::int64_t>(names.size()); i < unit.shape[0]; ++i)
        names.push_back(fmt::format("target {}", i));
      return;
    }
    const auto first = files.paths().front().string();
    require(volume == extents && full.shape[3] == channels, "[data] {}: 'full' is {}; in {} it is [{}, {}]", path, full.shape,
            first, joined(extents, ", "), channels);
    require(full.type == type, "[data] {}: 'full' is {}; in {} it is {}", path, full.stored, first, name_of(type));
    require(unit.shape[0] == static_cast<std::int64_t>(names.size()), "[data] {}: 'unitPar' has {} values; in {} it has {}", path,
            unit.shape[0], first, names.size());
  }

  std::vector<double> numbers(std::int64_t sample, const std::string& dataset) {
    auto values = files[static_cast<std::size_t>(sample)].read<double>(dataset);
    const auto path = files.paths()[static_cast<std::size_t>(sample)].string();
    require(values.size() == names.size(), "[data] {}: '{}' has {} values, there are {} names", path, dataset, values.size(),
            names.size());
    for (const double value : values) require(std::isfinite(value), "[data] {}: '{}' holds {}", path, dataset, value);
    return values;
  }
};

UniverseSource::UniverseSource(const fs::path& path, int open_files) {
  require(open_files > 0, "[data] at least one file is kept open, not {}", open_files);
  state_ = std::make_shared<State>(hdf5_files(path), open_files);
  IoThread::instance().run([state = state_] { (void)state->files[0]; });
}

std::int64_t UniverseSource::size() const { return static_cast<std::int64_t>(state_->files.paths().size()); }
const Shape& UniverseSource::extents() const { return state_->extents; }
std::int64_t UniverseSource::channels() const { return state_->channels; }
DType UniverseSource::type() const { return state_->type; }
const std::vector<std::string>& UniverseSource::target_names() const { return state_->names; }

std::string UniverseSource::name_of_sample(std::int64_t sample) const {
  check_sample(sample, size());
  return state_->files.paths()[static_cast<std::size_t>(sample)].string();
}

std::future<void> UniverseSource::read_async(std::int64_t sample, std::span<const std::int64_t> begin,
                                             std::span<const std::int64_t> end, DType type, void* out) const {
  check_sample(sample, size());
  require(begin.size() == 3 && end.size() == 3, "[data] a box of [D, H, W] has 3 dimensions, this one {}", begin.size());
  const std::array<std::int64_t, 4> from{begin[0], begin[1], begin[2], 0}, to{end[0], end[1], end[2], state_->channels};
  return IoThread::instance().submit([state = state_, sample, from, to, type, out] {
    state->files[static_cast<std::size_t>(sample)].read("full", from, to, type, out);
  });
}

std::future<std::vector<double>> UniverseSource::targets_async(std::int64_t sample) const {
  check_sample(sample, size());
  return IoThread::instance().submit([state = state_, sample] { return state->numbers(sample, "unitPar"); });
}

std::vector<double> UniverseSource::physical(std::int64_t sample) const {
  check_sample(sample, size());
  return IoThread::instance().run([state = state_, sample] { return state->numbers(sample, "physPar"); });
}

void UniverseSource::check(std::int64_t part, std::int64_t parts) const {
  for (std::int64_t sample = part; sample < size(); sample += parts)
    IoThread::instance().run([state = state_, sample] { state->numbers(sample, "unitPar"); });
}

// ---- files with many samples each

// What one file holds.
struct ArrayPart {
  std::int64_t size = 0, channels = 0;
  std::int64_t place = 0, together = 0;  // of pack()'s files: its first sample's number, and how many all have; else 0, 0
  Shape extents;
  DType type = DType::uint8, target_type = DType::int64;
  Transform transform = Transform::none;
  std::vector<std::string> names;
  std::vector<double> labels;  // [n, T]
};

struct ArraySource::State {
  State(std::vector<fs::path> paths, std::string volume_name)
      : files(std::move(paths), 64, [](std::size_t, const Hdf5Reader&) {}), volume(std::move(volume_name)) {}

  OpenFiles files;
  std::string volume;
  ArrayPart all;                    // of all files together
  std::vector<std::int64_t> first;  // sample of each file, and their number

  ArrayPart part(const Hdf5Reader& reader, const std::string& prefix, const ArrayNames& names) const;
  void add(ArrayPart part, const fs::path& path);
  std::size_t file_of(std::int64_t sample) const {
    return static_cast<std::size_t>(std::upper_bound(first.begin(), first.end(), sample) - first.begin()) - 1;
  }
};

ArrayPart ArraySource::State::part(const Hdf5Reader& reader, const std::string& prefix, const ArrayNames& names) const {
  ArrayPart p;
  const auto file = reader.path().string();
  const auto volumes = reader.describe(volume);
  require(is_number(volumes), "[data] {}: '{}' holds {}, not numbers", file, volume, volumes.stored);
  require(volumes.shape.rank() == 5 && volumes.shape.elements() > 0, "[data] {}: '{}' is [n, D, H, W, C], this is {}", file,
          volume, volumes.shape);
  require_written(reader, volumes);
  // Loaders keep the order of all samples.
  require_host_memory(fmt::format("[data] {}: '{}', {} samples", file, volume, volumes.shape[0]),
                      static_cast<double>(volumes.shape[0]) * 3 * sizeof(std::int64_t));
  p.size = volumes.shape[0], p.channels = volumes.shape[4], p.type = volumes.type;
  p.extents = Shape{volumes.shape[1], volumes.shape[2], volumes.shape[3]};
  p.transform = p.type == DType::uint8 ? Transform::unit : Transform::none;
  if (reader.has_attribute(volume, "transform"))
    p.transform = transform_named(reader.text_attribute(volume, "transform"), reader.path());
  if (reader.has_attribute(volume, "first") && reader.has_attribute(volume, "samples")) {
    p.place = static_cast<std::int64_t>(reader.number_attribute(volume, "first"));
    p.together = static_cast<std::int64_t>(reader.number_attribute(volume, "samples"));
  }
  if (names.label.empty()) return p;

  const auto label = prefix + names.label, label_names = prefix + names.label + "_names";
  const auto labels = reader.describe(label);
  require(is_number(labels), "[data] {}: '{}' holds {}, not numbers", file, label, labels.stored);
  require((labels.shape.rank() == 1 || labels.shape.rank() == 2) && labels.shape[0] == p.size && labels.shape.elements() > 0,
          "[data] {}: '{}' is one label, or a row of them, for each of the {} volumes; this is {}", file, label, p.size,
          labels.shape);
  const auto targets = labels.shape.rank() == 2 ? labels.shape[1] : 1;
  p.target_type = is_floating(labels.type) ? DType::float32 : DType::int64;
  if (reader.contains(label_names)) p.names = names_in(reader, label_names);
  if (static_cast<std::int64_t>(p.names.size()) != targets) {
    p.names.clear();
    for (std::int64_t i = 0; i < targets; ++i)
      p.names.push_back(targets == 1 ? names.label : fmt::format("{} {}", names.label, i));
  }
  p.labels = reader.read<double>(label);
  for (const double value : p.labels)
    if (p.target_type == DType::int64) require_exact(value, label, file);
  return p;
}

// The first file settles what all must be.
void ArraySource::State::add(ArrayPart part, const fs::path& path) {
  first.push_back(all.size);
  if (first.size() == 1) {
    all = std::move(part);
    return;
  }
  const auto start = files.paths().front().string();
  require(part.extents == all.extents && part.channels == all.channels,
          "[data] {}: volumes are [{}, {}]; in {} they are [{}, {}]", path.string(), joined(part.extents, ", "), part.channels,
          start, joined(all.extents, ", "), all.channels);
  require(part.type == all.type && part.transform == all.transform, "[data] {}: volumes are {} ({}); in {} they are {} ({})",
          path.string(), name_of(part.type), name_of(part.transform), start, name_of(all.type), name_of(all.transform));
  require(part.names == all.names && part.target_type == all.target_type, "[data] {}: labels are {}; in {} they are {}",
          path.string(), joined(part.names, ", "), start, joined(all.names, ", "));
  all.size += part.size;
  all.labels.insert(all.labels.end(), part.labels.begin(), part.labels.end());
}

ArraySource::ArraySource(const fs::path& path, const std::string& group, const ArrayNames& names) {
  const auto prefix = group.empty() ? "" : group + "/";
  state_ = std::make_shared<State>(hdf5_files(path), prefix + names.volume);
  std::error_code error;
  const bool folder = fs::is_directory(path, error);
  IoThread::instance().run([&] {
    auto& s = *state_;
    std::int64_t next = 0, together = 0;  // what the file that follows must begin with
    for (std::size_t file = 0; file < s.files.paths().size(); ++file) {
      auto part = s.part(s.files[file], prefix, names);
      if (folder && (next > 0 || part.together > 0)) {
        require(part.place == next && (next == 0 || part.together == together),
                "[data] {}: begins with sample {} of {}; a file with sample {} on is missing before it",
                s.files.paths()[file].string(), part.place, part.together > 0 ? part.together : part.size, next);
        together = part.together;
        next += part.size;
        if (next == together) next = 0;
      }
      s.add(std::move(part), s.files.paths()[file]);
    }
    require(next == 0, "[data] {}: the files end after {} of {} samples; the last are missing", path.string(), next, together);
    s.first.push_back(s.all.size);
  });
}

std::int64_t ArraySource::size() const { return state_->all.size; }
const Shape& ArraySource::extents() const { return state_->all.extents; }
std::int64_t ArraySource::channels() const { return state_->all.channels; }
DType ArraySource::type() const { return state_->all.type; }
Transform ArraySource::transform() const { return state_->all.transform; }
const std::vector<std::string>& ArraySource::target_names() const { return state_->all.names; }
DType ArraySource::target_type() const { return state_->all.target_type; }

std::string ArraySource::name_of_sample(std::int64_t sample) const {
  check_sample(sample, size());
  const auto file = state_->file_of(sample);
  return fmt::format("{}: '{}' [{}]", state_->files.paths()[file].string(), state_->volume, sample - state_->first[file]);
}

std::future<void> ArraySource::read_async(std::int64_t sample, std::span<const std::int64_t> begin,
                                          std::span<const std::int64_t> end, DType type, void* out) const {
  check_sample(sample, size());
  require(begin.size() == 3 && end.size() == 3, "[data] a box of [D, H, W] has 3 dimensions, this one {}", begin.size());
  const auto file = state_->file_of(sample);
  const auto row = sample - state_->first[file];
  const std::array<std::int64_t, 5> from{row, begin[0], begin[1], begin[2], 0};
  const std::array<std::int64_t, 5> to{row + 1, end[0], end[1], end[2], state_->all.channels};
  return IoThread::instance().submit(
      [state = state_, file, from, to, type, out] { state->files[file].read(state->volume, from, to, type, out); });
}

std::future<std::vector<double>> ArraySource::targets_async(std::int64_t sample) const {
  check_sample(sample, size());
  const auto targets = static_cast<std::ptrdiff_t>(state_->all.names.size());
  const auto row = state_->all.labels.begin() + sample * targets;
  std::promise<std::vector<double>> promise;
  promise.set_value({row, row + targets});
  return promise.get_future();
}

void ArraySource::check(std::int64_t part, std::int64_t parts) const {
  const auto targets = static_cast<std::int64_t>(state_->all.names.size());
  for (std::int64_t sample = part; sample < size(); sample += parts)
    for (std::int64_t t = 0; t < targets; ++t) {
      const double value = state_->all.labels[static_cast<std::size_t>(sample * targets + t)];
      require(std::isfinite(value), "[data] {}: the label '{}' is {}", name_of_sample(sample),
              state_->all.names[static_cast<std::size_t>(t)], value);
    }
}

}  // namespace mpigrad::data
