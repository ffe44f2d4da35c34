#include "framework/base/warning.h"

#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <mutex>
#include <utility>

namespace mpigrad {
namespace {

struct Warnings {
  std::mutex mutex;
  std::map<std::string, std::string, std::less<>> given;  // text by subject
};

Warnings& warnings() {
  static Warnings all;
  return all;
}

}  // namespace

void warn_once(std::string_view what, const std::string& text) {
  const std::lock_guard lock(warnings().mutex);
  if (!warnings().given.try_emplace(std::string(what), text).second) return;
  fmt::print(stderr, "{}\n", text);
}

std::vector<std::string> detail::take_warnings() {
  const std::lock_guard lock(warnings().mutex);
  std::vector<std::string> result;
  for (const auto& [what, text] : std::exchange(warnings().given, {})) result.push_back(text);
  return result;
}

}  // namespace mpigrad
