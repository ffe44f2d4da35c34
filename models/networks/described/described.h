#pragma once
// The networks of the installed trainers, by name and settings, and from the notes of files of weights.

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "models/nn/layers.h"
#include "models/train/checkpoint/checkpoint.h"

namespace mpigrad {

// All that is needed to make a network for which a file has the weights.
struct NetworkDescription {
  using Setting = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>>;
  std::string name{};                         // "cosmoflow", "classify" or "unet3d", the trainer's name
  Shape extents{1, 1, 1};                     // [D, H, W] of the samples or windows of the training
  std::int64_t channels = 1, outputs = 1;     // outputs: numbers or classes
  std::map<std::string, Setting> settings{};  // the trainer's keys network.NAME; those left out have their defaults
  // The results are numbers of mean 0 and deviation 1: result * deviation + mean is in the units of the data. Else empty.
  std::vector<double> means{}, deviations{};
  // For training: norms of cosmoflow and classify; the kept part of dropout, negative for the network's default.
  nn::BatchNormAttributes norm{};
  double keep = -1;
};

// The network, not built: [N, D, H, W, channels] -> [N, outputs], for unet3d [N, D, H, W, outputs]. Errors: an unknown name, an
// unknown setting, one of another type or with an invalid value.
std::unique_ptr<nn::Module> make_network(const NetworkDescription& description);

// Reads the notes that the trainers write. Errors: the file has no such notes, or was written by another program; a build
// without nlohmann-json.
NetworkDescription describe_network(const std::filesystem::path& weights, const CheckpointInfo& info);
// The same for notes of cosmoflow's version 0.1, which have a note for each setting; `outputs` stays 1. False: they are not.
bool describe_cosmoflow_of_version_0_1(const std::map<std::string, std::string>& notes, NetworkDescription& description);

}  // namespace mpigrad
