#pragma once
// What trainers do around training: errors that end all ranks alike, output files, summaries.

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "examples/trainer/options.h"
#include "models/checkpoint.h"
#include "models/describe.h"
#include "models/training.h"

namespace mpigrad::trainer {

// An error that all ranks have: printed once, exit code 1 everywhere.
class SharedError : public Error {
 public:
  using Error::Error;
};

// Runs f on every rank; if it fails anywhere, all ranks throw what the first of those says, as a SharedError or a UsageError.
// Collective; f must not communicate after a point where it can fail on some ranks only.
void together(const Communicator& world, const std::function<void()>& f);

// Runs a trainer and turns UsageError and SharedError into one line and an exit code.
int finish(const CLI::App& app, const Communicator& world, const std::function<int()>& f);

// Output files of a run, in one folder.
class Outputs {
 public:
  // Rank 0 looks whether any of the files exists already.
  Outputs(const Communicator& world, const std::filesystem::path& folder, const std::vector<std::string>& files, bool overwrite);
  // Makes the folder, when everything else is known to be right.
  void create(const Communicator& world) const;
  std::filesystem::path operator/(const std::string& file) const { return folder_ / file; }

 private:
  std::filesystem::path folder_;
};

// Weights or a checkpoint to start from, if asked for; the first epoch. Warns where notes differ from those of this run.
std::int64_t start_from_files(const Options& options, const Communicator& world, nn::Module& net, Optimizer& optimizer,
                              const std::map<std::string, std::string>& notes);

// For summaries.
struct Usage {
  std::int64_t process_bytes = 0, tensor_bytes = 0;  // peaks, of the rank where they are largest
};
Usage peak_usage(const Communicator& world);

nlohmann::ordered_json to_json(const GridExtents& grid);
nlohmann::ordered_json to_json(const Description& description);
// Where no data say how large volumes are, one that does not fit is the arguments' fault.
Description describe(const Options& options, nn::Module& net, const Shape& input, const GridExtents& grid);
// Prints a description, for people or as JSON with `more` in front.
void print(const Description& description, bool json, const nlohmann::ordered_json& more);
void write_text(const std::filesystem::path& path, const std::string& text);

}  // namespace mpigrad::trainer
