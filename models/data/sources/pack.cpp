#include "models/data/sources/pack.h"

#include <algorithm>

#include "comm/hdf5/hdf5_file.h"
#include "framework/tensor/host_memory.h"

namespace mpigrad::data {

namespace fs = std::filesystem;

namespace {

void write_targets(Hdf5Writer& writer, const Source& source, std::int64_t begin, std::int64_t end) {
  const auto names = source.target_names();
  if (names.empty()) return;
  const auto t = static_cast<std::int64_t>(names.size());
  std::vector<std::future<std::vector<double>>> rows;
  for (auto i = begin; i < end; ++i) rows.push_back(source.targets_async(i));
  std::vector<double> values;
  for (auto& row : rows) {
    const auto one = row.get();
    values.insert(values.end(), one.begin(), one.end());
  }
  const Shape shape = t == 1 ? Shape{end - begin} : Shape{end - begin, t};
  const std::vector<std::int64_t> origin(static_cast<std::size_t>(shape.rank()), 0);
  writer.create("label", shape, source.target_type());
  if (source.target_type() == DType::int64) {
    const std::vector<std::int64_t> classes(values.begin(), values.end());
    writer.write_box("label", origin, shape.span(), DType::int64, classes.data());
  } else {
    writer.write_box("label", origin, shape.span(), DType::float64, values.data());
  }
  writer.write_strings("label_names", names);
}

void write_file(const fs::path& path, const Source& source, std::int64_t begin, std::int64_t end, const PackOptions& options) {
  const auto& e = source.extents();
  const auto c = source.channels(), n = end - begin;
  Hdf5Writer writer(path, false);
  writer.create("volume", {n, e[0], e[1], e[2], c}, source.type());
  writer.attribute("volume", "transform", std::string(name_of(source.transform())));
  if (n < source.size()) {  // by which a reader of the folder knows that none is missing
    writer.attribute("volume", "first", begin);
    writer.attribute("volume", "samples", source.size());
  }
  const auto bytes = e.elements() * c * size_of(source.type());
  const auto at_once = std::clamp<std::int64_t>((std::int64_t{64} << 20) / bytes, 1, n);
  require_host_memory(fmt::format("[pack] {}", source.name_of_sample(begin)), static_cast<double>(at_once * bytes));
  std::vector<std::byte> buffer(static_cast<std::size_t>(at_once * bytes));
  const Shape origin{0, 0, 0};
  for (auto first = begin; first < end; first += at_once) {
    const auto last = std::min(end, first + at_once);
    std::vector<std::future<void>> reads;
    std::exception_ptr problem;
    const auto attempt = [&](const auto& f) {  // what is being read must not outlive the buffer
      try {
        f();
      } catch (...) {
        if (!problem) problem = std::current_exception();
      }
    };
    for (auto i = first; i < last; ++i)
      attempt([&] {
        reads.push_back(source.read_async(i, origin.span(), e.span(), source.type(), buffer.data() + (i - first) * bytes));
      });
    for (auto& read : reads) attempt([&] { read.get(); });
    if (problem) std::rethrow_exception(problem);
    const std::array<std::int64_t, 5> from{first - begin, 0, 0, 0, 0}, to{last - begin, e[0], e[1], e[2], c};
    writer.write_box("volume", from, to, source.type(), buffer.data());
    if (options.progress) options.progress(last);
  }
  write_targets(writer, source, begin, end);
  writer.commit();
}

// A folder that is gone at the end unless it got its name.
struct Unfinished {
  fs::path path;
  ~Unfinished() {
    std::error_code ignored;
    if (!path.empty()) fs::remove_all(path, ignored);
  }
};

}  // namespace

void pack(const Source& source, const fs::path& path, const PackOptions& options) {
  const auto n = source.size(), each = options.samples_per_file;
  require(each >= 0, "[pack] {} samples in each file", each);
  std::error_code error;
  require(!fs::exists(fs::symlink_status(path, error)), "[pack] {}: exists already and is not replaced", path.string());
  if (each == 0) return write_file(path, source, 0, n, options);

  auto folder = path;
  folder += ".part";
  require(!fs::exists(fs::symlink_status(folder, error)),
          "[pack] {} is in the way: an attempt that was interrupted, or another one", folder.string());
  const bool created = fs::create_directory(folder, error);
  require(created && !error, "[pack] {}: cannot be created: {}", folder.string(), error.message());
  Unfinished unfinished{folder};
  for (std::int64_t begin = 0, file = 0; begin < n; begin += each, ++file)
    write_file(folder / fmt::format("shard_{:05}.h5", file), source, begin, std::min(n, begin + each), options);
  require(!fs::exists(fs::symlink_status(path, error)), "[pack] {}: has appeared meanwhile and is not replaced", path.string());
  fs::rename(folder, path, error);
  require(!error, "[pack] {}: cannot be renamed from {}: {}", path.string(), folder.string(), error.message());
  unfinished.path.clear();
}

}  // namespace mpigrad::data
