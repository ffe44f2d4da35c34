#pragma once
// Child processes: starting, watching and ending them.

#include <array>
#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace mpigrad::elastic {

// A process in a group of its own. Its output passes through this process, so that a reader that ends early (`elastic ... |
// head`) ends neither of them. It is killed when this process dies.
class Job {
 public:
  // With a log, all its output goes into that file, which is created or replaced, and watch() shows none of it. Error: the
  // program cannot be started, the file cannot be created.
  explicit Job(const std::vector<std::string>& command, const std::filesystem::path& log = {});
  ~Job();  // kills the remaining processes
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // Prints the job's output, and passes lines of standard error to `seen`; returns when the job has ended, or after so many
  // seconds. True if it has ended.
  bool watch(double seconds, const std::function<void(const std::string& line)>& seen);
  // Signals only the process itself: launchers pass signals on to their ranks.
  void signal(int number) const;
  // Asks it to end, and kills it after 2 s.
  void kill();
  // After it has ended: its exit code, or 128 plus the number of the signal that ended it.
  int code() const { return code_; }

 private:
  bool reap(bool wait);
  // False: nothing came in time.
  bool read(int milliseconds, const std::function<void(const std::string& line)>& seen);

  pid_t process_ = -1;
  std::array<int, 2> pipes_{-1, -1};  // its standard output and standard error
  int code_ = -1;
  bool ended_ = false;
  std::string rest_;  // the beginning of an unfinished line
};

// A command whose output is discarded, and which must end with exit code 0 within so many seconds.
class Question {
 public:
  Question(const std::vector<std::string>& command, double seconds);
  ~Question();  // kills the command
  Question(Question&& other) noexcept;
  Question& operator=(Question&& other) noexcept;
  // None: it has not ended, and there is time left.
  std::optional<bool> answer();
  // After the answer: the command's exit code; -1: a signal ended it, or the time ran out.
  int code() const { return code_; }

 private:
  pid_t process_ = -1;
  std::chrono::steady_clock::time_point end_;
  std::optional<bool> answer_{};
  int code_ = -1;
};
bool succeeds(const std::vector<std::string>& command, double seconds);
// The output of a command; empty if the command fails.
std::string output_of(const std::string& command);

}  // namespace mpigrad::elastic
