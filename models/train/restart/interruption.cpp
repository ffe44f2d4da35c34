#include "models/train/restart/interruption.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <mutex>
#include <utility>

#include "framework/engine/activity.h"

namespace mpigrad {
namespace {

struct Noted {
  int signal;
  const char* name;
  struct sigaction before {};
  std::atomic<std::int64_t> at{0};  // when the first one came, in milliseconds; 0: none has come
};
std::array<Noted, 3> handled{{{SIGTERM, "SIGTERM"}, {SIGINT, "SIGINT"}, {SIGUSR1, "SIGUSR1"}}};
std::atomic<int> first_signal{0};
std::atomic<bool> seen{false};    // the training knows that a signal has come, or has ended
std::atomic<bool> ending{false};  // all ranks end the training
std::atomic<int> asked{0};
struct sigaction before_report {};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free);
std::mutex users_mutex;
int users = 0;  // ranks may be threads

// Safe in signal handlers.
std::int64_t milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1000000;
}

extern "C" void note_signal(int signal) {
  // Slurm ends a job by SIGTERM to all processes; the batch script passes its own on to the launcher as SIGUSR1.
  if (signal == SIGUSR1 && first_signal == SIGTERM) return;
  // Launchers may repeat a signal that all processes of a job have already received.
  constexpr std::int64_t same_one = 1000;
  for (auto& each : handled) {
    if (each.signal != signal) continue;
    std::int64_t at = 0;
    if (each.at.compare_exchange_strong(at, milliseconds())) {
      int none = 0;
      first_signal.compare_exchange_strong(none, signal);
      if (signal == SIGTERM) detail::end_asked = true;
    } else if (seen && milliseconds() - at >= same_one) {
      sigaction(signal, &each.before, nullptr);
      raise(signal);  // takes effect when this handler returns
    }
  }
}

extern "C" void note_report(int) { asked = 1; }

}  // namespace

NotedSignals::NotedSignals() {
  const std::lock_guard lock(users_mutex);
  if (users++ > 0) return;
  first_signal = 0, seen = false, ending = false;
  detail::end_asked = false;
  for (auto& each : handled) {
    each.at = 0;
    struct sigaction before {};
    sigaction(each.signal, nullptr, &before);
    if (before.sa_handler != note_signal) each.before = before;
    struct sigaction action {};
    action.sa_handler = note_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(each.signal, &action, nullptr);
  }
  asked = 0;
  struct sigaction action {};
  action.sa_handler = note_report;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGUSR2, &action, &before_report);
}

NotedSignals::~NotedSignals() {
  const std::lock_guard lock(users_mutex);
  if (--users > 0) return;
  // Ranks receive a signal at different times: this one may not have it yet.
  if (first_signal == 0 && !ending)
    for (const auto& each : handled) sigaction(each.signal, &each.before, nullptr);
  seen = true;
  detail::end_asked = false;
  sigaction(SIGUSR2, &before_report, nullptr);
}

void NotedSignals::second_ends() { seen = true; }
void NotedSignals::end_training() { ending = true; }
bool NotedSignals::asked_for_report() { return asked != 0; }
void NotedSignals::report_made() { asked = 0; }

const char* NotedSignals::noted() {
  const int signal = first_signal;
  for (const auto& each : handled)
    if (each.signal == signal) {
      seen = true;
      return each.name;
    }
  return nullptr;
}

std::int64_t DeferredMax::finish() {
  if (!pending_) return 0;
  pending_.wait();
  pending_ = {};
  return largest_;
}

std::int64_t DeferredMax::ask(std::int64_t mine) {
  const auto before = world_.size() == 1 ? mine_ : finish();
  mine_ = mine > before ? mine : 0;  // requests that the result already covers are dropped
  if (world_.size() == 1) return before;
  pending_ = world_.transport().start_allreduce(&mine_, &largest_, 1, DType::int64, CombineOp::max);
  return before;
}

std::int64_t DeferredMax::now(std::int64_t mine) {
  auto all = finish();
  all = std::max(all, mine);
  if (world_.size() > 1) world_.transport().allreduce(&all, &all, 1, DType::int64, CombineOp::max);
  mine_ = 0;
  return all;
}

}  // namespace mpigrad
