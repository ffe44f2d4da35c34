#pragma once
// Event files for TensorBoard: curves of numbers over steps.
//
//   tensorboard::EventFile file("run/" + tensorboard::event_file_name(0));
//   file.scalars(step, {{"loss", 0.7}, {"learning_rate", 1e-3}});

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace mpigrad::tensorboard {

// Whether this build can write them, which needs protobuf.
bool available();

// The file name for a run that begins, or is resumed, at this step. TensorBoard reads the files of a folder in the order of their
// names, and the values of a resumed run replace those of an earlier file from this step on.
std::string event_file_name(std::int64_t first_step);

// Removes the files of earlier runs from a folder: TensorBoard would show all of them as one run.
void remove_event_files(const std::filesystem::path& folder);

// TFRecord frames around protobuf messages. The file is created with the first numbers: a run that fails earlier leaves none.
class EventFile {
 public:
  // Replaces a file of that name. Error: a build without protobuf. scalars() throws if the file cannot be created or written.
  explicit EventFile(const std::filesystem::path& path);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // The numbers have been passed to the operating system when it returns. Numbers that are not finite are omitted.
  void scalars(std::int64_t step, const std::vector<std::pair<std::string, double>>& values);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mpigrad::tensorboard
