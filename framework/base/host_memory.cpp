#include "framework/base/host_memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "framework/base/error.h"

namespace mpigrad {
namespace {

constexpr auto unlimited = std::numeric_limits<std::int64_t>::max();

// The number after `key` in a file of lines "key number"; without a key the first number of the file.
std::optional<std::int64_t> number_in(const std::filesystem::path& path, const std::string& key = "") {
  std::ifstream file(path);
  std::string word;
  while (key != "" && file >> word && word != key) file.ignore(unlimited, '\n');
  std::int64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

std::int64_t of_system() {
  const auto available = number_in("/proc/meminfo", "MemAvailable:"), swap = number_in("/proc/meminfo", "SwapFree:");
  return available ? (*available + swap.value_or(0)) * 1024 : unlimited;
}

// The limits of the control group (version 2) and its parents; in a container up to the root that it sees. Inactive pages of
// files count as available.
std::int64_t of_control_groups() {
  const std::filesystem::path root("/sys/fs/cgroup");
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line) && !line.starts_with("0::")) {
  }
  std::int64_t least = unlimited;
  std::filesystem::path group = root / std::filesystem::path(line.starts_with("0::") ? line.substr(3) : "").relative_path();
  for (;; group = group.parent_path()) {
    const auto limit = number_in(group / "memory.max"), used = number_in(group / "memory.current");
    const auto pages = number_in(group / "memory.stat", "inactive_file");
    if (limit && used) least = std::min(least, std::max<std::int64_t>(0, *limit - *used + pages.value_or(0)));
    if (group == root || !group.has_relative_path()) return least;
  }
}

// What a limit of this process leaves of it.
std::int64_t of_limit(int resource, std::int64_t used) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return unlimited;
  return std::max<std::int64_t>(0, static_cast<std::int64_t>(std::min<rlim_t>(limit.rlim_cur, unlimited)) - used);
}

std::int64_t of_process() {
  const auto space = number_in("/proc/self/status", "VmSize:"), data = number_in("/proc/self/status", "VmData:");
  return std::min(of_limit(RLIMIT_AS, space.value_or(0) * 1024), of_limit(RLIMIT_DATA, data.value_or(0) * 1024));
}

}  // namespace

std::int64_t available_host_bytes(std::int64_t processes, std::int64_t ranks_of_process) {
  const auto part = [](std::int64_t bytes, std::int64_t of) { return bytes == unlimited ? bytes : bytes / of; };
  return part(std::min(part(std::min(of_system(), of_control_groups()), processes), of_process()), ranks_of_process);
}

void require_host_memory(std::string_view what, double bytes) {
  if (bytes < 0x1p26) return;
  const auto available = static_cast<double>(available_host_bytes());
  constexpr double gib = 0x1p30;
  require(bytes <= available, "{}: {:.0f} bytes ({:.1f} GiB) of memory are needed, {:.0f} ({:.1f} GiB) are available", what,
          bytes, bytes / gib, available, available / gib);
}

}  // namespace mpigrad
