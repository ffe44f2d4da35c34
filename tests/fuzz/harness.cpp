// libFuzzer's entry for one reader of files, MPIGRAD_FUZZ_READER: every input must be refused with an Error or read. Built with
// -Dfuzz=true by tests/fuzz.sh, one program for each reader.

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/readers.h"
#include "tests/support/format_files.h"

namespace {

using namespace mpigrad::testing;

struct Fuzzed {
  std::filesystem::path folder, made;
  FileReader reader;

  // Fuzzing a reader that refuses valid files, or reads only a part of them, would be useless.
  Fuzzed() {
    std::string name = std::filesystem::temp_directory_path() / "fuzz_XXXXXX";
    if (mkdtemp(name.data()) == nullptr) give_up("no temporary folder");
    folder = name, made = folder / "made";
    for (auto& each : file_readers(made))
      if (each.name == MPIGRAD_FUZZ_READER) reader = std::move(each);
    if (reader.valid.empty()) give_up("this build does not have the reader", 77);
    for (const auto& [bytes, also_valid] : reader.valid) {
      const auto whole = read_bytes(reader, folder, bytes);
      if (!whole.hash) give_up("a valid file is refused: " + whole.error);
      const auto part = static_cast<std::ptrdiff_t>(bytes.size() * 2 / 3);
      if (read_bytes(reader, folder, {bytes.begin(), bytes.begin() + part}).hash) give_up("two thirds of a file are read");
    }
  }
  [[noreturn]] static void give_up(const std::string& why, int status = 2) {
    std::fprintf(stderr, "fuzz_%s: %s\n", MPIGRAD_FUZZ_READER, why.c_str());
    std::exit(status);
  }
};

Fuzzed& fuzzed() {
  static Fuzzed fuzzed;
  return fuzzed;
}

}  // namespace

// Without a corpus libFuzzer begins with the valid files, which are written to the first folder in its arguments.
extern "C" int LLVMFuzzerInitialize(int* count, char*** arguments) {
  auto& all = fuzzed();
  for (int i = 1; i < *count; ++i) {
    const std::filesystem::path folder = (*arguments)[i];
    if (!std::filesystem::is_directory(folder)) continue;
    for (std::size_t s = 0; s < all.reader.valid.size(); ++s)
      write_file(folder / ("valid" + std::to_string(s)), all.reader.valid[s].bytes);
    break;
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto& all = fuzzed();
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  const mpigrad::data::Bytes input(begin, begin + size);
  read_bytes(all.reader, all.folder, input);
  if (all.reader.wrap) read_bytes(all.reader, all.folder, all.reader.wrap(input));
  return 0;
}
