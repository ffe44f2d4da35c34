#pragma once
// The readers of files, each with small valid files and one function that reads all of such a file: for libFuzzer (harness.cpp)
// and for the tests of damaged files (readers_test.cpp).

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
  std::size_t also_valid = 0;  // bytes of a shorter valid file with which this one begins; 0: there is none
};

struct FileReader {
  std::string name;            // of the fuzzer fuzz_NAME
  std::string file;            // the name under which an input is written, in a folder of its own
  bool every_cut_told = true;  // false: a file that is cut off between two entries is valid
  std::vector<ValidFile> valid{};
  // A hash of all values. Error, and no other exception: a file that is refused.
  std::function<std::uint64_t(const std::filesystem::path& file)> read{};
  // The reader gets libFuzzer's bytes as they are and also wrapped: with right checksums, which stop nearly every changed input.
  std::function<data::Bytes(const data::Bytes&)> wrap{};
};

// The readers that this build has. `folder`: where valid files may be made.
std::vector<FileReader> file_readers(const std::filesystem::path& folder);

struct ReadFile {
  std::optional<std::uint64_t> hash{};  // none: the file is refused
  std::string error{};
};
// The result of reader.read for these bytes, which are written to `folder` first.
ReadFile read_bytes(const FileReader& reader, const std::filesystem::path& folder, const data::Bytes& bytes);

}  // namespace mpigrad::testing
