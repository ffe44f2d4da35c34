// Stragglers: ranks that keep others waiting.

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>

#include "comm/transport/waited.h"
#include "models/train/stragglers.h"
#include "ops/loss/loss.h"
#include "tests/models/train/small_training.h"
#include "tests/support/files.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

// Rank 1 takes 100 ms more in every step.
void slow_down(Training& t, int rank) {
  t.hooks.loss = [rank](const Tensor& y, const Tensor& target) {
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return mse(y, target);
  };
}

}  // namespace

TEST_CASE("stragglers: the rank that computes longest is named, and what others wait for") {
  check_on_ranks(3, "stragglers", [](const Communicator& comm) {
    Training t(comm);
    slow_down(t, comm.rank());
    t.options.fit.epochs = 2;
    const auto result = t.run();
    const auto& times = result.times;
    require(times.steps == 6 && times.seconds >= 6 * 0.1, "[test] {} steps in {} s", times.steps, times.seconds);
    require(comm.rank() != 1 || times.compute() >= 6 * 0.1, "[test] it computed for {} s", times.compute());
    // The others wait for it at their first common call, in messages or in collective calls.
    require(comm.rank() == 1 || times.messages + times.collectives >= 6 * 0.02, "[test] waited {} s and {} s", times.messages,
            times.collectives);
    require(comm.rank() == 0 ? result.stragglers.find("rank 1 computes longest") != std::string::npos : result.stragglers.empty(),
            "[test] '{}'", result.stragglers);
  });
}

TEST_CASE("stragglers: of many ranks a few are shown") {
  check_on_ranks(18, "stragglers", [](const Communicator& comm) {
    const RankTimes mine{.steps = 10, .seconds = 1 + 0.1 * comm.rank(), .messages = 0.2, .collectives = 0.1, .data = 0.05};
    const auto table = straggler_table(mine, comm);
    if (comm.rank() != 0) return require(table.empty(), "[test] '{}'", table);
    require(table.find("    17      235.00       20.00         10.00        5.00      270.00") != std::string::npos, "[test] {}",
            table);
    require(std::count(table.begin(), table.end(), '\n') == 2 + 7 + 1, "[test] {}", table);
    // Rank 8 is the median.
    require(table.find("rank 17 computes longest: 1.62 times the median of 18 ranks") != std::string::npos, "[test] {}", table);
  });
}

TEST_CASE("stragglers: a signal asks for the table, once") {
  if (without_hdf5("checkpoints")) return;
  const Folder folder;
  std::FILE* stream = std::tmpfile();
  check_on_ranks(2, "stragglers", [&](const Communicator& comm) {
    Training t(comm);
    slow_down(t, comm.rank());
    t.options.fit.epochs = 4, t.options.folder = folder.path, t.options.notes_signals = true;
    t.options.progress = {.stream = stream, .terminal = false};
    std::int64_t steps = 0;
    const auto loss = t.hooks.loss;
    t.hooks.loss = [&, loss](const Tensor& y, const Tensor& target) {
      if (comm.rank() == 0 && ++steps == 4) std::raise(SIGUSR2);
      return loss(y, target);
    };
    const auto result = t.run();
    require(result.epochs_behind == 4 && !result.interrupted, "[test] it ended");
  });
  std::rewind(stream);
  std::string text(1 << 16, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), stream));
  std::fclose(stream);
  const auto first = text.find("computes longest");
  CHECK(first != std::string::npos);
  CHECK(text.find("computes longest", first + 1) == std::string::npos);
}

TEST_CASE("stragglers: what is waited within another wait counts once") {
  auto& waited = detail::waited_of_this_thread();
  const auto before = waited;
  {
    const detail::WaitTimer outer(&detail::Waited::collectives);
    const detail::WaitTimer inner(&detail::Waited::messages);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  CHECK(waited.collectives - before.collectives >= 0.005);
  CHECK(waited.messages == before.messages);
}
