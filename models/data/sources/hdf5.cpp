#include "models/data/sources/hdf5.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <list>
#include <unordered_map>

#include "comm/hdf5/hdf5_file.h"
#include "comm/hdf5/io_thread.h"
#include "framework/base/host_memory.h"
#include "framework/base/joined.h"
#include "framework/base/printable.h"
#include "models/data/sources/bytes.h"

namespace mpigrad::data {

namespace fs = std::filesystem;

namespace {

// The number of files that this process may still open (`ulimit -n`).
std::int64_t descriptors_left() {
  constexpr auto plenty = std::numeric_limits<std::int64_t>::max();
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return plenty;
  std::error_code error;
  const fs::directory_iterator open("/proc/self/fd", error);
  if (error) return error == std::errc::too_many_files_open ? 0 : plenty;  // other systems have no such folder
  return static_cast<std::int64_t>(limit.rlim_cur) - std::distance(begin(open), end(open));
}
// Reserved for sockets, for files of other code, and for a file to which one of these files links.
constexpr std::int64_t spare_descriptors = 32;

// The most recently used files, open for reading; only for the I/O thread, so it needs no lock.
class OpenFiles {
 public:
  using Inspect = std::function<void(std::size_t, const Hdf5Reader&)>;  // checks a file that was opened
  OpenFiles(std::vector<fs::path> paths, std::size_t limit, Inspect inspect)
      : paths_(std::move(paths)), limit_(limit), inspect_(std::move(inspect)) {}

  const std::vector<fs::path>& paths() const { return paths_; }
  const Hdf5Reader& operator[](std::size_t file) {
    if (const auto found = where_.find(file); found != where_.end()) {
      open_.splice(open_.begin(), open_, found->second);
      return open_.front().second;
    }
    while (!open_.empty() && (open_.size() >= limit_ || descriptors_left() < spare_descriptors)) {
      where_.erase(open_.back().first);
      open_.pop_back();
    }
    Hdf5Reader fresh(paths_[file], Hdf5Reach::folder);
    inspect_(file, fresh);
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

// Texts of a file, made printable.
std::vector<std::string> names_in(const Hdf5Reader& reader, const std::string& dataset) {
  auto names = reader.read_strings(dataset);
  for (auto& name : names) name = printable(name);
  return names;
}

// Zeros that were never written are not data.
void require_written(const Hdf5Reader& reader, const Hdf5Dataset& dataset) {
  require(dataset.written, "[data] {}: '{}' claims {} and was never written", reader.path().string(), printable(dataset.name),
          dataset.shape);
}

Transform transform_named(const std::string& name, const fs::path& path) {
  for (const auto transform : {Transform::none, Transform::log1p, Transform::unit, Transform::unit16})
    if (name_of(transform) == name) return transform;
  fail("[data] {}: unknown transform '{}'", path.string(), printable(name));
}

}  // namespace

std::vector<fs::path> hdf5_files(const fs::path& path) {
  return files_at(
      path, [](const std::string& name) { return name.ends_with(".hdf5") || name.ends_with(".h5"); },
      "no universes (*.hdf5, *.h5) in this folder");
}

// ---- universes

struct UniverseSource::State {
  State(std::vector<fs::path> paths, const UniverseOptions& options)
      : files(std::move(paths), static_cast<std::size_t>(options.open_files),
              [this](std::size_t, const Hdf5Reader& reader) { inspect(reader); }),
        with_targets(options.targets) {}

  OpenFiles files;
  bool with_targets;
  SampleType type{.channels = 0, .transform = Transform::log1p};
  // The first file determines what the others must be.
  void inspect(const Hdf5Reader& reader) {
    const auto path = reader.path().string();
    const auto full = reader.describe("full");
    require(is_number(full) && !is_floating(full.type), "[data] {}: 'full' holds {}, not counts (integers)", path, full.stored);
    require(full.shape.rank() == 4 && full.shape.elements() > 0, "[data] {}: 'full' is [D, H, W, C], this is {}", path,
            full.shape);
    require_written(reader, full);
    const Shape volume{full.shape[0], full.shape[1], full.shape[2]};
    const bool is_first = type.channels == 0;
    if (is_first) type.extents = volume, type.channels = full.shape[3], type.type = full.type;
    const auto first = files.paths().front().string();
    require(volume == type.extents && full.shape[3] == type.channels, "[data] {}: 'full' is {}; in {} it is [{}, {}]", path,
            full.shape, first, joined(type.extents, ", "), type.channels);
    require(full.type == type.type, "[data] {}: 'full' is {}; in {} it is {}", path, full.stored, first, name_of(type.type));
    if (is_first && reader.contains("redshifts")) name_channels(reader);
    if (with_targets) inspect_targets(reader, is_first);
  }

