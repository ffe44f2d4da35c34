#pragma once
// The name of a training that keeps copies on the nodes' own disks.

#include <filesystem>
#include <string>

namespace mpigrad {

// The training draws it once. Its copies are found again by it, and those of other trainings are not.
struct TrainingName {
  std::string name{};
  std::filesystem::path file{};  // keeps the name, in the training's folder of results
};

}  // namespace mpigrad
