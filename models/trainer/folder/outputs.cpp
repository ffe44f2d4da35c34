#include "models/trainer/folder/outputs.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "framework/base/new_file.h"
#include "models/nn/describe.h"
#include "models/train/checkpoint/checkpoint.h"
#include "models/trainer/folder/names.h"
#include "models/trainer/folder/state.h"
#include "models/trainer/tool/together.h"

namespace mpigrad::trainer {

namespace fs = std::filesystem;

namespace {

// True for files that are opened under their own name and grow; all others are NewFiles.
bool grows(const fs::path& path) {
  const auto name = path.filename().string();
  return name == mllog_file || name.starts_with("events.out.tfevents.");
}

void try_to_write(const fs::path& path, std::int64_t bytes) {
  std::error_code error;
  if (fs::is_directory(path, error))
    throw tool::UsageError(fmt::format("[out] {} is a folder, and a file of that name is to be written", path.string()));
  if (path.extension() == ".h5") require_replaceable(path);
  if (grows(path) && is_name_taken(path)) GrowingFile(path, O_WRONLY, "out");
  const NewFile file(path, "out");
  const bool room =
      bytes == 0 || fallocate(file.descriptor(), 0, 0, bytes) == 0 || (errno != ENOSPC && errno != EDQUOT && errno != EFBIG);
  require(room, "[out] {} cannot be written, for which {} are needed: {}", path.string(), readable_bytes(bytes),
          std::strerror(errno));
}

void try_all(const fs::path& folder, const std::vector<OutputFile>& files) {
  for (const auto& file : files) try_to_write(folder / file.name, file.bytes);
}

// Makes a new folder in which all files can be written; returns an empty path if there is none.
fs::path second_place(const fs::path& folder, const std::vector<OutputFile>& files) {
  std::error_code error;
  std::vector<fs::path> candidates{fs::current_path(error)};
  if (const char* home = std::getenv("HOME")) candidates.emplace_back(home);
  candidates.push_back(fs::temp_directory_path(error));
  auto name = folder.lexically_normal();
  if (!name.has_filename()) name = name.parent_path();
  for (const auto& candidate : candidates) {
    if (candidate.empty()) continue;
    auto made = (candidate / fmt::format("{}-rescued-XXXXXX", name.filename().string())).string();
    if (mkdtemp(made.data()) == nullptr) continue;
    try {
      try_all(made, files);
      return made;
    } catch (const Error&) {
      fs::remove_all(made, error);
    }
  }
  return {};
}

}  // namespace

Outputs::Outputs(const Communicator& world, const fs::path& folder, const std::vector<std::string>& files, bool overwrite)
    : state_(new State{.folder = folder, .overwrite = overwrite}) {
  for (const auto& file : files) state_->files.push_back({file});
  tool::together(world, [&] {
    if (world.rank() == 0) require_new();
  });
}

void Outputs::require_new() const {
  for (const auto& file : state_->files)
    if (!state_->overwrite && is_name_taken(state_->folder / file.name))
      throw tool::UsageError(fmt::format("[out] {} exists; --overwrite replaces it", (state_->folder / file.name).string()));
}

void Outputs::lock(const Communicator& world, double patience) const {
  tool::together(world, [&] {
    std::error_code error;
    if (world.rank() != 0 || state_->lock || !fs::is_directory(state_->folder, error)) return;
    state_->lock = std::make_unique<tool::FolderLock>(state_->folder, tool::FolderLockOptions{.patience = patience});
    require_new();  // the run that held the lock may have written them
  });
}

void Outputs::create(const Communicator& world, const std::vector<OutputFile>& more) const {
  tool::together(world, [&] {
    if (world.rank() != 0) return;
    const auto& folder = state_->folder;
    std::error_code error;
    if (fs::exists(folder, error) && !fs::is_directory(folder, error))
      throw tool::UsageError(fmt::format("[out] {} is a file; --out names a folder", folder.string()));
    fs::create_directories(folder, error);
    require(fs::is_directory(folder), "[out] the folder {} cannot be made: {}", folder.string(), error.message());
    // Tried now and not after an epoch. Only writing a file tells: permissions are not the only obstacle.
    auto name = (folder / ".mpigrad-XXXXXX").string();
    const int file = mkstemp(name.data());
    const int reason = errno;
    require(file >= 0, "[out] the folder {} cannot be written: {}", folder.string(), std::strerror(reason));
    close(file);
    fs::remove(name, error);
  });
  lock(world);
  state_->files.insert(state_->files.end(), more.begin(), more.end());
  tool::together(world, [&] {
    if (world.rank() == 0) try_all(state_->folder, state_->files);
  });
}

void Outputs::move(const Communicator& world, const std::string& why) const {
  const auto place =
      text_of_rank(world.transport(), world.rank() == 0 ? second_place(state_->folder, state_->files).string() : std::string());
  if (place.empty() || moved()) throw SharedError(why);
  const auto text = fmt::format("{}: all further files are in {}", why, place);
  note(failed_state, text);
  state_->folder = place, state_->moved = true;
  if (world.rank() == 0) fmt::print(stderr, "{}\n", text);
}

bool Outputs::settle(const Communicator& world) const {
  if (moved()) return false;
  for (auto& file : state_->files)
    if (file.name == newest_checkpoint || file.name == best_weights) file.bytes = 0;  // not written any more
  const auto failure = mpigrad::detail::first_failure(world.transport(), [&] {
    if (world.rank() != 0) return;
    require(state_->lock && state_->lock->held(), "[out] the folder {} was removed, or another run has taken it",
            state_->folder.string());
    try_all(state_->folder, state_->files);
  });
  if (failure.failed) move(world, failure.text);
  return !failure.failed;
}

void Outputs::keep(const Communicator& world, const std::string& file,
                   const std::function<void(const fs::path& path)>& write) const {
  settle(world);
  try {
    write(*this / file);
  } catch (const SharedError& error) {
    move(world, error.what());
    write(*this / file);
  }
}

void Outputs::note(const char* word, const std::string& why) const {
  if (!state_->lock || (!moved() && !state_->lock->held())) return;
  try {
    write_state(state_->folder, word, why);
  } catch (const Error& error) {
    if (word == std::string(finished_state) || word == std::string(interrupted_state))
      fmt::print(stderr, "warning: {}\n", error.what());
  }
}

std::vector<std::string> Outputs::written(std::vector<std::string> files) const {
  std::error_code error;
  std::erase_if(files, [&](const auto& file) { return !fs::exists(state_->folder / file, error); });
  return files;
}

}  // namespace mpigrad::trainer
