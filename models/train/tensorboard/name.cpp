#include <fmt/format.h>

#include "models/train/tensorboard/events.h"

namespace mpigrad::tensorboard {

// TensorBoard looks for "tfevents".
std::string event_file_name(std::int64_t first_step) { return fmt::format("events.out.tfevents.{:010}.mpigrad", first_step); }

void remove_event_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const auto name = entry.path().filename().string();
    if (name.starts_with("events.out.tfevents.") && name.ends_with(".mpigrad")) found.push_back(entry.path());
  }
  for (const auto& path : found) std::filesystem::remove(path);
}

}  // namespace mpigrad::tensorboard
