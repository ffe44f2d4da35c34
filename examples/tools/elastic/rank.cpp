#include "examples/tools/elastic/rank.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "examples/tools/elastic/command.h"
#include "models/trainer/run.h"

namespace mpigrad::elastic {
namespace {

constexpr auto handed_on = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
constexpr const char *begins = "elastic: rank ", *on = " on ", *process = " (PID ";

volatile sig_atomic_t child = 0, asked_to_end = 0;
extern "C" void hand_on(int signal) {
  if (signal != SIGUSR2) asked_to_end = 1;
  if (child > 0) kill(child, signal);
}

// The rank and the number of ranks, as the launcher sets them in the environment.
std::string rank_text() {
  const auto first_of = [](std::initializer_list<const char*> names) -> std::string {
    for (const auto* name : names)
      if (const char* value = std::getenv(name); value != nullptr && *value != '\0') return value;
    return {};
  };
  const auto rank = first_of({"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"});
  const auto size = first_of({"PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"});
  return (rank.empty() ? "0" : rank) + (size.empty() ? "" : " of " + size);
}

// True for exit codes that are explained elsewhere: launch() reports errors and wrong arguments, and trainers report why they
// stop.
bool says_why_itself(int code) { return code == 0 || code == 1 || code == 2 || code == trainer::to_be_resumed; }

void tell(pid_t ended, const std::string& how) {
  const auto line = fmt::format("{}{}{}{}{}{}) has ended: {}\n", begins, rank_text(), on, host_name(), process, ended, how);
  std::fwrite(line.data(), 1, line.size(), stderr);  // one write, so that lines of several ranks do not mix
  std::fflush(stderr);
}

}  // namespace

int run_rank(const std::vector<std::string>& command) {
  std::vector<char*> words;
  for (const auto& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  // Signals are blocked until the child is known, so that none is lost.
  sigset_t all, before;
  sigemptyset(&all);
  for (const int signal : handed_on) sigaddset(&all, signal);
  sigprocmask(SIG_BLOCK, &all, &before);
  const pid_t parent = getpid();
  const pid_t started = fork();
  if (started < 0) {
    fmt::print(stderr, "elastic: a process cannot be created: {}\n", std::strerror(errno));
    return 1;
  }
  if (started == 0) {
    setpgid(0, 0);  // so that a signal to the launcher's group reaches the child only once, from this process
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);  // the parent has already died
    sigprocmask(SIG_SETMASK, &before, nullptr);
    execvp(words[0], words.data());
    fmt::print(stderr, "elastic: {} cannot be started: {}\n", command[0], std::strerror(errno));
    std::fflush(stderr);
    _exit(2);
  }
  child = started;
  for (const int signal : handed_on) {
    struct sigaction action {};
    action.sa_handler = hand_on;
    sigaction(signal, &action, nullptr);
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
  int status = 0;
  while (waitpid(started, &status, 0) < 0 && errno == EINTR) {
  }
  child = 0;
  if (WIFEXITED(status)) {
    const int code = WEXITSTATUS(status);
    if (!says_why_itself(code)) tell(started, fmt::format("exit code {}", code));
    return code;
  }
  const int signal = WTERMSIG(status);
  if (!asked_to_end) tell(started, fmt::format("signal {}, {}", signal, strsignal(signal)));
  // The launcher must see the same signal, without a second core file.
  const rlimit none{.rlim_cur = 0, .rlim_max = 0};
  setrlimit(RLIMIT_CORE, &none);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
  return 128 + signal;
}

std::string host_of_ended_rank(const std::string& line) {
  if (!line.starts_with(begins)) return {};
  const auto from = line.find(on), to = line.find(process);
  if (from == std::string::npos || to == std::string::npos || to < from) return {};
  const auto begin = from + std::strlen(on);
  return line.substr(begin, to - begin);
}

}  // namespace mpigrad::elastic
