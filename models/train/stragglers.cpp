#include "models/train/stragglers.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>
#include <vector>

#include "comm/transport/waited.h"
#include "framework/base/error.h"
#include "framework/engine/op.h"

namespace mpigrad {
namespace {

struct Row {
  RankTimes times;
  std::array<char, 32> host{};
};

}  // namespace

void StepClock::start() {
  if (!times_) return;
  const auto& waited = detail::waited_of_this_thread();
  seconds_ = detail::seconds_now(), messages_ = waited.messages, collectives_ = waited.collectives, data_ = 0,
  seen_ = messages_ + collectives_;
}

// Parts of a batch may be received as messages, which count as messages.
void StepClock::batch(double waited) {
  if (!times_) return;
  const auto& now = detail::waited_of_this_thread();
  data_ += std::max(0.0, waited - (now.messages + now.collectives - seen_));
  seen_ = now.messages + now.collectives;
}

void StepClock::step() {
  if (!times_) return;
  const auto& waited = detail::waited_of_this_thread();
  const double time = detail::seconds_now();
  times_->seconds += time - seconds_;
  times_->messages += waited.messages - messages_, times_->collectives += waited.collectives - collectives_;
  times_->data += std::exchange(data_, 0);
  ++times_->steps;
  seconds_ = time, messages_ = waited.messages, collectives_ = waited.collectives, seen_ = messages_ + collectives_;
}

std::string straggler_table(const RankTimes& mine, const Communicator& world) {
  constexpr std::size_t all_of = 16, slowest = 5;
  const auto size = static_cast<std::size_t>(world.size());
  auto& transport = world.transport();
  Row row{.times = mine};
  gethostname(row.host.data(), row.host.size() - 1);
  std::vector<Row> rows(size);
  const std::vector<std::int64_t> counts(size, sizeof(Row));
  transport.gather(&row, rows.data(), counts, DType::uint8, 0);
  if (world.rank() != 0 || rows[0].times.steps == 0) return {};
  std::vector<std::size_t> order(size);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return rows[a].times.compute() > rows[b].times.compute(); });
  const auto median = order[size / 2];
  auto shown = order;
  if (size > all_of) shown.resize(slowest), shown.push_back(median), shown.push_back(order.back());
  else std::sort(shown.begin(), shown.end());
  const bool hosts = transport.node_size() < world.size();
  auto text = fmt::format("ms a step, over {} steps\n{:>6}{:>12}{:>12}{:>14}{:>12}{:>12}\n", rows[0].times.steps, "rank",
                          "compute", "messages", "collectives", "data", "all");
  for (const auto r : shown) {
    const auto& t = rows[r].times;
    const auto ms = [&](double seconds) { return 1e3 * seconds / static_cast<double>(std::max<std::int64_t>(1, t.steps)); };
    text += fmt::format("{:>6}{:>12.2f}{:>12.2f}{:>14.2f}{:>12.2f}{:>12.2f}", r, ms(t.compute()), ms(t.messages),
                        ms(t.collectives), ms(t.data), ms(t.seconds));
    if (hosts) text += fmt::format("  {}", rows[r].host.data());
    text += r == median && size > all_of ? "  the median\n" : "\n";
  }
  const auto& worst = rows[order[0]].times;
  const double middle = rows[median].times.compute();
  text += fmt::format("rank {}{} computes longest: {:.2f} times the median of {} ranks\n", order[0],
                      hosts ? fmt::format(" on {}", rows[order[0]].host.data()) : std::string(),
                      middle > 0 ? worst.compute() / middle : 1.0, size);
  return text;
}

}  // namespace mpigrad
