#include <zip.h>

#include <algorithm>
#include <memory>

#include "framework/error.h"
#include "models/compressed/compressed.h"

namespace mpigrad::data {
namespace {

struct Discard {
  void operator()(zip_t* archive) const { zip_discard(archive); }
  void operator()(zip_file_t* file) const { zip_fclose(file); }
};
using Archive = std::unique_ptr<zip_t, Discard>;

Archive open_archive(const std::filesystem::path& path) {
  int code = 0;
  Archive archive(zip_open(path.c_str(), ZIP_RDONLY, &code));
  if (!archive) {
    zip_error_t error;
    zip_error_init_with_code(&error, code);
    const std::string text = zip_error_strerror(&error);
    zip_error_fini(&error);
    fail("[zip] {}: cannot be opened: {}", path.string(), text);
  }
  return archive;
}

}  // namespace

bool zip_available() { return true; }

std::vector<std::string> zip_names(const std::filesystem::path& path) {
  const auto archive = open_archive(path);
  std::vector<std::string> names;
  const auto entries = zip_get_num_entries(archive.get(), 0);
  for (zip_int64_t i = 0; i < entries; ++i) {
    const char* name = zip_get_name(archive.get(), static_cast<zip_uint64_t>(i), 0);
    if (name != nullptr) names.emplace_back(name);
  }
  return names;
}

Bytes unzip(const std::filesystem::path& path, const std::string& name) {
  const auto archive = open_archive(path);
  zip_stat_t stat;
  zip_stat_init(&stat);
  require(zip_stat(archive.get(), name.c_str(), 0, &stat) == 0 && (stat.valid & ZIP_STAT_SIZE) != 0, "[zip] {}: no '{}' in it",
          path.string(), name);
  const std::unique_ptr<zip_file_t, Discard> file(zip_fopen(archive.get(), name.c_str(), 0));
  require(file != nullptr, "[zip] {}: '{}' cannot be opened: {}", path.string(), name, zip_strerror(archive.get()));
  // Grows as it is read: a corrupt directory may promise any size.
  Bytes bytes;
  std::size_t used = 0;
  for (;;) {
    if (used == bytes.size()) bytes.resize(used + std::max<std::size_t>(1 << 20, used));
    const auto got = zip_fread(file.get(), bytes.data() + used, bytes.size() - used);
    require(got >= 0, "[zip] {}: '{}' is corrupt: {}", path.string(), name, zip_file_strerror(file.get()));
    if (got == 0) break;
    used += static_cast<std::size_t>(got);
  }
  require(used == stat.size, "[zip] {}: '{}' is truncated: {} of {} bytes", path.string(), name, used, stat.size);
  bytes.resize(used);
  return bytes;
}

}  // namespace mpigrad::data
