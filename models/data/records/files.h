#pragma once
// The records of TFRecord files, by their numbers.

#include <cstdint>
#include <deque>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "models/data/compressed/compressed.h"

namespace mpigrad::data {

// Where the unpacking of packed files is remembered.
struct RecordMarks {
  std::uint64_t interval = 1 << 20;  // unpacked bytes
  std::size_t most = 2048;           // of all files; the interval doubles where there would be more
};

// All records of some files, one after the other. A file is looked through once, when this is made. Of a plain file the place of
// every record is kept, and a record is read by itself. What gzip has packed can only be unpacked from the front: there a mark,
// 50 KB that unpacking goes on from, is kept at intervals, and a record costs at most such an interval beside its own bytes.
// Records that follow each other are read from one open file.
class RecordFiles {
 public:
  // `open`: files that stay open between two reads. If the first file has one record, all must, and no other file is opened
  // here. Errors, with the file: not TFRecord, cut off, no records.
  RecordFiles(std::vector<std::filesystem::path> files, std::size_t open, const RecordMarks& marks = {});

  std::int64_t size() const { return first_.back(); }
  bool one_in_each() const { return first_[1] == 1; }
  struct Place {
    std::size_t file;
    std::int64_t record;
  };
  Place place_of(std::int64_t record) const;
  const std::filesystem::path& path_of(std::int64_t record) const { return files_[place_of(record).file].path; }
  std::size_t marks() const { return marks_; }
  // Begins to read each `parts`-th file from `part` on. Error, with the file: no TFRecord.
  void check(std::size_t part, std::size_t parts) const;

  // A record into `to`, whose memory is used again. Any number of threads at once. Errors, with the file: those of next_record();
  // another number of records than there were.
  void read(std::int64_t record, std::string& to);

 private:
  // A stream that is about to read a record of its file.
  struct Mark {
    std::int64_t record;
    ByteStreamPtr stream;
  };
  struct File {
    std::filesystem::path path;
    std::string name;                     // for messages
    std::vector<std::uint64_t> starts{};  // bytes before each record, of a plain file
    std::vector<Mark> marks{};            // of a packed one, in order
  };
  std::int64_t look_through(File& file);
  void thin_out();
  Mark take_stream(const Place& place);

  std::vector<File> files_;
  std::vector<std::int64_t> first_;  // record of each file, and the number of all
  RecordMarks limits_;
  std::size_t marks_ = 0;

  std::size_t most_open_;
  std::mutex mutex_;
  std::deque<std::pair<std::size_t, Mark>> open_;  // by file, the one used last first
};

}  // namespace mpigrad::data
