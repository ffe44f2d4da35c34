// More files of data than a process may have open (`ulimit -n`).

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <filesystem>
#include <iterator>
#include <vector>

#include "comm/hdf5/hdf5_file.h"
#include "models/data/sources/hdf5.h"
#include "tests/support/files.h"

using namespace mpigrad;
using namespace mpigrad::data;
using namespace mpigrad::testing;
namespace fs = std::filesystem;

namespace {

// Limits the number of further files that this process may open, while in scope.
class OpenFilesLimit {
 public:
  explicit OpenFilesLimit(rlim_t more) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const fs::directory_iterator open("/proc/self/fd");
    auto limit = before_;
    limit.rlim_cur = static_cast<rlim_t>(std::distance(begin(open), end(open))) + more;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  OpenFilesLimit(const OpenFilesLimit&) = delete;
  OpenFilesLimit& operator=(const OpenFilesLimit&) = delete;
  ~OpenFilesLimit() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

}  // namespace

TEST_CASE("many files: more than may be open at once") {
  const char* name = "many files: more than may be open at once";
  if (without_hdf5(name)) return;
  if (!fs::exists("/proc/self/fd")) return skip_test(name, "this system does not list open files");
  const Folder universes, shards;
  constexpr std::int64_t count = 30;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<std::int16_t>(i);
    const auto target = static_cast<float>(i);
    Hdf5Writer universe(universes.path / fmt::format("u{:03}.hdf5", i), false);
    universe.write("full", {1, 1, 1, 1}, DType::int16, &value);
    universe.write("unitPar", {1}, DType::float32, &target);
    universe.commit();
    Hdf5Writer shard(shards.path / fmt::format("s{:03}.h5", i), false);
    shard.write("volume", {1, 1, 1, 1, 1}, DType::int16, &value);
    shard.commit();
  }
  for (const rlim_t more : {8, 40}) {
    const OpenFilesLimit limit(more);
    const UniverseSource all(universes.path), others(universes.path);
    const ArraySource arrays(shards.path, "", {.label = ""});
    bool right = arrays.size() == count;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto sample = i * 7 % count;
      for (const Source* source : std::initializer_list<const Source*>{&all, &others, &arrays})
        right = right && source->values(sample, source->whole())[0] == static_cast<double>(sample);
      right = right && all.targets(sample)[0] == static_cast<double>(sample);
    }
    CHECK(right);
  }
}
