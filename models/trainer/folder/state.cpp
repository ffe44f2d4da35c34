#include "models/trainer/folder/state.h"

#include <algorithm>
#include <fstream>

#include "framework/base/new_file.h"
#include "models/trainer/folder/names.h"

namespace mpigrad::trainer {

std::optional<RunState> read_state(const std::filesystem::path& folder) {
  const auto path = folder / state_file;
  RunState state;
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) return std::nullopt;  // opening a pipe would wait for a writer
  std::ifstream file(path);
  struct stat about {};
  if (!std::getline(file, state.word) || stat(path.c_str(), &about) != 0) return std::nullopt;
  std::getline(file, state.why);
  state.file = about.st_ino, state.written = std::filesystem::last_write_time(path, none);
  return state;
}

void write_state(const std::filesystem::path& folder, const std::string& word, std::string why) {
  std::replace(why.begin(), why.end(), '\n', ' ');
  write_new_file(folder / state_file, why.empty() ? word + "\n" : word + "\n" + why + "\n", "out");
}

int code_of_run(int code, const std::filesystem::path& folder, const std::optional<RunState>& before) {
  const auto state = read_state(folder);
  if (!state || state == before) return code;
  if (state->word == finished_state) return 0;
  if (state->word == interrupted_state) return to_be_resumed;
  if (state->word != failed_state && state->word != running_state) return code;  // another program's file
  return code == 0 ? 1 : code;                                                   // running: it was killed
}

}  // namespace mpigrad::trainer
