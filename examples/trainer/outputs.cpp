#include "examples/trainer/outputs.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "examples/tool/together.h"

namespace mpigrad::trainer {

namespace fs = std::filesystem;

Outputs::Outputs(const Communicator& world, const fs::path& folder, const std::vector<std::string>& files, bool overwrite)
    : state_(new State{.folder = folder, .files = files, .overwrite = overwrite}) {
  tool::together(world.transport(), [&] {
    if (world.rank() == 0) require_new();
  });
}

void Outputs::require_new() const {
  std::error_code error;
  for (const auto& file : state_->files)
    require(state_->overwrite || !fs::exists(state_->folder / file, error), "[out] {} exists; --overwrite replaces it",
            (state_->folder / file).string());
}

void Outputs::lock(const Communicator& world, double patience) const {
  tool::together(world.transport(), [&] {
    std::error_code error;
    if (world.rank() != 0 || state_->lock || !fs::is_directory(state_->folder, error)) return;
    state_->lock = std::make_unique<tool::FolderLock>(state_->folder, tool::FolderLockOptions{.patience = patience});
    require_new();  // the run that had it may have written them
  });
}

void Outputs::create(const Communicator& world) const {
  tool::together(world.transport(), [&] {
    if (world.rank() != 0) return;
    const auto& folder = state_->folder;
    std::error_code error;
    fs::create_directories(folder, error);
    require(fs::is_directory(folder), "[out] the folder {} cannot be made: {}", folder.string(), error.message());
    // Asked now and not after an epoch; only trying tells, permissions are not all there is.
    auto name = (folder / ".mpigrad-XXXXXX").string();
    const int file = mkstemp(name.data());
    const int reason = errno;
    require(file >= 0, "[out] the folder {} cannot be written: {}", folder.string(), std::strerror(reason));
    close(file);
    fs::remove(name, error);
  });
  lock(world);
}

std::vector<std::string> Outputs::written(std::vector<std::string> files) const {
  std::error_code error;
  std::erase_if(files, [&](const auto& file) { return !fs::exists(state_->folder / file, error); });
  return files;
}

}  // namespace mpigrad::trainer
