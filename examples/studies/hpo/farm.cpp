#include "examples/studies/hpo/farm.h"

#include <chrono>
#include <csignal>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>

#include "examples/tools/elastic/job.h"
#include "framework/base/error.h"
#include "models/trainer/folder/names.h"
#include "models/trainer/folder/state.h"

namespace mpigrad::hpo {
namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct Slot {
  Work work{};
  std::unique_ptr<elastic::Job> job{};
  Clock::time_point began{}, grew{}, looked{};
  std::uintmax_t bytes = 0;
};

std::uintmax_t bytes_of(const Work& work) {
  std::uintmax_t sum = 0;
  for (const auto& path : {work.output, work.metrics}) {
    std::error_code none;
    const auto size = std::filesystem::file_size(path, none);
    if (!none) sum += size;
  }
  return sum;
}

// The reason why a job must end; empty: it may continue.
std::string problem_of(Slot& slot, const FarmOptions& o) {
  if (o.limit > 0 && since(slot.began) > o.limit) return fmt::format("it had not ended after {:g} s", o.limit);
  if (o.stall > 0 && since(slot.looked) > std::min(1.0, o.stall / 4)) {
    slot.looked = Clock::now();
    // Any change counts: a table that is replaced by a longer one may be shorter for a moment.
    if (const auto bytes = bytes_of(slot.work); bytes != slot.bytes) slot.bytes = bytes, slot.grew = slot.looked;
    if (since(slot.grew) > o.stall) return fmt::format("it printed and wrote nothing for {:g} s", o.stall);
  }
  return {};
}

void end_all(std::vector<Slot>& slots, const FarmOptions& o, const std::function<int()>& asked) {
  for (const auto& slot : slots)
    if (slot.job) slot.job->signal(o.farewell);
  for (const auto start = Clock::now(); since(start) < o.grace && asked() == 0;) {
    bool left = false;
    for (auto& slot : slots) left |= slot.job && !slot.job->watch(0, {});
    if (!left) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

// Whether the signal that has ended a job was meant for all of them. This process may receive it a moment later.
bool all_are_asked(const Slot& slot, const std::function<int()>& asked) {
  const int code = trainer::code_of_run(slot.job->code(), slot.work.metrics.parent_path(), std::nullopt);
  const bool by_signal = code == trainer::to_be_resumed || code == 128 + SIGTERM || code == 128 + SIGINT || code == SIGTERM;
  int signal = asked();
  for (const auto start = Clock::now(); by_signal && signal == 0 && since(start) < 1; signal = asked())
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return signal != 0;
}

}  // namespace

bool run_farm(const FarmOptions& o, const std::function<std::optional<Work>(int slot)>& next,
              const std::function<void(const Ended& ended)>& ended, const std::function<int()>& asked) {
  std::vector<Slot> slots(static_cast<std::size_t>(o.slots));
  for (;;) {
    if (asked() != 0) {
      end_all(slots, o, asked);
      return false;  // kills the remaining jobs
    }
    bool busy = false;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      auto& slot = slots[i];
      if (!slot.job) {
        auto work = next(static_cast<int>(i));
        if (!work) continue;
        slot.work = std::move(*work), slot.began = slot.grew = slot.looked = Clock::now(), slot.bytes = 0;
        try {
          slot.job = std::make_unique<elastic::Job>(slot.work.command, slot.work.output);
        } catch (const Error& error) {
          ended({.id = slot.work.id, .code = 127, .problem = error.what()});
        }
        busy = true;
        continue;
      }
      busy = true;
      Ended end{.id = slot.work.id};
      if (!slot.job->watch(0, {})) {
        end.problem = problem_of(slot, o);
        if (end.problem.empty()) continue;
        slot.job->kill();
        end.hung = true;
      }
      end.code = slot.job->code(), end.seconds = since(slot.began);
      if (!end.hung && all_are_asked(slot, asked)) {
        end_all(slots, o, asked);
        return false;
      }
      slot.job.reset();
      ended(end);
    }
    if (!busy) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace mpigrad::hpo
