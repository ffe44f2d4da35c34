#include "models/trainer/samples.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <span>
#include <unordered_map>

#include "framework/base/joined.h"
#include "framework/base/printable.h"
#include "models/data/sources/bytes.h"
#include "models/data/sources/open.h"
#include "models/data/volumes/table.h"
#include "models/data/volumes/volume_formats.h"

namespace mpigrad::trainer {
namespace {

class Chosen : public data::Source {
 public:
  // `rows`: the targets of the chosen samples, one after the other.
  Chosen(data::SourcePtr source, std::vector<std::int64_t> samples, data::TargetType targets, std::span<const std::byte> rows)
      : source_(std::move(source)), samples_(std::move(samples)), rows_(rows.begin(), rows.end()), type_(source_->sample_type()) {
    type_.targets = std::move(targets);
    row_bytes_ = static_cast<std::size_t>(type_.targets.shape.elements() * size_of(type_.targets.type));
    require(rows_.size() == samples_.size() * row_bytes_, "[data] {} bytes of targets for {} samples", rows_.size(),
            samples_.size());
  }

  std::int64_t size() const override { return static_cast<std::int64_t>(samples_.size()); }
  const data::SampleType& sample_type() const override { return type_; }
  void read(std::int64_t sample, const Box& box, std::byte* out) const override { source_->read(stored(sample), box, out); }
  void read_targets(std::int64_t sample, const Box&, std::byte* out) const override {
    if (row_bytes_ > 0) std::memcpy(out, rows_.data() + static_cast<std::size_t>(sample) * row_bytes_, row_bytes_);
  }
  Shape extents_of(std::int64_t sample) const override { return source_->extents_of(stored(sample)); }
  std::string name_of_sample(std::int64_t sample) const override { return source_->name_of_sample(stored(sample)); }
  // Checks all samples of the source, so that a flaw in one that is left out is found now, too.
  void check(std::int64_t part, std::int64_t parts) const override { source_->check(part, parts); }
  bool in_memory() const override { return source_->in_memory(); }
  bool targets_in_memory() const override { return true; }
  JobQueue& queue() const override { return source_->queue(); }

 private:
  std::int64_t stored(std::int64_t sample) const {
    data::require_sample(*this, sample);
    return samples_[static_cast<std::size_t>(sample)];
  }

