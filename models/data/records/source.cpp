#include "models/data/records/source.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <regex>
#include <set>
#include <span>

#include "framework/base/job_queue.h"
#include "framework/base/printable.h"
#include "models/data/records/example.h"
#include "models/data/records/files.h"
#include "models/data/sources/bytes.h"

namespace mpigrad::data {

namespace fs = std::filesystem;

namespace {

// Negative numbers match, too, so that no file is silently left out because of its name.
bool is_record_name(const std::string& name) {
  static const std::regex pattern(R"(.*\.tfrecords?(-[-\d]+-of-[-\d]+)?(\.gz)?)");
  return std::regex_match(name, pattern);
}

// Error: a file NAME-I-of-N without all the other files of the N.
void require_all_shards(const std::vector<fs::path>& files) {
  static const std::regex pattern(R"((.*)-(\d{1,9})-of-(\d{1,9})(\.gz)?)");
  std::map<std::pair<std::string, std::int64_t>, std::set<std::int64_t>> sets;
  for (const auto& file : files) {
    std::smatch parts;
    const auto name = file.filename().string();
    static const std::regex impossible(R"(.*-(-[-\d]*-of-[-\d]+|[-\d]+-of-([-\d]*-[-\d]*|0+))(\.gz)?)");
    require(!std::regex_match(name, impossible), "[tfrecord] {}: its name has numbers that are impossible for a part of a set",
            printable(file.string()));
    if (!std::regex_match(name, parts, pattern)) continue;
    const auto number = std::stoll(parts[2]);
    require(sets[{parts[1], std::stoll(parts[3])}].insert(number).second,
            "[tfrecord] {}: there are two files with number {} of this name", printable(file.string()), number);
  }
  for (const auto& [set, numbers] : sets) {
    const auto& [name, count] = set;
    std::int64_t missing = 0;
    while (numbers.contains(missing)) ++missing;
    require(missing >= count && static_cast<std::int64_t>(numbers.size()) == count,
            "[tfrecord] {}: {} of the {} files {}-*-of-{:05} exist; number {} is missing",
            printable(files.front().parent_path().string()), numbers.size(), count, printable(name), count, missing);
  }
}

struct Decoded {
  std::string record;
  std::string_view volume;  // in the record
  std::vector<double> targets;
};
using DecodedPtr = std::shared_ptr<const Decoded>;

}  // namespace

struct RecordSource::State {
  State(std::vector<fs::path> files, RecordOptions given)
      : options(std::move(given)), files(std::move(files), static_cast<std::size_t>(options.threads) + 1) {}

  RecordOptions options;
  RecordFiles files;
  SampleType type;

  // Memory of records that are no longer used: fresh pages cost as much as reading them.
  mutable std::mutex spare_mutex;
  mutable std::vector<std::string> spare;
  // The most recently unpacked records: values and targets of a sample are asked for one after the other, or by two threads at
  // once.
  std::mutex mutex;
  std::deque<std::pair<std::int64_t, std::shared_future<DecodedPtr>>> recent;
  std::optional<JobQueue> queue;  // destroyed first

