#include "models/trainer/data_check.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>

#include "framework/base/printable.h"
#include "framework/engine/activity.h"

namespace mpigrad::trainer {

DataContents& DataContents::operator+=(const DataContents& other) {
  samples += other.samples, bytes += other.bytes, seconds += other.seconds;
  return *this;
}

std::string DataContents::remark() const {
  return fmt::format("{} read and checked in {:.1f} s", readable_bytes(bytes), seconds);
}

DataContents read_data(const Communicator& world, const data::Source& source, const std::vector<std::int64_t>& samples,
                       const data::ContentsOptions& options) {
  const detail::SlowPhase phase;  // ranks wait for the one with the slowest files
  const auto start = std::chrono::steady_clock::now();
  data::Contents own;
  trainer::together(world, [&] { own = data::read_contents(source, samples, world.rank(), world.size(), options); });
  const std::array<std::int64_t, 4> mine{std::bit_cast<std::int64_t>(own.values), std::bit_cast<std::int64_t>(own.targets),
                                         own.bytes, own.flaw_at};
  const auto ranks = static_cast<std::size_t>(world.size());
  std::vector<std::int64_t> all(mine.size() * ranks);
  world.transport().allgather(mine.data(), all.data(), std::vector<std::int64_t>(ranks, mine.size()), DType::int64);
  DataContents result{.samples = static_cast<std::int64_t>(samples.size())};
  std::int64_t flaw_at = -1;
  int flawed = -1;
  for (std::size_t r = 0; r < ranks; ++r) {
    const auto* of = all.data() + mine.size() * r;
    result.values += std::bit_cast<std::uint64_t>(of[0]), result.targets += std::bit_cast<std::uint64_t>(of[1]);
    result.bytes += of[2];
    if (of[3] >= 0 && (flaw_at < 0 || of[3] < flaw_at)) flaw_at = of[3], flawed = static_cast<int>(r);
  }
  trainer::together(world, [&] {
    if (world.rank() == flawed) throw UsageError(own.flaw);
  });
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

void check_data(const Communicator& world, const data::Source& source, const std::vector<std::int64_t>& samples,
                const data::ContentsOptions& options) {
  if (is_floating(source.type()) || options.cells) return (void)read_data(world, source, samples, options);
  trainer::together(world, [&] {
    try {
      source.check(world.rank(), world.size());
    } catch (const Error& error) {
      throw UsageError(error.what());
    }
  });
}

namespace {

std::string note_of_values(const DataContents& contents) {
  return fmt::format("{} samples, values {:016x}", contents.samples, contents.values);
}

std::string note_of_contents(const DataContents& contents) {
  return fmt::format("{}, targets {:016x}", note_of_values(contents), contents.targets);
}

}  // namespace

void add_contents(Notes& notes, const std::string& data, const DataContents& training, const DataContents* kept) {
  auto path = std::filesystem::path(data);
  if (!path.has_filename()) path = path.parent_path();
  notes[data_note] = printable(path.filename().string());
  notes[training_contents_note] = note_of_contents(training);
  if (kept != nullptr) notes[kept_contents_note] = note_of_contents(*kept);
}

bool is_of_number(const std::string& note, std::int64_t samples) { return note.starts_with(fmt::format("{} samples,", samples)); }

bool is_of_values(const std::string& note, const DataContents& contents) {
  return note.starts_with(note_of_values(contents) + ",");
}

void require_same_contents(const Communicator& world, const std::string& file, const CheckpointInfo& info, const Notes& notes) {
  const auto before = [&](const std::string& name) {
    const auto found = info.notes.find(name);
    return found == info.notes.end() ? std::string("unknown") : printable(found->second);
  };
  const auto now = [&](const std::string& name) {
    const auto found = notes.find(name);
    return found == notes.end() ? std::string("none") : found->second;
  };
  const auto refuse = [&](const std::string& name) {
    throw UsageError(fmt::format(
        "[resume] {} was trained on other samples: {} of '{}' {}, now of '{}' {}; --resume continues only with the same samples, "
        "--weights begins a new training",
        file, name, before(data_note), before(name), now(data_note), now(name)));
  };
  if (info.notes.contains(training_contents_note)) {
    for (const auto* name : {training_contents_note, kept_contents_note})
      if (notes.contains(name) && before(name) != now(name)) refuse(name);
    return;
  }
  if (!notes.contains(training_contents_note)) return;
  for (const auto& [name, text] : notes)
    if (is_data_note(name) && name != data_note && before(name) != text) refuse(name);
  if (world.rank() == 0)
    fmt::print(stderr,
               "warning: {} does not know the contents of the data that it was trained on: number and names of the samples are "
               "the same, "
               "whether the contents are is not known\n",
               file);
}

void require_finite_predictions(const std::string& weights, const data::Source& source, const Predictions& predictions) {
  for (std::size_t i = 0; i < predictions.predicted.size(); ++i)
    if (!std::isfinite(predictions.predicted[i])) {
      const auto sample = predictions.samples[i / static_cast<std::size_t>(predictions.outputs)];
      throw UsageError(
          fmt::format("[predict] {} predicts {} of {}, whose values are finite: the weights or --precision cannot be used",
                      weights, predictions.predicted[i], source.name_of_sample(sample)));
    }
}

}  // namespace mpigrad::trainer
