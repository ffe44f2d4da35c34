#include "models/data/sources/pack.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "comm/hdf5/hdf5_file.h"
#include "framework/base/host_memory.h"
#include "framework/base/job_queue.h"
#include "framework/base/new_file.h"

namespace mpigrad::data {

namespace fs = std::filesystem;

namespace {

// The samples of a source that go into one group, and how many samples of earlier groups are done.
struct Part {
  std::string prefix;  // of the datasets' names: "", or the group's with a slash
  std::vector<std::int64_t> samples;
  std::int64_t done = 0;
};

// Reads samples of the source, or their targets, in portions of up to 64 MiB, and writes them to the dataset.
template <class Read>
void copy_samples(Hdf5Writer& writer, const std::string& dataset, const Source& source, const Part& part, const Shape& shape,
                  DType type, const Read& read, const std::function<void(std::int64_t)>& progress = {}) {
  const auto bytes = shape.elements() * size_of(type), n = static_cast<std::int64_t>(part.samples.size());
  const auto at_once = std::clamp<std::int64_t>((std::int64_t{64} << 20) / std::max<std::int64_t>(bytes, 1), 1, n);
  require_host_memory(fmt::format("[pack] {}", source.name_of_sample(part.samples.front())),
                      static_cast<double>(at_once * bytes));
  std::vector<std::byte> buffer(static_cast<std::size_t>(at_once * bytes));
  for (std::int64_t first = 0; first < n; first += at_once) {
    const auto last = std::min(n, first + at_once);
    std::vector<std::future<void>> reads;
    for (auto i = first; i < last; ++i)
      reads.push_back(source.queue().submit([&read, sample = part.samples[static_cast<std::size_t>(i)],
                                             to = buffer.data() + (i - first) * bytes] { read(sample, to); }));
    for (const auto& each : reads) each.wait();  // reads must not outlive the buffer
    for (auto& each : reads) each.get();
    std::vector<std::int64_t> from{first}, to{last};
    for (const auto extent : shape) from.push_back(0), to.push_back(extent);
    writer.write_box(dataset, from, to, type, buffer.data());
    if (progress) progress(part.done + last);
  }
}

void write_targets(Hdf5Writer& writer, const Source& source, const Part& part) {
  const auto& target = source.target_type();
  if (target.shape.elements() == 0) return;
  std::vector<std::int64_t> extents;
  if (target.per_cell) extents.assign(source.extents().begin(), source.extents().end());
  if (target.per_cell || target.shape[0] != 1) extents.insert(extents.end(), target.shape.begin(), target.shape.end());
  const Shape shape(extents);
  extents.insert(extents.begin(), static_cast<std::int64_t>(part.samples.size()));
  const auto dataset = part.prefix + "label";
  writer.create(dataset, Shape(extents), target.type);
  copy_samples(writer, dataset, source, part, shape, target.type,
               [&](std::int64_t i, std::byte* to) { source.read_targets(i, source.whole(), to); });
  if (!target.names.empty()) writer.write_strings(dataset + "_names", target.names);
}

void write_part(Hdf5Writer& writer, const Source& source, const Part& part, const PackOptions& options) {
  const auto& e = source.extents();
  const Shape shape{e[0], e[1], e[2], source.channels()};
  const auto dataset = part.prefix + "volume";
  writer.create(dataset, {static_cast<std::int64_t>(part.samples.size()), e[0], e[1], e[2], source.channels()}, source.type());
  writer.attribute(dataset, "transform", std::string(name_of(source.transform())));
  copy_samples(
      writer, dataset, source, part, shape, source.type(),
      [&](std::int64_t i, std::byte* to) { source.read(i, source.whole(), to); }, options.progress);
  write_targets(writer, source, part);
}

void write_range(const fs::path& path, const Source& source, std::int64_t begin, std::int64_t end, const PackOptions& options) {
  Part part{.prefix = "", .samples = std::vector<std::int64_t>(static_cast<std::size_t>(end - begin)), .done = begin};
  std::iota(part.samples.begin(), part.samples.end(), begin);
  Hdf5Writer writer(path, false);
  write_part(writer, source, part, options);
  if (end - begin < source.size()) {  // readers of the folder detect a missing file by it
    writer.attribute("volume", "first", begin);
    writer.attribute("volume", "samples", source.size());
  }
  writer.commit();
}

void write_groups(const fs::path& path, const Source& source, const PackOptions& options) {
  Hdf5Writer writer(path, false);
  std::int64_t done = 0;
  for (const auto& group : options.groups) {
    write_part(writer, source, {.prefix = group.name + "/", .samples = group.samples, .done = done}, options);
    done += static_cast<std::int64_t>(group.samples.size());
  }
  writer.commit();
}

void require_groups(const Source& source, const PackOptions& options) {
  require(options.groups.empty() || options.samples_per_file == 0, "[pack] groups need one file, not several");
  std::set<std::string> names;
  for (const auto& group : options.groups) {
    require(!group.name.empty() && group.name.find('/') == std::string::npos && group.name.front() != '.',
            "[pack] '{}' is not a valid group name", group.name);
    require(names.insert(group.name).second, "[pack] two groups are called '{}'", group.name);
    require(!group.samples.empty(), "[pack] the group '{}' has no samples", group.name);
    for (const auto sample : group.samples) require_sample(source, sample);
  }
}

// Removes the folder at the end unless it was renamed.
struct Unfinished {
  fs::path path;
  ~Unfinished() {
    std::error_code ignored;
    if (!path.empty()) fs::remove_all(path, ignored);
  }
};

}  // namespace

void pack(const Source& source, const fs::path& path, const PackOptions& options) {
  require_same_extents(source, "a dataset needs samples of one size");
  const auto n = source.size(), each = options.samples_per_file;
  const auto& target = source.target_type();
  require(target.per_cell ? target.shape.rank() <= 1 : target.shape.rank() == 1,
          "[pack] {}: targets must be a row for each sample, or one target or a row for each cell, not {}",
          source.name_of_sample(0), target.shape);
  require(each >= 0, "[pack] {} samples in each file", each);
  std::error_code error;
  require(!is_name_taken(path), "[pack] {}: exists already and is not replaced", path.string());
  require_groups(source, options);
  if (!options.groups.empty()) return write_groups(path, source, options);
  if (each == 0) return write_range(path, source, 0, n, options);

  auto folder = path;
  folder += ".part";
  require(!is_name_taken(folder), "[pack] {} is in the way: it is from an interrupted attempt, or from one that is running",
          folder.string());
  const bool created = fs::create_directory(folder, error);
  require(created && !error, "[pack] {}: cannot be created: {}", folder.string(), error.message());
  Unfinished unfinished{folder};
  for (std::int64_t begin = 0, file = 0; begin < n; begin += each, ++file)
    write_range(folder / fmt::format("shard_{:05}.h5", file), source, begin, std::min(n, begin + each), options);
  require(!is_name_taken(path), "[pack] {}: was created by another program meanwhile and is not replaced", path.string());
  put_folder_in_place(folder, path, "pack");
  unfinished.path.clear();
}

}  // namespace mpigrad::data
