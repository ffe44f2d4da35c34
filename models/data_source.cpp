#include "models/data_source.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <list>
#include <unordered_map>

#include "comm/hdf5/hdf5_file.h"
#include "comm/hdf5/io_thread.h"

namespace mpigrad::data {

namespace fs = std::filesystem;

namespace {

void check_sample(std::int64_t sample, std::int64_t size) {
  require(sample >= 0 && sample < size, "[data] sample {} of {}", sample, size);
}

std::vector<fs::path> universe_files(const fs::path& path) {
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

bool is_number(const Hdf5Dataset& dataset) { return dataset.kind == Hdf5Dataset::Kind::number; }

}  // namespace

// ---- universes

// Files are opened, checked and closed on the I/O thread alone, so that needs no lock.
struct UniverseSource::State {
  struct Open {
    std::int64_t file;
    Hdf5Reader reader;
  };

  std::vector<fs::path> files;
  std::size_t limit = 64;
  Shape extents;
  std::int64_t channels = 0;
  DType type = DType::int16;
  std::vector<std::string> names;
  std::list<Open> open;  // most recently used first
  std::unordered_map<std::int64_t, std::list<Open>::iterator> where;

  const Hdf5Reader& reader(std::int64_t file) {
    if (const auto found = where.find(file); found != where.end()) {
      open.splice(open.begin(), open, found->second);
      return open.front().reader;
    }
    Hdf5Reader fresh(files[static_cast<std::size_t>(file)]);
    inspect(fresh);
    if (open.size() >= limit) {
      where.erase(open.back().file);
      open.pop_back();
    }
    open.push_front({file, std::move(fresh)});
    where[file] = open.begin();
    return open.front().reader;
  }

  // The first file settles what all must be.
  void inspect(const Hdf5Reader& reader) {
    const auto path = reader.path().string();
    const auto full = reader.describe("full"), unit = reader.describe("unitPar");
    require(is_number(full) && !is_floating(full.type), "[data] {}: 'full' holds {}, not counts (integers)", path, full.stored);
    require(full.shape.rank() == 4 && full.shape.elements() > 0, "[data] {}: 'full' is [D, H, W, C], this is {}", path,
            full.shape);
    require(is_number(unit) && unit.shape.rank() == 1 && unit.shape[0] > 0, "[data] {}: 'unitPar' is numbers [T], this is {} {}",
            path, unit.stored, unit.shape);
    const Shape volume{full.shape[0], full.shape[1], full.shape[2]};
    if (channels == 0) {
      extents = volume, channels = full.shape[3], type = full.type;
      if (reader.contains("namePar")) {
        const auto dataset = reader.describe("namePar");
        if (dataset.kind == Hdf5Dataset::Kind::text && dataset.shape == unit.shape) names = reader.read_strings("namePar");
      }
      if (names.empty() && unit.shape[0] == 4) names = {"Omega_m", "sigma_8", "n_s", "H_0"};
      for (std::int64_t i = static_cast<std::int64_t>(names.size()); i < unit.shape[0]; ++i)
        names.push_back(fmt::format("target {}", i));
      return;
    }
    const auto first = files.front().string();
    require(volume == extents && full.shape[3] == channels, "[data] {}: 'full' is {}; in {} it is [{}, {}]", path, full.shape,
            first, fmt::join(extents, ", "), channels);
    require(full.type == type, "[data] {}: 'full' is {}; in {} it is {}", path, full.stored, first, name_of(type));
    require(unit.shape[0] == static_cast<std::int64_t>(names.size()), "[data] {}: 'unitPar' has {} values; in {} it has {}", path,
            unit.shape[0], first, names.size());
  }

