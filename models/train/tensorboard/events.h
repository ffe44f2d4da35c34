#pragma once
// Files that TensorBoard shows: curves of numbers over steps.
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

// Whether this build can write them: it was made with protobuf.
bool available();

// Of a run that begins, or goes on, at this step. TensorBoard reads the files of a folder in the order of their names, and what
// goes on at a step replaces what an earlier file says of later ones.
std::string event_file_name(std::int64_t first_step);

// Takes those of earlier runs out of a folder: TensorBoard would show all of them as one.
void remove_event_files(const std::filesystem::path& folder);

// TFRecord frames around protobuf messages. The file is made with the first numbers: a run that fails earlier leaves none.
class EventFile {
 public:
  // Replaces a file of that name. Errors: a build without protobuf; when numbers come, a file that cannot be made or written.
  explicit EventFile(const std::filesystem::path& path);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // On its way to the disk when it returns. What is not a number is left out.
  void scalars(std::int64_t step, const std::vector<std::pair<std::string, double>>& values);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mpigrad::tensorboard
