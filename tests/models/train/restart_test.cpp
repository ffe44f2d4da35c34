// Interrupted trainings resume bit for bit: in the middle of an epoch, on other ranks, from the newest whole checkpoint, after
// signals and limits.

#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>
#include <utility>

#include "comm/hdf5/hdf5_file.h"
#include "models/train/checkpoint/checkpoint.h"
#include "models/train/restart/interruption.h"
#include "models/train/restart/interval.h"
#include "tests/models/train/small_training.h"
#include "tests/support/files.h"
#include "tests/support/ranks.h"
#include "tests/support/skip.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

struct Outcome {
  std::vector<double> losses, weights;
};

Outcome outcome_of(Training& t, const TrainerResult& result) {
  Outcome outcome;
  for (const auto& row : result.epochs) outcome.losses.push_back(row.report.loss);
  for (const auto& value : t.net.parameters().tensors())
    for (const double x : value.to_vector()) outcome.weights.push_back(x);
  return outcome;
}

void prepare(Training& t, const std::filesystem::path& folder) {
  t.options.fit.epochs = 4, t.options.folder = folder;
  t.options.fit.learning_rate = [](std::int64_t step) { return 0.02 / static_cast<double>(1 + step); };
}

Outcome uninterrupted() {
  const Folder folder;
  Outcome outcome;
  check_on_ranks(1, "uninterrupted", [&](const Communicator& comm) {
    Training t(comm);
    prepare(t, folder.path);
    outcome = outcome_of(t, t.run());
  });
  return outcome;
}

// As with the trainers' --resume.
void go_on(Training& t, const std::filesystem::path& file) {
  const auto info = load_checkpoint(file, t.net, {.optimizer = &*t.sgd});
  t.options.fit.first_epoch = info.epoch;
  t.options.fit.begin = {info.epoch_step, RunningMean::of(info.epoch_loss, info.epoch_samples)};
}

void require_outcome(const Outcome& found, const Outcome& expected, double tolerance, std::size_t first_loss = 0) {
  require(found.losses.size() + first_loss >= expected.losses.size(), "[test] {} epochs", found.losses.size());
  for (std::size_t i = 0; i < expected.losses.size(); ++i)
    if (found.losses.size() == expected.losses.size())
      require(std::abs(found.losses[i] - expected.losses[i]) <= tolerance, "[test] loss {} of epoch {} for {}", found.losses[i],
              i, expected.losses[i]);
  for (std::size_t i = 0; i < expected.weights.size(); ++i)
    require(std::abs(found.weights[i] - expected.weights[i]) <= tolerance, "[test] weight {} is {:.17g} for {:.17g}", i,
            found.weights[i], expected.weights[i]);
}

void overwrite_bytes(const std::filesystem::path& file, std::uintmax_t at, std::string_view bytes) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(static_cast<std::streamoff>(at));
  stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace

TEST_CASE("restart: after every step, on one rank bit for bit, on others to rounding") {
  if (without_hdf5("restart")) return;
  const auto expected = uninterrupted();
  for (const int ranks : {1, 2}) {
    const Folder folder;
    // 3 steps per epoch: stops after each of 12 steps but the last.
    for (std::int64_t until = 1; until < 12; ++until) {
      const auto file = folder.path / newest_checkpoint;
      check_on_ranks(ranks, "first part", [&](const Communicator& comm) {
        Training t(comm);
        prepare(t, folder.path);
        t.options.checkpoint_steps = 1;
        std::int64_t steps = 0;
        t.options.notes_signals = true;
        // All ranks know it one step later.
        t.hooks.loss = [&](const Tensor& y, const Tensor& target) {
          if (++steps == until && comm.rank() == 0) std::raise(SIGUSR1);
          return mse(y, target);
        };
        const auto result = t.run();
        require(result.interrupted == (until < 11) || until >= 11, "[test] {} steps: {}", until, result.stopped);
        require(!result.interrupted || result.stopped.find("SIGUSR1") != std::string::npos || comm.rank() != 0, "[test] '{}'",
                result.stopped);
        require(result.checkpoints > 0, "[test] {} checkpoints", result.checkpoints);
      });
      check_on_ranks(3 - ranks, "on other ranks", [&](const Communicator& comm) {
        Training t(comm);
        prepare(t, {});
        go_on(t, file);
        const auto found = outcome_of(t, t.run());
        require_outcome({{}, found.weights}, {{}, expected.weights}, 1e-12);
      });
      check_on_ranks(ranks, "second part", [&](const Communicator& comm) {
        Training t(comm);
        prepare(t, folder.path);
        go_on(t, file);
        const auto result = t.run();
        const auto found = outcome_of(t, result);
        require_outcome({comm.rank() == 0 ? found.losses : std::vector<double>(), found.weights},
                        {comm.rank() == 0 ? expected.losses : std::vector<double>(), expected.weights}, ranks == 1 ? 0 : 1e-12);
      });
    }
  }
}

