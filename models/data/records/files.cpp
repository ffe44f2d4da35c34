#include "models/data/records/files.h"

#include <algorithm>

#include "framework/base/error.h"
#include "framework/base/printable.h"
#include "models/data/records/frames.h"
#include "models/data/sources/bytes.h"

namespace mpigrad::data {

RecordFiles::RecordFiles(std::vector<std::filesystem::path> files, std::size_t open, const RecordMarks& marks)
    : first_{0}, limits_(marks), most_open_(open) {
  for (auto& path : files) {
    auto& file = files_.emplace_back(File{path, printable(path.string())});
    const bool single = first_.size() > 1 && one_in_each();
    if (single) file.starts = {0};
    first_.push_back(first_.back() + (single ? 1 : look_through(file)));
  }
}

std::int64_t RecordFiles::look_through(File& file) {
  const auto stream = open_stream(file.path);
  const bool plain = stream->passes_freely();
  std::int64_t count = 0;
  std::uint64_t at = 0, marked = 0;
  for (;; ++count) {
    if (!plain && at - marked >= limits_.interval) {
      file.marks.push_back({count, stream->copy()});
      marked = at;
      if (++marks_ > limits_.most) thin_out();
    }
    const auto start = at, bytes = pass_record(*stream, file.name);
    if (bytes == 0) break;
    if (plain) file.starts.push_back(start);
    at += bytes;
  }
  require(count > 0, "[tfrecord] {}: no records", file.name);
  return count;
}

// Drops every second mark.
void RecordFiles::thin_out() {
  marks_ = 0, limits_.interval *= 2;
  for (auto& file : files_) {
    std::size_t kept = 0;
    for (std::size_t i = 1; i < file.marks.size(); i += 2) file.marks[kept++] = std::move(file.marks[i]);
    file.marks.resize(kept);
    marks_ += kept;
  }
}

RecordFiles::Place RecordFiles::place_of(std::int64_t record) const {
  const auto file = std::upper_bound(first_.begin(), first_.end(), record) - first_.begin() - 1;
  return {static_cast<std::size_t>(file), record - first_[static_cast<std::size_t>(file)]};
}

void RecordFiles::check(std::size_t part, std::size_t parts) const {
  for (auto f = part; f < files_.size(); f += parts) {
    const auto start = take(*open_stream(files_[f].path), frame_start);
    (void)record_length({reinterpret_cast<const char*>(start.data()), start.size()}, files_[f].name);
  }
}

// The nearest stream before the record: an open one, a copy of a mark's, or a new one.
RecordFiles::Mark RecordFiles::take_stream(const Place& place) {
  const auto& file = files_[place.file];
  const auto after = std::upper_bound(file.marks.begin(), file.marks.end(), place.record,
                                      [](std::int64_t record, const Mark& mark) { return record < mark.record; });
  const auto* mark = after == file.marks.begin() ? nullptr : &*std::prev(after);
  {
    const std::lock_guard lock(mutex_);
    auto nearest = open_.end();
    auto least = mark != nullptr ? mark->record : 0;
    for (auto each = open_.begin(); each != open_.end(); ++each)
      if (each->first == place.file && each->second.record >= least && each->second.record <= place.record)
        nearest = each, least = each->second.record;
    if (nearest != open_.end()) {
      auto found = std::move(nearest->second);
      open_.erase(nearest);
      return found;
    }
  }
  if (mark != nullptr) return {mark->record, mark->stream->copy()};
  return {0, open_stream(file.path)};
}

void RecordFiles::read(std::int64_t record, std::string& to) {
  const auto place = place_of(record);
  const auto& file = files_[place.file];
  const auto count = first_[place.file + 1] - first_[place.file];
  auto [at, stream] = take_stream(place);
  bool there = true;
  if (!file.starts.empty()) {
    const auto between = file.starts[static_cast<std::size_t>(place.record)] - file.starts[static_cast<std::size_t>(at)];
    there = stream->pass(between) == between;
  } else {
    for (; there && at < place.record; ++at) there = pass_record(*stream, file.name) > 0;
  }
  require(there && next_record(*stream, file.name, to), "[tfrecord] {} has fewer records than when it was first read", file.name);
  if (place.record + 1 == count) {
    require(at_end(*stream), "[tfrecord] {}: more than {} records, the number when it was opened or that of the first file",
            file.name, count);
    return;
  }
  const std::lock_guard lock(mutex_);
  open_.emplace_front(place.file, Mark{place.record + 1, std::move(stream)});
  if (open_.size() > most_open_) open_.pop_back();
}

}  // namespace mpigrad::data
