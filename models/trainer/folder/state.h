#pragma once
// The file `state` in a training's --out: how the training ended. Launchers lose exit codes (MPICH's mpiexec returns 0 after a
// signal to it); this file is reliable.

#include <sys/stat.h>

#include <filesystem>
#include <optional>
#include <string>

namespace mpigrad::trainer {

inline constexpr const char* state_file = "state";
// First line of the file. A training that was killed leaves `running`, and no process that holds the folder's lock.
inline constexpr const char *running_state = "running", *finished_state = "finished", *interrupted_state = "interrupted",
                            *failed_state = "failed";

struct RunState {
  std::string word, why;  // first and second line
  // File and time, to tell two states of one folder apart.
  ino_t file = 0;
  std::filesystem::file_time_type written{};
  bool operator==(const RunState&) const = default;
};
// None: no training has written the file there.
std::optional<RunState> read_state(const std::filesystem::path& folder);
void write_state(const std::filesystem::path& folder, const std::string& word, std::string why = {});

// The exit code of a job that wrote into the folder; its launcher returned `code`, and `before` was the state when it began.
// Without a new state it is the launcher's code.
int code_of_run(int code, const std::filesystem::path& folder, const std::optional<RunState>& before);

}  // namespace mpigrad::trainer