TEST_CASE("restart: a checkpoint before the first step, from which a training that died early is begun again") {
  if (without_hdf5("restart")) return;
  const auto expected = uninterrupted();
  for (const int ranks : {1, 2}) {
    const Folder folder, copy;
    const auto file = folder.path / newest_checkpoint, early = copy.path / newest_checkpoint;
    check_on_ranks(ranks, "train", [&](const Communicator& comm) {
      Training t(comm);
      prepare(t, folder.path);
      t.options.checkpoint_first = t.options.checkpoint_end = true;
      bool began = false;
      t.hooks.loss = [&](const Tensor& y, const Tensor& target) {
        if (!std::exchange(began, true) && comm.rank() == 0) std::filesystem::copy_file(file, early);
        return mse(y, target);
      };
      const auto result = t.run();
      require(result.checkpoints == 1, "[test] {} checkpoints: that of the end alone counts", result.checkpoints);
      require(read_checkpoint_info(file).epoch == 4, "[test] the end has not taken its place");
    });
    CHECK(read_checkpoint_info(early).step == 0);
    check_on_ranks(ranks, "again", [&](const Communicator& comm) {
      Training t(comm);
      prepare(t, {});
      go_on(t, early);
      const auto found = outcome_of(t, t.run());
      require_outcome({{}, found.weights}, {{}, expected.weights}, ranks == 1 ? 0 : 1e-12);
    });
    // From the middle of an epoch, with a file elsewhere.
    const auto middle = copy.path / "checkpoint-2.h5", there = copy.path / "again.h5";
    check_on_ranks(ranks, "the middle", [&](const Communicator& comm) {
      Training t(comm);
      prepare(t, copy.path);
      t.options.checkpoint_steps = 2, t.options.keep = 10, t.options.wait_for_checkpoints = true;
      t.run();
    });
    for (const auto& from : {middle, there})
      check_on_ranks(ranks, "from the middle", [&](const Communicator& comm) {
        Training t(comm);
        prepare(t, folder.path);
        go_on(t, from);
        require(t.options.fit.begin.steps == 2, "[test] {} steps", t.options.fit.begin.steps);
        t.options.checkpoint_first = true;
        bool began = false;
        t.hooks.loss = [&](const Tensor& y, const Tensor& target) {
          if (!std::exchange(began, true) && comm.rank() == 0)
            std::filesystem::copy_file(file, there, std::filesystem::copy_options::overwrite_existing);
          return mse(y, target);
        };
        const auto found = outcome_of(t, t.run());
        require_outcome({comm.rank() == 0 ? found.losses : std::vector<double>(), found.weights},
                        {comm.rank() == 0 ? expected.losses : std::vector<double>(), expected.weights}, ranks == 1 ? 0 : 1e-12);
      });
    check_on_ranks(ranks, "others come", [&](const Communicator& comm) {
      Training t(comm);
      prepare(t, folder.path);
      t.options.checkpoint_first = t.options.checkpoint_end = true, t.options.checkpoint_every = 3;
      const auto result = t.run();
      require(result.checkpoints + result.skipped_checkpoints == 2 && read_checkpoint_info(file).epoch == 4,
              "[test] those of the third epoch and the end: {} checkpoints", result.checkpoints);
      Training none(comm);
      prepare(none, {});
      none.options.checkpoint_first = true;
      require(error_text([&] { none.run(); }).find("need a folder") != std::string::npos, "[test] it has no place");
    });
  }
}

