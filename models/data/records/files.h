#pragma once
// Access to the records of TFRecord files by number.

#include <cstdint>
#include <deque>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "models/data/compressed/compressed.h"

namespace mpigrad::data {

// Limits of the marks at which unpacking of packed files can resume.
struct RecordMarks {
  std::uint64_t interval = 1 << 20;  // unpacked bytes
  std::size_t most = 2048;           // for all files; the interval doubles if there would be more
};

// All records of some files, one after the other. Each file is scanned once, in the constructor. For a plain file the position of
// every record is kept, and a record is read directly. A file packed by gzip can only be unpacked from the front: marks of 50 KB,
// from which unpacking can resume, are kept at intervals, and a record costs at most one interval of unpacking in addition to its
// own bytes. Consecutive records are read from one open file.
class RecordFiles {
 public:
  // `open`: files that stay open between two reads. If the first file has one record, all must, and no other file is opened here.
  // Errors, with the file: not TFRecord, truncated, no records.
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
  // Begins to read every `parts`-th file, starting at `part`. Error, with the file: not TFRecord.
  void check(std::size_t part, std::size_t parts) const;

  // Reads a record into `to`, whose memory is reused. Thread-safe. Errors, with the file: those of next_record(); another number
  // of records than in the constructor.
  void read(std::int64_t record, std::string& to);

 private:
  // A stream positioned at a record of its file.
  struct Mark {
    std::int64_t record;
    ByteStreamPtr stream;
  };
  struct File {
    std::filesystem::path path;
    std::string name;                     // for messages
    std::vector<std::uint64_t> starts{};  // for a plain file: bytes before each record
    std::vector<Mark> marks{};            // for a packed file, in order
  };
  std::int64_t look_through(File& file);
  void thin_out();
  Mark take_stream(const Place& place);

  std::vector<File> files_;
  std::vector<std::int64_t> first_;  // the first record of each file, and the total number
  RecordMarks limits_;
  std::size_t marks_ = 0;

  std::size_t most_open_;
  std::mutex mutex_;
  std::deque<std::pair<std::size_t, Mark>> open_;  // by file, most recently used first
};

}  // namespace mpigrad::data
