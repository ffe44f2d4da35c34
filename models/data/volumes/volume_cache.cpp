#include "models/data/volumes/volume_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "framework/base/fnv.h"
#include "framework/base/new_file.h"
#include "framework/base/own_files.h"
#include "framework/base/warning.h"

namespace mpigrad::data {

namespace fs = std::filesystem;

namespace {

constexpr const char* who = "data";

}  // namespace

VolumeCache::VolumeCache(const fs::path& folder) : folder_(folder) { static_cast<void>(make_own_folder(folder, who)); }

fs::path VolumeCache::path_of(const std::string& what) const {
  return folder_ / fmt::format("{:016x}.volume", fnv1a(fnv_start, what));
}

bool VolumeCache::read(const std::string& what, const Shape& extents, std::int64_t cell, const Box& box, std::byte* out) const {
  const auto path = path_of(what);
  if (!is_name_taken(path)) return false;
  const auto file = open_own_file(path, who, O_RDONLY);
  const auto size = extents.elements() * cell;
  struct stat about {};
  if (fstat(file.get(), &about) != 0 || about.st_size != size + static_cast<off_t>(what.size())) return false;
  const auto get = [&](void* to, std::int64_t count, std::int64_t from) {
    for (std::int64_t done = 0; done < count;) {
      const auto bytes =
          pread(file.get(), static_cast<std::byte*>(to) + done, static_cast<std::size_t>(count - done), from + done);
      if (bytes < 0 && errno == EINTR) continue;
      require(bytes > 0, "[{}] {} cannot be read: {}", who, path.string(), bytes == 0 ? "it ends" : std::strerror(errno));
      done += bytes;
    }
  };
  std::string there(what.size(), '\0');
  get(there.data(), static_cast<std::int64_t>(there.size()), size);
  if (there != what) return false;
  // Rows, or whole planes of the file.
  const auto begin = box.begin, count = box.extents();
  const bool whole = count[1] == extents[1] && count[2] == extents[2];
  const auto run = (whole ? count[1] : 1) * count[2] * cell;
  for (std::int64_t d = 0; d < count[0]; ++d)
    for (std::int64_t h = 0; h < (whole ? 1 : count[1]); ++h, out += run)
      get(out, run, (((begin[0] + d) * extents[1] + begin[1] + h) * extents[2] + begin[2]) * cell);
  return true;
}

void VolumeCache::add(const std::string& what, std::span<const std::byte> bytes) const try {
  NewFile file(path_of(what), who);
  require(fchmod(file.descriptor(), 0600) == 0, "[{}] {}: {}", who, file.temporary().string(), std::strerror(errno));
  file.write(bytes);
  file.write(what);
  file.commit();
} catch (const Error& error) {
  warn_once("volume cache", fmt::format("warning: volumes are not kept, and are read again: {}", error.what()));
}

std::string identity(const std::vector<fs::path>& files) {
  std::string text;
  for (const auto& file : files) {
    struct stat about {};
    require(stat(file.c_str(), &about) == 0, "[{}] {}: {}", who, file.string(), std::strerror(errno));
    std::error_code error;
    text += fmt::format("{}\n{} bytes of {}.{:09}, {}.{:09}\n", fs::absolute(file, error).string(), about.st_size,
                        about.st_mtim.tv_sec, about.st_mtim.tv_nsec, about.st_ctim.tv_sec, about.st_ctim.tv_nsec);
  }
  return text;
}

}  // namespace mpigrad::data
