#include "models/trainer/ranks/local_training.h"

#include <exception>
#include <fstream>
#include <random>

#include "models/train/restart/local_folder.h"
#include "models/trainer/folder/state.h"

namespace mpigrad::trainer {

namespace fs = std::filesystem;

namespace {

// Draws a name for a training that has none.
std::string name_training(const Options& o, const Communicator& world) {
  std::vector<std::string> name;
  trainer::together(world, [&] {
    if (world.rank() != 0) return;
    std::random_device random;
    name.push_back(fmt::format("{:08x}{:08x}", random(), random()));
    write_text(training_name_file(o), name.front() + "\n");
  });
  return shared_lines(world, name).front();
}

}  // namespace

fs::path training_name_file(const Options& o) { return fs::path(o.out) / "training-name"; }

std::string training_in(const Options& o, const Communicator& world) {
  std::vector<std::string> lines;
  trainer::together(world, [&] {
    std::string line;
    std::error_code none;
    if (world.rank() != 0 || !fs::is_regular_file(training_name_file(o), none)) return;  // opening a pipe would wait
    if (std::ifstream file(training_name_file(o)); !(file >> line)) return;
    const bool drawn = line.size() == 16 && line.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (!drawn)
      throw UsageError(fmt::format("[resume] {} holds no name that a training has drawn", training_name_file(o).string()));
    lines.push_back(line);
  });
  lines = shared_lines(world, lines);
  return lines.empty() ? std::string() : lines.front();
}

void require_own_copies(const Options& o, const Communicator& world, const TrainingName& training) {
  trainer::together(world, [&] {
    try {
      require_local_folder(local_folder(o.training.local_folder, training.name), training);
    } catch (const Error& error) {
      throw UsageError(
          fmt::format("{}; name a folder on another disk as checkpoint.local_folder, or remove this one", error.what()));
    }
  });
}

void take_local_copies(const Options& o, const Communicator& world, const Start& start, TrainerOptions& options) {
  if (o.training.local_folder.empty()) return;
  options.local_training = {start.training.empty() ? name_training(o, world) : start.training, training_name_file(o)};
  require_own_copies(o, world, options.local_training);
  const auto finished = [](const fs::path& results) {
    const auto state = read_state(results);
    return state && state->word == finished_state;
  };
  trainer::together(world, [&] {
    if (world.transport().node_rank() != 0) return;
    try {
      for (const auto& text : clear_local_folders(o.training.local_folder, options.local_training.name, finished))
        if (!o.quiet) fmt::print(stderr, "{}\n", text);
    } catch (const std::exception& error) {  // other trainings' files must not end this one
      fmt::print(stderr, "warning: {}: folders of ended trainings are not removed: {}\n", o.training.local_folder.string(),
                 error.what());
    }
  });
}

}  // namespace mpigrad::trainer