TEST_CASE("restart: checkpoints that are kept, found and skipped") {
  if (without_hdf5("restart")) return;
  const Folder folder;
  const auto train = [&](std::int64_t keep) {
    check_on_ranks(1, "train", [&](const Communicator& comm) {
      Training t(comm);
      prepare(t, folder.path);
      t.options.checkpoint_steps = 2, t.options.keep = keep, t.options.keep_best = true, t.options.wait_for_checkpoints = true;
      const auto result = t.run();
      require(result.checkpoints == 6 && result.slowest_checkpoint > 0, "[test] {} checkpoints", result.checkpoints);
    });
  };
  train(3);
  auto found = find_checkpoints(folder.path);
  REQUIRE(found.files.size() == 3);
  CHECK(found.skipped.empty());
  CHECK(found.files[0].filename() == "checkpoint.h5");
  CHECK(found.files[1].filename() == "checkpoint-10.h5");
  CHECK(found.files[2].filename() == "checkpoint-8.h5");
  CHECK(read_checkpoint_info(found.files[0]).epoch == 4);
  CHECK(read_checkpoint_info(found.files[0]).epoch_step == 0);
  CHECK(read_checkpoint_info(found.files[1]).epoch_step == 1);
  CHECK(read_checkpoint_info(found.files[1]).epoch_steps == 3);
  CHECK(read_checkpoint_info(folder.path / best_weights).epoch == 4);  // the loss falls
  // Damaged checkpoints are skipped with a reason; files with other names are ignored.
  std::filesystem::resize_file(found.files[0], std::filesystem::file_size(found.files[0]) / 2);
  overwrite_bytes(found.files[1], 0, "nothing");
  {
    Hdf5Writer newer(folder.path / "checkpoint-11.h5", false);
    newer.attribute("/", "format", std::string("mpigrad checkpoint 7"));
    newer.commit();
  }
  std::ofstream(folder.path / "checkpoint-x.h5") << "no checkpoint";
  std::ofstream(folder.path / "checkpoint-7.h5.mpigrad") << "a part of one";
  found = find_checkpoints(folder.path);
  REQUIRE(found.files.size() == 1);
  CHECK(found.files[0].filename() == "checkpoint-8.h5");
  REQUIRE(found.skipped.size() == 3);
  CHECK(found.skipped[0].find("checkpoint.h5") != std::string::npos);
  CHECK(found.skipped[1].find("checkpoint-11.h5 has version 7 of the format, and this program reads versions up to 2") !=
        std::string::npos);
  // A training resumed from an earlier step removes later checkpoints.
  std::filesystem::copy_file(found.files[0], folder.path / "checkpoint-99.h5");
  remove_old_checkpoints(folder.path, 5, 12);
  CHECK(!std::filesystem::exists(folder.path / "checkpoint-99.h5"));
  CHECK(std::filesystem::exists(folder.path / "checkpoint-8.h5"));
  // A new checkpoint replaces a damaged one, whose contents are not kept.
  train(1);
  found = find_checkpoints(folder.path);
  CHECK(found.files.size() == 1);
  CHECK(found.files[0].filename() == "checkpoint.h5");
  CHECK(find_checkpoints(folder.path / "none").files.empty());
}

TEST_CASE("restart: limits, and what cannot be") {
  if (without_hdf5("restart")) return;
  const Folder folder;
  check_on_ranks(2, "limit", [&](const Communicator& comm) {
    Training t(comm);
    prepare(t, folder.path);
    t.options.time_limit_minutes = 1.0 / 60;  // less than the first checkpoint may take
    const auto result = t.run();
    require(result.interrupted && result.stopped.find("limit") != std::string::npos && result.checkpoints == 1, "[test] '{}'",
            result.stopped);
    require(read_checkpoint_info(folder.path / newest_checkpoint).epoch < 4, "[test] all epochs");
    Training other(comm);
    prepare(other, folder.path);
    other.options.checkpoint_minutes = 1e-9;  // at every step
    const auto often = other.run();
    require(often.checkpoints >= 1 && often.checkpoints + often.skipped_checkpoints >= 6, "[test] {} checkpoints, {} skipped",
            often.checkpoints, often.skipped_checkpoints);
    for (const auto& wrong : {std::function<void(TrainerOptions&)>([](auto& o) { o.keep = 0; }),
                              std::function<void(TrainerOptions&)>([](auto& o) { o.checkpoint_steps = -1; }),
                              std::function<void(TrainerOptions&)>([](auto& o) { o.folder.clear(), o.checkpoint_steps = 1; }),
                              std::function<void(TrainerOptions&)>([](auto& o) { o.fit.begin.steps = 3; })}) {
      Training bad(comm);
      prepare(bad, folder.path);
      wrong(bad.options);
      require(!error_text([&] { bad.run(); }).empty(), "[test] no error");
    }
  });
}

