#include "examples/tools/elastic/job.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

#include "framework/base/new_file.h"

namespace mpigrad::elastic {
namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// File descriptors for standard output and standard error of a process; -1: those of this process.
struct Streams {
  int output = -1, error = -1;
};

// Becomes the program. If it cannot be started, the error number is written to `told`, which otherwise closes at the start.
[[noreturn]] void become(const std::vector<char*>& words, const Streams& streams, int told) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);  // a group in the background may not read a terminal
  if (streams.error >= 0) dup2(streams.error, STDERR_FILENO);
  if (streams.output >= 0) dup2(streams.output, STDOUT_FILENO);
  // A signal from now on must end the program, and not run a handler of this process.
  for (const int number : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2}) {
    struct sigaction now {};
    if (sigaction(number, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) ::signal(number, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execvp(words[0], words.data());
  const int reason = errno;
  static_cast<void>(!write(told, &reason, sizeof(reason)));
  _exit(127);
}

pid_t start(const std::vector<std::string>& command, const Streams& streams) {
  require(!command.empty(), "[elastic] no command to start");
  std::vector<char*> words;
  for (const auto& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  std::array<int, 2> told{-1, -1};
  require(pipe2(told.data(), O_CLOEXEC) == 0, "[elastic] a pipe cannot be created: {}", std::strerror(errno));
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);  // until the new process has no handlers of this one
  const pid_t process = fork();
  if (process == 0) become(words, streams, told[1]);
  const int forked = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  close(told[1]);
  int reason = 0;
  ssize_t n = -1;
  do n = process > 0 ? read(told[0], &reason, sizeof(reason)) : 0;
  while (n < 0 && errno == EINTR);
  const bool failed = n == sizeof(reason);
  close(told[0]);
  require(process >= 0, "[elastic] a process cannot be created: {}", std::strerror(forked));
  if (failed) {
    waitpid(process, nullptr, 0);
    fail("[elastic] {} cannot be started: {}", command[0], std::strerror(reason));
  }
  return process;
}

pid_t start_silent(const std::vector<std::string>& command) {
  const struct NullDevice {
    int file = open("/dev/null", O_WRONLY | O_CLOEXEC);
    ~NullDevice() { close(file); }
  } null_device;
  require(null_device.file >= 0, "[elastic] /dev/null cannot be opened: {}", std::strerror(errno));
  return start(command, {.output = null_device.file, .error = null_device.file});
}

}  // namespace

Job::Job(const std::vector<std::string>& command, const std::filesystem::path& log) {
  if (!log.empty()) {
    const GrowingFile file(log, O_WRONLY | O_TRUNC, "elastic");
    process_ = start(command, {.output = file.descriptor(), .error = file.descriptor()});
    return;
  }
  std::array<int, 2> output{-1, -1}, error{-1, -1};
  require(pipe2(output.data(), O_CLOEXEC) == 0 && pipe2(error.data(), O_CLOEXEC) == 0, "[elastic] a pipe cannot be created: {}",
          std::strerror(errno));
  pipes_ = {output[0], error[0]};
  try {
    process_ = start(command, {.output = output[1], .error = error[1]});
  } catch (...) {
    for (const int end : {output[0], output[1], error[0], error[1]}) close(end);
    throw;
  }
  close(output[1]), close(error[1]);
}

Job::~Job() {
  if (!ended_) kill();
  for (const int pipe : pipes_)
    if (pipe >= 0) close(pipe);
}

void Job::signal(int number) const {
  if (!ended_) ::kill(process_, number);
}

bool Job::reap(bool wait) {
  if (ended_) return true;
  int status = 0;
  pid_t found = 0;
  do found = waitpid(process_, &status, wait ? 0 : WNOHANG);
  while (found < 0 && errno == EINTR);
  if (found != process_) return false;
  code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (code_ != 0) ::kill(-process_, SIGKILL);  // remaining processes would write at the same time as the next job
  return ended_ = true;
}

void Job::kill() {
  signal(SIGTERM);
  for (const auto start = Clock::now(); since(start) < 2 && !reap(false);)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ::kill(-process_, SIGKILL);  // also the rest of its group
  reap(true);
}

bool Job::read(int milliseconds, const std::function<void(const std::string& line)>& seen) {
  std::array<pollfd, 2> ready{};  // poll() ignores descriptors below 0
  for (std::size_t i = 0; i < 2; ++i) ready[i] = {.fd = pipes_[i], .events = POLLIN, .revents = 0};
  if (poll(ready.data(), ready.size(), milliseconds) <= 0) return false;
  for (std::size_t i = 0; i < 2; ++i) {
    if (ready[i].revents == 0) continue;
    std::array<char, 4096> part{};
    const auto n = ::read(pipes_[i], part.data(), part.size());
    if (n <= 0) {
      if (n == 0 || errno != EINTR) close(pipes_[i]), pipes_[i] = -1;
      continue;
    }
    std::FILE* const stream = i == 0 ? stdout : stderr;
    std::fwrite(part.data(), 1, static_cast<std::size_t>(n), stream);
    std::fflush(stream);
    if (i == 0) continue;
    rest_.append(part.data(), static_cast<std::size_t>(n));
    for (std::size_t end = 0; (end = rest_.find_first_of("\n\r")) != std::string::npos; rest_.erase(0, end + 1))
      if (seen) seen(rest_.substr(0, end));
  }
  return true;
}

bool Job::watch(double seconds, const std::function<void(const std::string& line)>& seen) {
  for (const auto start = Clock::now(); !reap(false);) {
    if (since(start) >= seconds) return false;
    read(100, seen);
  }
  // Reads the last output; the job's children may keep the pipe open without printing.
  for (auto last = Clock::now(); (pipes_[0] >= 0 || pipes_[1] >= 0) && since(last) < 0.5;)
    if (read(50, seen)) last = Clock::now();
  return true;
}

Question::Question(const std::vector<std::string>& command, double seconds)
    : process_(start_silent(command)),
      end_(Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))) {}
Question::Question(Question&& other) noexcept
    : process_(std::exchange(other.process_, -1)), end_(other.end_), answer_(other.answer_), code_(other.code_) {}
Question& Question::operator=(Question&& other) noexcept {
  std::swap(process_, other.process_), std::swap(end_, other.end_), std::swap(answer_, other.answer_),
      std::swap(code_, other.code_);
  return *this;
}
Question::~Question() {
  if (process_ < 0 || answer_) return;
  ::kill(-process_, SIGKILL);
  while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

std::optional<bool> Question::answer() {
  if (answer_) return answer_;
  int status = 0;
  if (waitpid(process_, &status, WNOHANG) == process_) {
    code_ = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return answer_ = code_ == 0;
  }
  if (Clock::now() < end_) return std::nullopt;
  ::kill(-process_, SIGKILL);
  while (waitpid(process_, &status, 0) < 0 && errno == EINTR) {
  }
  return answer_ = false;
}

bool succeeds(const std::vector<std::string>& command, double seconds) {
  for (Question question(command, seconds);; std::this_thread::sleep_for(std::chrono::milliseconds(20)))
    if (const auto answer = question.answer()) return *answer;
}

std::string output_of(const std::string& command) {
  std::FILE* output = popen(command.c_str(), "r");
  if (!output) return {};
  std::string text;
  std::array<char, 4096> part{};
  for (std::size_t n = 0; (n = std::fread(part.data(), 1, part.size(), output)) > 0;) text.append(part.data(), n);
  return pclose(output) == 0 ? text : std::string();
}

}  // namespace mpigrad::elastic