  // By the snapshots' redshifts.
  void name_channels(const Hdf5Reader& reader) {
    const auto dataset = reader.describe("redshifts");
    if (!is_number(dataset) || dataset.shape != Shape{type.channels}) return;
    for (const double redshift : reader.read<double>("redshifts"))
      type.channel_names.push_back(fmt::format("redshift {:g}", redshift));
  }

  void inspect_targets(const Hdf5Reader& reader, bool is_first) {
    const auto path = reader.path().string();
    const auto unit = reader.describe("unitPar");
    require(is_number(unit) && unit.shape.rank() == 1 && unit.shape[0] > 0, "[data] {}: 'unitPar' is numbers [T], this is {} {}",
            path, unit.stored, unit.shape);
    require_target_count(unit.shape[0], fmt::format("[data] {}: 'unitPar'", path));
    auto& names = type.targets.names;
    if (is_first) {
      type.targets.type = DType::float64, type.targets.shape = unit.shape;
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
    require(unit.shape[0] == static_cast<std::int64_t>(names.size()), "[data] {}: 'unitPar' has {} values; in {} it has {}", path,
            unit.shape[0], first, names.size());
  }

  std::vector<double> numbers(std::int64_t sample, const std::string& dataset) {
    auto values = files[static_cast<std::size_t>(sample)].read<double>(dataset);
    const auto path = files.paths()[static_cast<std::size_t>(sample)].string();
    const auto& names = type.targets.names;
    require(values.size() == names.size(), "[data] {}: '{}' has {} values, there are {} names", path, dataset, values.size(),
            names.size());
    for (const double value : values) require(std::isfinite(value), "[data] {}: '{}' holds {}", path, dataset, value);
    return values;
  }
};

UniverseSource::UniverseSource(const fs::path& path, const UniverseOptions& options) {
  require(options.open_files > 0, "[data] at least one file is kept open, not {}", options.open_files);
  state_ = std::make_shared<State>(hdf5_files(path), options);
  io_thread().run([state = state_] { (void)state->files[0]; });
}

std::int64_t UniverseSource::size() const { return static_cast<std::int64_t>(state_->files.paths().size()); }
const SampleType& UniverseSource::sample_type() const { return state_->type; }

std::string UniverseSource::name_of_sample(std::int64_t sample) const {
  require_sample(*this, sample);
  return state_->files.paths()[static_cast<std::size_t>(sample)].string();
}

void UniverseSource::read(std::int64_t sample, const Box& box, std::byte* out) const {
  require_sample(*this, sample);
  const std::array<std::int64_t, 4> from{box.begin[0], box.begin[1], box.begin[2], 0};
  const std::array<std::int64_t, 4> to{box.end[0], box.end[1], box.end[2], state_->type.channels};
  io_thread().run([&] { state_->files[static_cast<std::size_t>(sample)].read("full", from, to, state_->type.type, out); });
}

void UniverseSource::read_targets(std::int64_t sample, const Box&, std::byte* out) const {
  require_sample(*this, sample);
  if (!state_->with_targets) return;
  const auto values = io_thread().run([&] { return state_->numbers(sample, "unitPar"); });
  std::memcpy(out, values.data(), values.size() * sizeof(double));
}

void UniverseSource::check(std::int64_t part, std::int64_t parts) const {
  if (state_->with_targets) return Source::check(part, parts);
  for (auto sample = part; sample < size(); sample += parts)
    io_thread().run([&] { (void)state_->files[static_cast<std::size_t>(sample)]; });
}

std::vector<double> UniverseSource::physical(std::int64_t sample) const {
  require_sample(*this, sample);
  return io_thread().run([&] { return state_->numbers(sample, "physPar"); });
}

bool UniverseSource::has_physical() const {
  return io_thread().run([&] { return state_->files[0].contains("physPar"); });
}

// ---- files with many samples each

// The contents of one file.
struct ArrayPart {
  std::int64_t size = 0;
  std::int64_t place = 0, together = 0;  // of pack()'s files: the first sample's number, and the total number of samples; else 0,
                                         // 0
  SampleType type;
  std::vector<double> labels;  // [n, T], if they are rows
};

struct ArraySource::State {
  State(std::vector<fs::path> paths, const std::string& prefix, const ArrayNames& names)
      : files(std::move(paths), 64, [](std::size_t, const Hdf5Reader&) {}), volume(prefix + names.volume),
        label(names.label.empty() ? "" : prefix + names.label), label_name(names.label) {}