  std::string file_of(std::int64_t sample) const { return printable(files.path_of(sample).string()); }
  DecodedPtr decode(std::int64_t sample) {
    const auto name = file_of(sample);
    auto result = fresh();
    files.read(sample, result->record);
    const Example example(result->record, name);
    result->volume = example.bytes(options.volume);
    if (!options.targets.empty()) result->targets = example.numbers(options.targets);
    return result;
  }
  std::shared_ptr<Decoded> fresh() const {
    std::shared_ptr<Decoded> result(new Decoded(), [this](Decoded* decoded) {
      const std::lock_guard lock(spare_mutex);
      if (spare.size() < 4) spare.push_back(std::move(decoded->record));
      delete decoded;
    });
    const std::lock_guard lock(spare_mutex);
    if (!spare.empty()) result->record = std::move(spare.back()), spare.pop_back();
    return result;
  }
  // A decoded record, checked against the first one.
  DecodedPtr checked(std::int64_t sample) {
    auto result = decode(sample);
    const auto bytes = type.extents.elements() * type.channels * size_of(type.type);
    const auto name = file_of(sample);
    require(static_cast<std::int64_t>(result->volume.size()) == bytes,
            "[tfrecord] {}: '{}' has {} bytes, [{}, {}, {}, {}] of {} are {}", name, printable(options.volume),
            result->volume.size(), type.extents[0], type.extents[1], type.extents[2], type.channels, name_of(type.type), bytes);
    const auto targets = type.targets.shape.elements();
    require(static_cast<std::int64_t>(result->targets.size()) == targets, "[tfrecord] {}: '{}' has {} numbers, {} are expected",
            name, printable(options.targets), result->targets.size(), targets);
    for (const double value : result->targets)
      require(std::isfinite(value), "[tfrecord] {}: '{}' holds {}", name, printable(options.targets), value);
    return result;
  }
  DecodedPtr get(std::int64_t sample) {
    std::promise<DecodedPtr> promise;
    {
      std::unique_lock lock(mutex);
      for (const auto& [of, decoded] : recent)
        if (of == sample) {
          const auto found = decoded;
          lock.unlock();
          return found.get();
        }
      recent.emplace_front(sample, promise.get_future().share());
      if (recent.size() > static_cast<std::size_t>(options.threads) + 1) recent.pop_back();
    }
    try {
      auto result = checked(sample);
      promise.set_value(result);
      return result;
    } catch (...) {
      promise.set_exception(std::current_exception());
      const std::lock_guard lock(mutex);  // a later request reads it again
      std::erase_if(recent, [&](const auto& each) { return each.first == sample; });
      throw;
    }
  }
  void settle();
};

// The first record determines what the others must be.
void RecordSource::State::settle() {
  const auto name = file_of(0);
  require(options.channels > 0, "[tfrecord] volumes have at least one channel, not {}", options.channels);
  const auto decoded = decode(0);
  const auto cell = options.channels * size_of(options.type);
  const auto bytes = static_cast<std::int64_t>(decoded->volume.size());
  auto extents = options.extents;
  if (extents.rank() == 0) {
    const auto side = std::llround(std::cbrt(static_cast<double>(bytes) / static_cast<double>(cell)));
    require(side > 0 && side * side * side * cell == bytes,
            "[tfrecord] {}: {} bytes are not a cube of {} channels of {}: set the extents", name, bytes, options.channels,
            name_of(options.type));
    extents = {side, side, side};
  }
  require(extents.rank() == 3 && extents.elements() > 0, "[tfrecord] extents are [D, H, W], at least 1 each: {}", extents);
  type.extents = extents, type.channels = options.channels, type.type = options.type, type.transform = options.transform;
  const auto count = static_cast<std::int64_t>(decoded->targets.size());
  require_target_count(count, fmt::format("[tfrecord] {}", name));
  auto& names = type.targets.names;
  type.targets.type = count > 0 ? DType::float64 : DType::float32, type.targets.shape = {count};
  names = options.target_names;
  if (names.empty() && count == 4) names = {"Omega_m", "sigma_8", "n_s", "H_0"};
  if (names.empty())
    for (std::int64_t i = 0; i < count; ++i) names.push_back(fmt::format("target {}", i));
  require(static_cast<std::int64_t>(names.size()) == count, "[tfrecord] {}: {} names for {} targets", name, names.size(), count);
  (void)checked(0);
}

RecordSource::RecordSource(const fs::path& path, RecordOptions options) {
  require(std::endian::native == std::endian::little, "[tfrecord] bytes of volumes are little-endian, but this processor is not");
  const auto files = files_at(path, is_record_name, "no *.tfrecord and no *.tfrecord.gz in this folder");
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) require_all_shards(files);
  state_ = std::make_shared<State>(files, std::move(options));
  state_->settle();
  state_->queue.emplace(state_->options.threads);
}

std::int64_t RecordSource::size() const { return state_->files.size(); }
const SampleType& RecordSource::sample_type() const { return state_->type; }
JobQueue& RecordSource::queue() const { return *state_->queue; }

std::string RecordSource::name_of_sample(std::int64_t sample) const {
  require_sample(*this, sample);
  const auto name = state_->file_of(sample);
  return state_->files.one_in_each() ? name : fmt::format("{} [{}]", name, state_->files.place_of(sample).record);
}

void RecordSource::read(std::int64_t sample, const Box& box, std::byte* out) const {
  require_sample(*this, sample);
  const auto decoded = state_->get(sample);
  const auto& t = state_->type;
  copy_box(reinterpret_cast<const std::byte*>(decoded->volume.data()), t.channels * size_of(t.type), t.extents, box, out);
}

void RecordSource::read_targets(std::int64_t sample, const Box&, std::byte* out) const {
  require_sample(*this, sample);
  const auto decoded = state_->get(sample);
  const auto bytes = std::as_bytes(std::span(decoded->targets));
  std::copy(bytes.begin(), bytes.end(), out);  // may be empty
}

void RecordSource::check(std::int64_t part, std::int64_t parts) const {
  state_->files.check(static_cast<std::size_t>(part), static_cast<std::size_t>(parts));
}

bool is_record_file(const fs::path& path) { return is_record_name(path.filename().string()); }

}  // namespace mpigrad::data
