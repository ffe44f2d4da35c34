// Damaged files: every reader must refuse them with an Error or return the right values. libFuzzer's entry is harness.cpp.

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>

#include "tests/fuzz/readers.h"
#include "tests/support/files.h"

namespace mpigrad::testing {
namespace {

namespace fs = std::filesystem;

TEST_CASE("damaged files: valid files are read, and what is cut off is refused") {
  const Folder seeds, folder;
  for (const auto& reader : file_readers(seeds.path)) {
    CAPTURE(reader.name);
    for (const auto& [bytes, also_valid] : reader.valid) {
      const auto whole = read_bytes(reader, folder.path / reader.name, bytes);
      CAPTURE(whole.error);
      REQUIRE(whole.hash.has_value());
      const auto size = bytes.size(), ends = std::min<std::size_t>(size, 300);
      std::set<std::size_t> lengths{size * 2 / 3};
      if (reader.every_cut_told)
        for (std::size_t i = 0; i < ends; ++i) lengths.insert({i, size - 1 - i});
      for (const auto length : lengths) {
        const auto cut =
            read_bytes(reader, folder.path / reader.name, {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length)});
        // All data are present, only bytes around them are missing.
        const bool told = !cut.hash || *cut.hash == *whole.hash || (length == also_valid && length > 0);
        if (!told) FAIL_CHECK(reader.name << ": other values and no error of the first " << length << " of " << size << " bytes");
      }
    }
  }
}

// Inputs with which fuzzing found a fault, in tests/fuzz/found/READER/.
TEST_CASE("damaged files: what fuzzing found before") {
  const Folder seeds, folder;
  for (const auto& reader : file_readers(seeds.path)) {
    const auto found = fs::path(MPIGRAD_SOURCE_ROOT) / "tests" / "fuzz" / "found" / reader.name;
    if (!fs::exists(found)) continue;
    for (const auto& input : fs::directory_iterator(found)) {
      CAPTURE(input.path().string());
      std::ifstream stream(input.path(), std::ios::binary);
      const std::string text{std::istreambuf_iterator<char>(stream), {}};
      data::Bytes bytes(text.size());
      std::transform(text.begin(), text.end(), bytes.begin(), [](char c) { return static_cast<std::byte>(c); });
      CHECK_NOTHROW(read_bytes(reader, folder.path / reader.name, bytes));
      if (reader.wrap) CHECK_NOTHROW(read_bytes(reader, folder.path / reader.name, reader.wrap(bytes)));
    }
  }
}

}  // namespace
}  // namespace mpigrad::testing
