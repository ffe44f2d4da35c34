#include "framework/base/error.h"
#include "models/data/compressed/compressed.h"

namespace mpigrad::data {
namespace {
[[noreturn]] void refuse(const std::filesystem::path& path) {
  fail("[zip] {}: built without libzip: install libzip-dev and configure again", path.string());
}
}  // namespace

bool zip_available() { return false; }
std::vector<std::string> zip_names(const std::filesystem::path& path) { refuse(path); }
ByteStreamPtr unzip(const std::filesystem::path& path, const std::string&) { refuse(path); }
void write_zip(const std::filesystem::path& path, const std::vector<ZipEntry>&) { refuse(path); }

}  // namespace mpigrad::data
