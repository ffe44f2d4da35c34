#pragma once
// The readers of files, each with small valid files and a function that reads a whole file: for libFuzzer (harness.cpp) and for
// the tests of damaged files (readers_test.cpp).

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "models/data/compressed/compressed.h"

namespace mpigrad::testing {

struct ValidFile {
  data::Bytes bytes;
  std::size_t also_valid = 0;  // length of a shorter valid file that is a prefix of this one; 0: none
};

struct FileReader {
  std::string name;            // the fuzzer is fuzz_NAME
  std::string file;            // name of the file for an input, in a new folder
  bool every_cut_told = true;  // false: a file that is cut off between two entries is valid
  std::vector<ValidFile> valid{};
  // Returns a hash of all values. Throws an Error, and no other exception, to refuse a file.
  std::function<std::uint64_t(const std::filesystem::path& file)> read{};
  // The reader gets libFuzzer's bytes unchanged and also wrapped with right checksums, because checksums stop nearly every
  // changed input.
  std::function<data::Bytes(const data::Bytes&)> wrap{};
};

// The readers of this build. Valid files may be written to `folder`.
std::vector<FileReader> file_readers(const std::filesystem::path& folder);

struct ReadFile {
  std::optional<std::uint64_t> hash{};  // empty: the file is refused
  std::string error{};
};
// The result of reader.read for these bytes, which are written to `folder` first.
ReadFile read_bytes(const FileReader& reader, const std::filesystem::path& folder, const data::Bytes& bytes);

}  // namespace mpigrad::testing