  std::vector<double> numbers(std::int64_t sample, const std::string& dataset) {
    auto values = reader(sample).read<double>(dataset);
    const auto path = files[static_cast<std::size_t>(sample)].string();
    require(values.size() == names.size(), "[data] {}: '{}' has {} values, there are {} names", path, dataset, values.size(),
            names.size());
    for (const double value : values) require(std::isfinite(value), "[data] {}: '{}' holds {}", path, dataset, value);
    return values;
  }
};

UniverseSource::UniverseSource(const fs::path& path, int open_files) : state_(std::make_shared<State>()) {
  require(open_files > 0, "[data] at least one file is kept open, not {}", open_files);
  state_->files = universe_files(path);
  state_->limit = static_cast<std::size_t>(open_files);
  IoThread::instance().run([state = state_] { state->reader(0); });
}

std::int64_t UniverseSource::size() const { return static_cast<std::int64_t>(state_->files.size()); }
const Shape& UniverseSource::extents() const { return state_->extents; }
std::int64_t UniverseSource::channels() const { return state_->channels; }
DType UniverseSource::type() const { return state_->type; }
const std::vector<std::string>& UniverseSource::target_names() const { return state_->names; }

std::string UniverseSource::name_of_sample(std::int64_t sample) const {
  check_sample(sample, size());
  return state_->files[static_cast<std::size_t>(sample)].string();
}

std::future<void> UniverseSource::read_async(std::int64_t sample, std::span<const std::int64_t> begin,
                                             std::span<const std::int64_t> end, DType type, void* out) const {
  check_sample(sample, size());
  require(begin.size() == 3 && end.size() == 3, "[data] a box of [D, H, W] has 3 dimensions, this one {}", begin.size());
  const std::array<std::int64_t, 4> from{begin[0], begin[1], begin[2], 0}, to{end[0], end[1], end[2], state_->channels};
  return IoThread::instance().submit(
      [state = state_, sample, from, to, type, out] { state->reader(sample).read("full", from, to, type, out); });
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

// ---- one file with all samples

struct ArraySource::State {
  explicit State(const fs::path& path) : reader(path) {}

  Hdf5Reader reader;
  std::string volume;
  std::int64_t size = 0, channels = 0;
  Shape extents;
  DType type = DType::uint8, target_type = DType::int64;
  std::vector<std::string> names;
  std::vector<double> labels;  // [n, T]
};

ArraySource::ArraySource(const fs::path& path, const std::string& group, const ArrayNames& names)
    : state_(std::make_shared<State>(path)) {
  auto& s = *state_;
  const auto prefix = group.empty() ? "" : group + "/";
  s.volume = prefix + names.volume;
  const auto label = prefix + names.label;
  const auto volumes = s.reader.describe(s.volume), labels = s.reader.describe(label);
  const auto file = path.string();
  require(is_number(volumes), "[data] {}: '{}' holds {}, not numbers", file, s.volume, volumes.stored);
  require(volumes.shape.rank() == 5 && volumes.shape.elements() > 0, "[data] {}: '{}' is [n, D, H, W, C], this is {}", file,
          s.volume, volumes.shape);
  require(is_number(labels), "[data] {}: '{}' holds {}, not numbers", file, label, labels.stored);
  require((labels.shape.rank() == 1 || labels.shape.rank() == 2) && labels.shape[0] == volumes.shape[0] &&
              labels.shape.elements() > 0,
          "[data] {}: '{}' is one label, or a row of them, for each of the {} volumes; this is {}", file, label, volumes.shape[0],
          labels.shape);
  s.size = volumes.shape[0], s.channels = volumes.shape[4], s.type = volumes.type;
  s.extents = Shape{volumes.shape[1], volumes.shape[2], volumes.shape[3]};
  const auto targets = labels.shape.rank() == 2 ? labels.shape[1] : 1;
  s.target_type = is_floating(labels.type) ? DType::float32 : targets == 1 ? DType::int64 : DType::float32;
  for (std::int64_t i = 0; i < targets; ++i) s.names.push_back(targets == 1 ? names.label : fmt::format("{} {}", names.label, i));
  s.labels = s.reader.read<double>(label);
}

std::int64_t ArraySource::size() const { return state_->size; }
const Shape& ArraySource::extents() const { return state_->extents; }
std::int64_t ArraySource::channels() const { return state_->channels; }
DType ArraySource::type() const { return state_->type; }
Transform ArraySource::transform() const { return state_->type == DType::uint8 ? Transform::unit : Transform::none; }
const std::vector<std::string>& ArraySource::target_names() const { return state_->names; }
DType ArraySource::target_type() const { return state_->target_type; }

std::string ArraySource::name_of_sample(std::int64_t sample) const {
  check_sample(sample, size());
  return fmt::format("{}: '{}' [{}]", state_->reader.path().string(), state_->volume, sample);
}

std::future<void> ArraySource::read_async(std::int64_t sample, std::span<const std::int64_t> begin,
                                          std::span<const std::int64_t> end, DType type, void* out) const {
  check_sample(sample, size());
  require(begin.size() == 3 && end.size() == 3, "[data] a box of [D, H, W] has 3 dimensions, this one {}", begin.size());
  const std::array<std::int64_t, 5> from{sample, begin[0], begin[1], begin[2], 0};
  const std::array<std::int64_t, 5> to{sample + 1, end[0], end[1], end[2], state_->channels};
  return state_->reader.read_async(state_->volume, from, to, type, out);
}

std::future<std::vector<double>> ArraySource::targets_async(std::int64_t sample) const {
  check_sample(sample, size());
  const auto targets = static_cast<std::ptrdiff_t>(state_->names.size());
  const auto row = state_->labels.begin() + sample * targets;
  std::promise<std::vector<double>> promise;
  promise.set_value({row, row + targets});
  return promise.get_future();
}

void ArraySource::check(std::int64_t part, std::int64_t parts) const {
  const auto targets = static_cast<std::int64_t>(state_->names.size());
  for (std::int64_t sample = part; sample < size(); sample += parts)
    for (std::int64_t t = 0; t < targets; ++t) {
      const double value = state_->labels[static_cast<std::size_t>(sample * targets + t)];
      require(std::isfinite(value), "[data] {}: the label '{}' is {}", name_of_sample(sample),
              state_->names[static_cast<std::size_t>(t)], value);
    }
}

}  // namespace mpigrad::data
