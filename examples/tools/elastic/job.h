#pragma once
// Processes that are started, watched and ended.

#include <array>
#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace mpigrad::elastic {

// A process in a group of its own. What it prints passes through here, so that a reader who goes (`elastic ... | head`) ends
// neither of them. It is killed when this process dies.
class Job {
 public:
  // With a log, all that it prints goes into that file, which is made or replaced, and watch() shows none of it. Error: the
  // program cannot be started, the file cannot be made.
  explicit Job(const std::vector<std::string>& command, const std::filesystem::path& log = {});
  ~Job();  // kills what is left
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // Prints what it prints, and hands on its lines of standard error; comes back when it has ended, or after so many seconds.
  // Whether it has ended.
  bool watch(double seconds, const std::function<void(const std::string& line)>& seen);
  // To the process alone: launchers hand signals on to their ranks.
  void signal(int number) const;
  // First asked to end, after 2 s killed.
  void kill();
  // When it has ended: its exit code, or 128 and the number of the signal that ended it.
  int code() const { return code_; }

 private:
  bool reap(bool wait);
  // False: nothing came in time.
  bool read(int milliseconds, const std::function<void(const std::string& line)>& seen);

  pid_t process_ = -1;
  std::array<int, 2> pipes_{-1, -1};  // of its standard output and standard error
  int code_ = -1;
  bool ended_ = false;
  std::string rest_;  // of a line
};

// A command whose prints are lost, and which has so many seconds to end with 0.
class Question {
 public:
  Question(const std::vector<std::string>& command, double seconds);
  ~Question();  // kills it
  Question(Question&& other) noexcept;
  Question& operator=(Question&& other) noexcept;
  // None: it has not ended, and there is time left.
  std::optional<bool> answer();
  // When it has answered: its exit code; -1: a signal ended it, or there was no time left.
  int code() const { return code_; }

 private:
  pid_t process_ = -1;
  std::chrono::steady_clock::time_point end_;
  std::optional<bool> answer_{};
  int code_ = -1;
};
bool succeeds(const std::vector<std::string>& command, double seconds);
// What a command prints; empty if it fails.
std::string output_of(const std::string& command);

}  // namespace mpigrad::elastic
