#pragma once
// The name of a training that keeps copies on local disks of nodes.

#include <filesystem>
#include <string>

namespace mpigrad {

// Drawn at random once per training. It identifies the copies of the training and tells them from those of others.
struct TrainingName {
  std::string name{};
  std::filesystem::path file{};  // keeps the name, in the training's folder of results
};

}  // namespace mpigrad
