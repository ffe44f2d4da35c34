#include <algorithm>
#include <charconv>
#include <utility>

#include "models/train/checkpoint/checkpoint.h"

namespace mpigrad {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view prefix = "checkpoint-", suffix = ".h5";

// The step in the name of an older checkpoint, or -1.
std::int64_t step_in(const fs::path& file) {
  const auto name = file.filename().string();
  if (!name.starts_with(prefix) || !name.ends_with(suffix) || name.size() <= prefix.size() + suffix.size()) return -1;
  const auto *first = name.data() + prefix.size(), *last = name.data() + name.size() - suffix.size();
  std::int64_t step = -1;
  const auto [end, error] = std::from_chars(first, last, step);
  return error == std::errc() && end == last ? step : -1;
}

// All older checkpoints with their steps, the newest first.
std::vector<std::pair<std::int64_t, fs::path>> older_checkpoints(const fs::path& folder) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (const auto step = step_in(entry.path()); step >= 0) found.emplace_back(step, entry.path());
  std::sort(found.begin(), found.end(), std::greater<>());
  return found;
}

}  // namespace

void keep_checkpoint(const fs::path& folder) {
  const auto newest = folder / newest_checkpoint;
  std::int64_t step = 0;
  try {
    if (!fs::exists(newest)) return;
    step = read_checkpoint_info(newest).step;
  } catch (const std::exception&) {
    return;
  }
  const auto kept = folder / fmt::format("{}{}{}", prefix, step, suffix);
  std::error_code error;
  fs::remove(kept, error);
  fs::create_hard_link(newest, kept, error);
  if (error) fs::copy_file(newest, kept);  // a file system without links; the name is not in use
}

void remove_old_checkpoints(const fs::path& folder, std::int64_t count, std::int64_t step) {
  std::int64_t kept = 0;
  for (const auto& [of, file] : older_checkpoints(folder)) {
    if (of < step && kept++ < count) continue;
    std::error_code error;
    fs::remove(file, error);  // a file that cannot be removed does no harm
  }
}

FoundCheckpoints find_checkpoints(const fs::path& folder) {
  FoundCheckpoints result;
  std::vector<fs::path> candidates;
  if (std::error_code error; fs::exists(folder / newest_checkpoint, error)) candidates.push_back(folder / newest_checkpoint);
  for (auto& [step, file] : older_checkpoints(folder)) candidates.push_back(std::move(file));
  std::vector<std::pair<std::int64_t, fs::path>> read;
  for (const auto& file : candidates) try {
      read.emplace_back(read_checkpoint_info(file).step, file);
    } catch (const std::exception& problem) {
      result.skipped.push_back(fmt::format("{}: {}", file.string(), problem.what()));
    }
  std::stable_sort(read.begin(), read.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  // A checkpoint that was being replaced while it got its older name may appear twice.
  for (auto& [step, file] : read) {
    const bool twice = !result.files.empty() && step_in(file) == read.front().first && file != read.front().second;
    if (!twice) result.files.push_back(std::move(file));
  }
  return result;
}

}  // namespace mpigrad
