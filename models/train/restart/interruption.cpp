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
};
std::array<Noted, 3> handled{{{SIGTERM, "SIGTERM"}, {SIGINT, "SIGINT"}, {SIGUSR1, "SIGUSR1"}}};
std::atomic<int> first_signal{0};
std::atomic<std::int64_t> noted_at{0};  // milliseconds
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
  int none = 0;
  if (first_signal == none) noted_at = milliseconds();  // set before first_signal, which noted() reads
  first_signal.compare_exchange_strong(none, signal);
  if (signal == SIGTERM) detail::end_asked = true;
}

extern "C" void note_report(int) { asked = 1; }

}  // namespace

NotedSignals::NotedSignals() {
  const std::lock_guard lock(users_mutex);
  if (users++ > 0) return;
  first_signal = 0;
  detail::end_asked = false;
  for (auto& each : handled) {
    struct sigaction action {};
    action.sa_handler = note_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    struct sigaction before {};
    sigaction(each.signal, &action, &before);
    if (before.sa_handler != note_signal) each.before = before;
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
  // Slurm ends a job by SIGTERM to all processes; the batch script passes its own on to the launcher as SIGUSR1.
  for (const auto& each : handled)
    if (each.signal != SIGUSR1 || first_signal != SIGTERM) sigaction(each.signal, &each.before, nullptr);
  detail::end_asked = false;
  sigaction(SIGUSR2, &before_report, nullptr);
}

bool NotedSignals::asked_for_report() { return asked != 0; }
void NotedSignals::report_made() { asked = 0; }

const char* NotedSignals::noted() {
  const int signal = first_signal;
  for (const auto& each : handled)
    if (each.signal == signal) {
      // The next signal of this kind has its previous effect. It is enabled after a second: launchers may repeat a signal that
      // all processes of a job have already received.
      constexpr std::int64_t same_one = 1000;
      if (milliseconds() - noted_at < same_one) return each.name;
      struct sigaction now {};
      sigaction(each.signal, nullptr, &now);
      if (now.sa_handler == note_signal) sigaction(each.signal, &each.before, nullptr);
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