  data::SourcePtr source_;
  std::vector<std::int64_t> samples_;
  std::vector<std::byte> rows_;
  std::size_t row_bytes_ = 0;
  data::SampleType type_;
};

// Numbers of samples by file name, and by "folder/name"; -1 for a name that occurs several times.
std::unordered_map<std::string, std::int64_t> samples_by_file(const data::Source& source) {
  std::unordered_map<std::string, std::int64_t> result;
  for (std::int64_t i = 0; i < source.size(); ++i) {
    const std::filesystem::path path = source.name_of_sample(i);
    for (const auto& name : {path.filename(), path.parent_path().filename() / path.filename()})
      if (const auto [found, fresh] = result.try_emplace(name.string(), i); !fresh && found->second != i) found->second = -1;
  }
  return result;
}

double number_of(const std::string& cell, const std::string& where) {
  char* end = nullptr;
  const double value = std::strtod(cell.c_str(), &end);
  require(!cell.empty() && *end == '\0' && std::isfinite(value), "{}: '{}' is not a number", where, printable(cell));
  return value;
}

TargetRows rows_of_table(const data::Source& source, const std::string& path) {
  const auto table = data::read_table(path);
  const auto where = "[data] " + path;
  require(table.columns.size() >= 2, "{}: the first column is a sample's file or number, and there is a column for each target",
          where);
  TargetRows rows;
  for (auto name = table.columns.begin() + 1; name != table.columns.end(); ++name) rows.names.push_back(printable(*name));
  const auto width = rows.names.size();
  data::require_target_count(static_cast<std::int64_t>(width), where);
  const auto by_file = samples_by_file(source);
  rows.values.resize(static_cast<std::size_t>(source.size()) * width);
  std::vector<bool> known(static_cast<std::size_t>(source.size()));
  for (const auto& row : table.rows) {
    const auto& cell = row.front();
    const auto text = fmt::format("{}: the row '{}'", where, printable(cell));
    std::int64_t sample = -1;
    if (const auto found = by_file.find(cell); found != by_file.end()) {
      sample = found->second;
      require(sample >= 0, "{} is of several files; write FOLDER/NAME", text);
    } else {
      const auto [stop, error] = std::from_chars(cell.data(), cell.data() + cell.size(), sample);
      if (stop != cell.data() + cell.size() || cell.empty()) continue;
      require(error == std::errc{} && sample >= 0 && sample < source.size(), "{} is of no sample: they are 0 to {}", text,
              source.size() - 1);
    }
    const auto at = static_cast<std::size_t>(sample);
    require(!known[at], "{} is the second one of {}", text, source.name_of_sample(sample));
    known[at] = true;
    for (std::size_t t = 0; t < width; ++t)
      rows.values[at * width + t] = number_of(row[t + 1], fmt::format("{}, column '{}'", text, rows.names[t]));
  }
  const auto missing = std::find(known.begin(), known.end(), false) - known.begin();
  require(missing == source.size(), "{} has no row for {}", where, source.name_of_sample(std::min(missing, source.size() - 1)));
  return rows;
}

}  // namespace

void add_sample_keys(Keys& keys, SampleOptions& o, const std::string& part) {
  keys.add("data.path", o.data,
           fmt::format(
               "the samples: IDX, .npy, .npz, CIFAR's .bin, a folder of pictures or volumes (PNG, JPEG, {}), HDF5 or a folder of "
               "shards",
               data::volume_format_names()))
      .with_flag("--data");
  if (!part.empty())
    keys.add("data." + part, o.part, "the part: of HDF5 a group, of .npz the arrays' first word, of CIFAR train or test")
        .instead_of("--" + part);
  keys.add("data.volume", o.volume, "dataset of samples in HDF5").instead_of("--volume");
  keys.add("data.label_dataset", o.label_dataset, "dataset of labels in HDF5; empty: none").instead_of("--label-dataset");
  keys.add("data.labels", o.labels,
           "NAME=FILE: integers (IDX or .npy), one for each sample, instead of the data's own; may be several")
      .instead_of("--labels");
  keys.add("data.stored", o.stored, "extents to which samples are resized when they are read, as H,W or D,H,W")
      .with_unit("cells")
      .instead_of("--stored");
  keys.add("data.channels", o.channels, one_of({"1", "3"}), "channels of folders of pictures: 1 or 3")
      .with_default("as stored")
      .instead_of("--channels");
}

void add_worker_key(Keys& keys, SampleOptions& o) {
  keys.add("data.workers", o.workers, whole(0, 1024), "threads of each rank that prepare samples").instead_of("--workers");
}

void add_label_key(Keys& keys, SampleOptions& o) {
  keys.add("data.label", o.label, "name of the labels to use").with_default("the first").instead_of("--label");
}

void add_target_key(Keys& keys, SampleOptions& o) {
  keys.add("data.targets", o.targets,
           "table (CSV) of numbers to predict: the first line names the columns, the first column is the sample's file or its "
           "number "
           "from 0; instead of the data's own")
      .instead_of("--targets");
}

Shape parse_extents(const std::string& option, const std::string& text) {
  Shape result;
  for (std::size_t begin = 0; !text.empty() && begin <= text.size();) {
    const auto end = std::min(text.find(',', begin), text.size());
    std::int64_t extent = 0;
    const auto [stop, error] = std::from_chars(text.data() + begin, text.data() + end, extent);
    if (error != std::errc{} || stop != text.data() + end || extent < 1 || extent > 65536 || result.rank() == 3)
      throw UsageError(fmt::format("{} is H,W or D,H,W, such as 32,32; got '{}'", option, text));
    result.push_back(extent);
    begin = end + 1;
  }
  if (result.rank() == 1) result = Shape{1, result[0], result[0]};
  if (result.rank() == 2) result = Shape{1, result[0], result[1]};
  return result;
}

data::SourcePtr open(const SampleOptions& o, const std::string& path, const std::string& part, bool targets) {
  data::OpenOptions options{.group = part,
                            .extents = parse_extents("data.stored", o.stored),
                            .channels = o.channels,
                            .threads = std::max(1, o.workers)};
  options.names = {.volume = o.volume, .label = o.label_dataset};
  options.targets = targets && o.targets.empty();
  if (options.extents.rank() == 0) options.extents = {};
  if (!o.targets.empty() && !o.labels.empty())
    throw UsageError("data.labels gives classes and data.targets numbers to predict: one of the two");
  for (const auto& text : o.labels) {
    if (text.ends_with(".csv"))
      throw UsageError(fmt::format(
          "data.labels takes integers in IDX or .npy files, got '{}'; a table (CSV) of numbers is data.targets of classify",
          text));
    const auto equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      throw UsageError(fmt::format("data.labels is NAME=FILE, such as kind=kinds.npy; got '{}'", text));
    if (!options.labels.emplace(text.substr(0, equals), text.substr(equals + 1)).second)
      throw UsageError(fmt::format("data.labels: '{}' is given twice", text.substr(0, equals)));
  }
  return data::open_source(path, options);
}

data::SourcePtr open(const SampleOptions& o) {
  if (o.data.empty()) throw UsageError("--data is needed");
  return open(o, o.data, o.part);
}

void require_label(const data::Source& source, const std::string& name) {
  if (name.empty()) return;
  require(has_labels(source), "[data] data.label {}: the samples of {} have no labels", name, source.name_of_sample(0));
  label_index(source, name);
}

bool has_labels(const data::Source& source) { return source.has_classes() && !source.target_names().empty(); }

std::size_t label_index(const data::Source& source, const std::string& name) {
  const auto& names = source.target_names();
  if (name.empty()) return 0;
  const auto found = std::find(names.begin(), names.end(), name);
  require(found != names.end(), "[data] there are no labels '{}', but {}", name, joined(names, ", "));
  return static_cast<std::size_t>(found - names.begin());
}

std::vector<std::int64_t> labels_of(const data::Source& source, const std::string& name, const std::string& what) {
  require(has_labels(source), "[data] {} needs labels, and the samples of {} have none; data.labels NAME=FILE gives them", what,
          source.name_of_sample(0));
  const auto place = label_index(source, name);
  std::vector<std::int64_t> result;
  for (std::int64_t i = 0; i < source.size(); ++i) result.push_back(static_cast<std::int64_t>(source.targets(i)[place]));
  return result;
}

TargetRows target_rows(const data::Source& source, const SampleOptions& o) {
  if (!o.targets.empty()) return rows_of_table(source, o.targets);
  const auto& type = source.target_type();
  TargetRows rows;
  if (!is_floating(type.type) || type.per_cell) return rows;
  rows.names = type.names;
  for (auto t = std::ssize(rows.names); t < type.shape.elements(); ++t) rows.names.push_back(fmt::format("target {}", t));
  if (rows.names.empty()) return rows;
  for (std::int64_t i = 0; i < source.size(); ++i) {
    const auto row = source.targets(i);
    for (std::size_t t = 0; t < row.size(); ++t)
      require(std::isfinite(row[t]), "[data] {}: the target '{}' is {}", source.name_of_sample(i), rows.names[t], row[t]);
    rows.values.insert(rows.values.end(), row.begin(), row.end());
  }
  return rows;
}

std::vector<std::string> class_names(const data::Source& source, const SampleOptions& o) {
  const auto* folder = dynamic_cast<const data::FolderSource*>(&source);
  return folder == nullptr || !o.labels.empty() ? std::vector<std::string>() : folder->classes();
}

void set_reading(data::LoaderOptions& loader, const data::Source& source, const Options& o) {
  loader.shifts = o.shifts, loader.transpositions = o.transpositions;
  loader.store_bytes = static_cast<std::int64_t>(std::min(o.store, 1e9) * double{1 << 30});
  loader.ghosts = o.ghosts;
  loader.collective = o.read == "collective";
  if (loader.collective && source.in_memory())
    throw UsageError("data.read collective: all samples of data.path are in memory, so that ranks read nothing; omit the key");
}

std::vector<std::int64_t> all_samples(const data::Source& source) {
  std::vector<std::int64_t> samples(static_cast<std::size_t>(source.size()));
  std::iota(samples.begin(), samples.end(), 0);
  return samples;
}

data::SourcePtr chosen(data::SourcePtr source, std::vector<std::int64_t> samples, const std::string& label,
                       std::vector<std::int64_t> classes) {
  data::TargetType type{};
  if (!classes.empty()) type = {.type = DType::int64, .shape = {1}, .names = {label}};
  return std::make_shared<Chosen>(std::move(source), std::move(samples), std::move(type), std::as_bytes(std::span(classes)));
}

data::SourcePtr chosen(data::SourcePtr source, std::vector<std::int64_t> samples, const TargetRows& targets) {
  data::TargetType type{
      .type = DType::float64, .shape = {static_cast<std::int64_t>(targets.names.size())}, .names = targets.names};
  return std::make_shared<Chosen>(std::move(source), std::move(samples), std::move(type),
                                  std::as_bytes(std::span(targets.values)));
}

}  // namespace mpigrad::trainer