TEST_CASE("restart: what one rank wants, all know a call later") {
  check_on_ranks(3, "deferred maximum", [](const Communicator& comm) {
    DeferredMax maximum(comm);
    const std::vector<std::int64_t> mine{0, comm.rank() == 2 ? 3 : 0, 0, comm.rank(), 0};
    const std::vector<std::int64_t> expected{0, 0, 3, 0, 2};
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const auto known = maximum.ask(mine[i]);
      require(known == expected[i], "[test] call {}: {}", i, known);
    }
    maximum.ask(comm.rank() == 1 ? 7 : 0);
    require(maximum.now(0) == 7, "[test] what was asked before");
    require(maximum.now(comm.rank()) == 2, "[test] now");
    require(maximum.ask(0) == 0, "[test] nothing is left");
    // A lasting request is granted once, and again when it is requested anew.
    for (const std::int64_t expect : {0, 4, 0, 4, 0}) require(maximum.ask(4) == expect, "[test] granted twice");
  });
}

TEST_CASE("restart: signals are noted once, and do what they did before afterwards") {
  static std::sig_atomic_t before = 0;
  const auto old = std::signal(SIGUSR1, [](int) { before = before + 1; });
  {
    const NotedSignals noted, again;
    CHECK(NotedSignals::noted() == nullptr);
    for (int twice = 0; twice < 2; ++twice) std::raise(SIGUSR1);  // one signal may arrive twice
    CHECK(before == 0);
    CHECK(std::string(NotedSignals::noted()) == "SIGUSR1");
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
    CHECK(std::string(NotedSignals::noted()) == "SIGUSR1");
    std::raise(SIGUSR1);  // noted() has reported the first one: the old handler runs
    CHECK(before == 1);
  }
  std::raise(SIGUSR1);
  CHECK(before == 2);
  {
    const NotedSignals fresh;
    CHECK(NotedSignals::noted() == nullptr);
    std::raise(SIGTERM);
  }
  std::raise(SIGUSR1);  // a launcher passes on the same request while the process ends
  CHECK(before == 2);
  { const NotedSignals fresh; }
  std::raise(SIGUSR1);
  CHECK(before == 3);
  {
    const NotedSignals fresh;
    NotedSignals::end_training();  // another rank has received a signal
  }
  for (int twice = 0; twice < 2; ++twice) std::raise(SIGUSR1);
  CHECK(before == 3);
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  std::raise(SIGUSR1);
  CHECK(before == 4);
  { const NotedSignals fresh; }
  std::signal(SIGUSR1, old);
}

TEST_CASE("restart: the interval between checkpoints that loses the least time") {
  // Expected time lost per second of training, exponential failures: cost / interval + (interval + cost) / (2 mtbf), to first
  // order. The minimum of the exact expression of Daly (2006), eq. 13, is found by search.
  const auto lost = [](double interval, double cost, double mtbf) {
    return mtbf * std::expm1((interval + cost) / mtbf) / interval;
  };
  for (const double cost : {0.5, 5.0, 60.0, 300.0}) {
    constexpr double mtbf = 4 * 3600;
    const double best = best_checkpoint_interval(cost, mtbf);
    for (const double other : {0.8, 0.9, 1.1, 1.25}) CHECK(lost(best, cost, mtbf) < lost(other * best, cost, mtbf));
  }
  CHECK(best_checkpoint_interval(1, 0.4) == 0.4);
  CHECK(has(error_text([] { best_checkpoint_interval(0, 1); }), "positive"));
}