  OpenFiles files;
  std::string volume, label;
  std::string label_name;           // without the group
  ArrayPart all;                    // of all files together
  std::vector<std::int64_t> first;  // first sample of each file, and the total number

  ArrayPart part(const Hdf5Reader& reader) const;
  void describe_labels(const Hdf5Reader& reader, ArrayPart& part) const;
  // Reads a box of one sample of a dataset, with all of `behind` (the dimensions after W) at each of its cells, as `type`.
  void read(const std::string& dataset, std::int64_t sample, const Box& box, const Shape& behind, DType type, std::byte* out) {
    const auto file = file_of(sample);
    std::vector<std::int64_t> from{sample - first[file]}, to{from[0] + 1};
    for (int d = 0; d < 3; ++d) from.push_back(box.begin[d]), to.push_back(box.end[d]);
    for (const auto extent : behind) from.push_back(0), to.push_back(extent);
    files[file].read(dataset, from, to, type, out);
  }
  void add(ArrayPart part, const fs::path& path);
  std::size_t file_of(std::int64_t sample) const {
    return static_cast<std::size_t>(std::upper_bound(first.begin(), first.end(), sample) - first.begin()) - 1;
  }
};

ArrayPart ArraySource::State::part(const Hdf5Reader& reader) const {
  ArrayPart p;
  const auto file = reader.path().string();
  const auto volumes = reader.describe(volume);
  require(is_number(volumes), "[data] {}: '{}' holds {}, not numbers", file, volume, volumes.stored);
  require(volumes.shape.rank() == 5 && volumes.shape.elements() > 0, "[data] {}: '{}' is [n, D, H, W, C], this is {}", file,
          volume, volumes.shape);
  require_written(reader, volumes);
  // Memory for loaders, which keep the order of all samples.
  require_host_memory(fmt::format("[data] {}: '{}', {} samples", file, volume, volumes.shape[0]),
                      static_cast<double>(volumes.shape[0]) * 3 * sizeof(std::int64_t));
  p.size = volumes.shape[0], p.type.channels = volumes.shape[4], p.type.type = volumes.type;
  p.type.extents = Shape{volumes.shape[1], volumes.shape[2], volumes.shape[3]};
  p.type.transform = p.type.type == DType::uint8 ? Transform::unit : Transform::none;
  if (reader.has_attribute(volume, "transform"))
    p.type.transform = transform_named(reader.text_attribute(volume, "transform"), reader.path());
  if (reader.has_attribute(volume, "first") && reader.has_attribute(volume, "samples")) {
    const double place = reader.number_attribute(volume, "first"), together = reader.number_attribute(volume, "samples");
    require(
        place >= 0 && place < together && together <= 0x1p53 && place == std::floor(place) && together == std::floor(together),
        "[data] {}: '{}' begins with sample {} of {}, which is not possible", file, volume, place, together);
    p.place = static_cast<std::int64_t>(place), p.together = static_cast<std::int64_t>(together);
  }
  if (!label.empty()) describe_labels(reader, p);
  return p;
}

void ArraySource::State::describe_labels(const Hdf5Reader& reader, ArrayPart& p) const {
  const auto file = reader.path().string();
  const auto labels = reader.describe(label);
  const auto rank = labels.shape.rank();
  auto& targets = p.type.targets;
  require(is_number(labels), "[data] {}: '{}' holds {}, not numbers", file, label, labels.stored);
  if (rank >= 4) {
    const Shape cells{labels.shape[1], labels.shape[2], labels.shape[3]};
    require(rank <= 5 && labels.shape[0] == p.size && cells == p.type.extents && labels.shape.elements() > 0,
            "[data] {}: '{}' is {}, and '{}' {} volumes of {}: labels of cells are [n, D, H, W] or [n, D, H, W, K]", file, label,
            labels.shape, volume, p.size, p.type.extents);
    require_written(reader, labels);
    targets = {.type = labels.type, .shape = rank == 4 ? Shape{} : Shape{labels.shape[4]}, .per_cell = true, .names = {}};
    return;
  }
  require((rank == 1 || rank == 2) && labels.shape[0] == p.size && labels.shape.elements() > 0,
          "[data] {}: '{}' is one label, or a row of them, for each of the {} volumes; this is {}", file, label, p.size,
          labels.shape);
  const auto count = rank == 2 ? labels.shape[1] : 1;
  require_target_count(count, fmt::format("[data] {}: '{}'", file, label));
  p.labels = reader.read<double>(label);
  targets = {.type = is_floating(labels.type) ? DType::float64 : DType::int64, .shape = {count}, .names = {}};
  const auto names = label + "_names";
  if (reader.contains(names) && reader.describe(names).shape.elements() == count) targets.names = names_in(reader, names);
  if (targets.names.empty())
    for (std::int64_t i = 0; i < count; ++i)
      targets.names.push_back(count == 1 ? label_name : fmt::format("{} {}", label_name, i));
  for (const double value : p.labels)
    if (targets.type == DType::int64) require_exact(value, label, file);
}

// The first file determines what the others must be.
void ArraySource::State::add(ArrayPart part, const fs::path& path) {
  first.push_back(all.size);
  if (first.size() == 1) {
    all = std::move(part);
    return;
  }
  const auto start = files.paths().front().string();
  const auto &here = part.type, &there = all.type;
  require(here.extents == there.extents && here.channels == there.channels,
          "[data] {}: volumes are [{}, {}]; in {} they are [{}, {}]", path.string(), joined(here.extents, ", "), here.channels,
          start, joined(there.extents, ", "), there.channels);
  require(here.type == there.type && here.transform == there.transform, "[data] {}: volumes are {} ({}); in {} they are {} ({})",
          path.string(), name_of(here.type), name_of(here.transform), start, name_of(there.type), name_of(there.transform));
  const auto text = [](const TargetType& t) {
    return fmt::format("{} {}{} ({})", name_of(t.type), t.shape, t.per_cell ? " for each cell" : "", joined(t.names, ", "));
  };
  require(here.targets == there.targets, "[data] {}: labels are {}; in {} they are {}", path.string(), text(here.targets), start,
          text(there.targets));
  all.size += part.size;
  all.labels.insert(all.labels.end(), part.labels.begin(), part.labels.end());
}

ArraySource::ArraySource(const fs::path& path, const std::string& group, const ArrayNames& names) {
  const auto prefix = group.empty() ? "" : group + "/";
  state_ = std::make_shared<State>(hdf5_files(path), prefix, names);
  std::error_code error;
  const bool folder = fs::is_directory(path, error);
  io_thread().run([&] {
    auto& s = *state_;
    std::int64_t next = 0, together = 0;  // what the next file must begin with
    for (std::size_t file = 0; file < s.files.paths().size(); ++file) {
      auto part = s.part(s.files[file]);
      if (folder && (next > 0 || part.together > 0)) {
        require(part.place == next && (next == 0 || part.together == together),
                "[data] {}: begins with sample {} of {}; the file that begins with sample {} is missing before it",
                s.files.paths()[file].string(), part.place, part.together > 0 ? part.together : part.size, next);
        together = part.together;
        next += part.size;
        if (next == together) next = 0;
      }
      s.add(std::move(part), s.files.paths()[file]);
    }
    require(next == 0, "[data] {}: the files end after {} of {} samples; the last files are missing", path.string(), next,
            together);
    s.first.push_back(s.all.size);
  });
}

std::int64_t ArraySource::size() const { return state_->all.size; }
const SampleType& ArraySource::sample_type() const { return state_->all.type; }

std::string ArraySource::name_of_sample(std::int64_t sample) const {
  require_sample(*this, sample);
  const auto file = state_->file_of(sample);
  return fmt::format("{}: '{}' [{}]", state_->files.paths()[file].string(), state_->volume, sample - state_->first[file]);
}

void ArraySource::read(std::int64_t sample, const Box& box, std::byte* out) const {
  require_sample(*this, sample);
  io_thread().run([&] { state_->read(state_->volume, sample, box, {channels()}, type(), out); });
}

void ArraySource::read_targets(std::int64_t sample, const Box& box, std::byte* out) const {
  require_sample(*this, sample);
  const auto& targets = target_type();
  if (targets.per_cell)
    return io_thread().run([&] { state_->read(state_->label, sample, box, targets.shape, targets.type, out); });
  const auto count = targets.shape.elements();
  convert(state_->all.labels.data() + sample * count, DType::float64, count, targets.type, out);
}

}  // namespace mpigrad::data
