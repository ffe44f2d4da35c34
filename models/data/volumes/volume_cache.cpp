#include "models/data/volumes/volume_cache.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "framework/base/fnv.h"
#include "framework/base/new_file.h"
#include "framework/base/own_files.h"
#include "framework/base/warning.h"

namespace mpigrad::data {

namespace fs = std::filesystem;

namespace {

constexpr const char* who = "data";

// The file with this code: the shared library, or the program. Other code may turn or resample in another way.
fs::path file_of_code() {
  Dl_info info{};
  std::error_code error;
  const bool found = dladdr(reinterpret_cast<const void*>(&state_of), &info) != 0 && info.dli_fname != nullptr;
  return found && fs::exists(info.dli_fname, error) ? info.dli_fname : "/proc/self/exe";
}

}  // namespace

VolumeCache::VolumeCache(const fs::path& folder) : folder_(folder), code_(state_of({file_of_code()})) {
  static_cast<void>(make_own_folder(folder, who));
}

fs::path VolumeCache::path_of(const CachedVolume& volume) const {
  return folder_ / fmt::format("{:016x}.volume", fnv1a(fnv_start, volume.key));
}

std::string VolumeCache::end_of(const CachedVolume& volume) const {
  return fmt::format("{}\n{}\n{}\n{} cells of {} bytes\n", volume.key, volume.state, code_, volume.extents, volume.cell);
}

bool VolumeCache::read(const CachedVolume& volume, const Box& box, std::byte* out) const {
  const auto path = path_of(volume);
  if (!is_name_taken(path)) return false;
  Descriptor file;
  try {
    file = open_own_file(path, who, O_RDONLY);
  } catch (const Error&) {
    if (is_name_taken(path)) throw;
    return false;  // it was removed in the meantime
  }
  const auto get = [&](std::byte* to, std::int64_t count, std::int64_t from) {
    while (count > 0) {
      const auto bytes = pread(file.get(), to, static_cast<std::size_t>(count), from);
      if (bytes < 0 && errno == EINTR) continue;
      if (bytes <= 0) return false;
      to += bytes, count -= bytes, from += bytes;
    }
    return true;
  };
  const auto& e = volume.extents;
  const auto size = e.elements() * volume.cell;
  const auto end = end_of(volume);
  std::string there(end.size() + 1, '\0');  // one more than should be there
  const auto found = pread(file.get(), there.data(), there.size(), size);
  if (found != static_cast<ssize_t>(end.size()) || !there.starts_with(end)) return false;
  // Rows, or whole planes.
  const auto begin = box.begin, count = box.extents();
  const bool planes = count[1] == e[1] && count[2] == e[2];
  const auto rows = planes ? 1 : count[1], run = (planes ? e[1] : 1) * count[2] * volume.cell;
  for (std::int64_t d = 0; d < count[0]; ++d)
    for (std::int64_t h = 0; h < rows; ++h, out += run)
      if (!get(out, run, (((begin[0] + d) * e[1] + begin[1] + h) * e[2] + begin[2]) * volume.cell)) return false;
  return true;
}

bool VolumeCache::add(const CachedVolume& volume, std::span<const std::byte> bytes) const try {
  NewFile file(path_of(volume), who);
  require(fchmod(file.descriptor(), 0600) == 0, "[{}] {}: {}", who, file.temporary().string(), std::strerror(errno));
  file.write(bytes);
  file.write(end_of(volume));
  file.commit();
  return true;
} catch (const Error& error) {
  warn_once("volume cache", fmt::format("warning: the cache of volumes does not grow any more: {}", error.what()));
  return false;
}

std::string state_of(const std::vector<fs::path>& files) {
  std::string text;
  for (const auto& file : files) {
    struct stat about {};
    require(stat(file.c_str(), &about) == 0, "[{}] {}: {}", who, file.string(), std::strerror(errno));
    text += fmt::format("{}{} bytes of {}.{:09}, {}.{:09}", text.empty() ? "" : "; ", about.st_size, about.st_mtim.tv_sec,
                        about.st_mtim.tv_nsec, about.st_ctim.tv_sec, about.st_ctim.tv_nsec);
  }
  return text;
}

}  // namespace mpigrad::data
