// Trainings until a goal, the table that keeps them, and what steps take on a machine.

#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "comm/transport/transport.h"
#include "examples/studies/scaling/learning.h"
#include "examples/studies/scaling/tasks/projection.h"
#include "examples/studies/scaling/verdict.h"
#include "models/trainer/tool/together.h"
#include "tests/support/files.h"

namespace mpigrad::scaling {
namespace {

const RunKey some_key{.task = "lattice", .workers = 4, .batch = 4, .learning_rate = 0.1, .data = "seed 1", .goal = 0.1};

RunResult one_run(const Task& task, double budget, int ranks = 1, int workers = 1) {
  RunResult result;
  run_threads(ranks, [&](const auto& transport) {
    const RunKey key{.task = task.name,
                     .workers = workers,
                     .batch = task.batch,
                     .learning_rate = task.rate_law(workers, task.batch),
                     .seed = 3,
                     .goal = task.goal};
    const auto own = train_to_goal(Communicator(transport), task, key, budget);
    if (transport->rank() == 0) result = own;
  });
  return result;
}

TEST_CASE("scaling: runs are kept in a file") {
  const testing::Folder folder;
  const auto path = folder / "runs.csv";
  const RunResult reached{.reached = true,
                          .budget = 1000,
                          .samples = 512.25,
                          .error = 0.09,
                          .critical_batch = std::nan(""),
                          .samples_per_second = 1e4,
                          .ranks = 2,
                          .copies = 3,
                          .copy_bytes = 12345};
  auto given_up = reached;
  given_up.reached = false, given_up.samples = 1000, given_up.critical_batch = std::numeric_limits<double>::infinity();
  auto diverged_key = some_key, given_up_key = some_key;
  given_up_key.seed = 2, diverged_key.seed = 3;
  auto diverged = given_up;
  diverged.error = std::numeric_limits<double>::infinity();
  {
    RunFile file(path);
    CHECK(file.runs().empty());
    file.remember(some_key, reached), file.remember(given_up_key, given_up), file.remember(diverged_key, diverged);
    file.write();
  }
  const RunFile file(path);
  REQUIRE(file.runs().size() == 3);
  const auto there = file.find(some_key, 1000, 2);
  REQUIRE(there);
  CHECK(there->reached);
  CHECK(there->samples == 512.25);
  CHECK(std::isnan(there->critical_batch));
  CHECK(there->copy_bytes == 12345);
  CHECK_FALSE(file.find(some_key, 500, 2)->reached);  // it took more
  CHECK_FALSE(file.find(some_key, 1000, 4));          // each worker would have a rank now, and its time is not known
  CHECK(file.find(given_up_key, 1000, 2));
  CHECK(std::isinf(file.find(given_up_key, 1000, 2)->critical_batch));
  CHECK_FALSE(file.find(given_up_key, 1001, 2));  // it may reach the goal with more
  CHECK(file.find(diverged_key, 2000, 2));
  auto other = some_key;
  other.data = "seed 2";
  CHECK_FALSE(file.find(other, 1000, 2));
}

TEST_CASE("scaling: a table with a line that was cut off, of another version, with a cell that is not a number") {
  const testing::Folder folder;
  const auto path = folder / "runs.csv";
  {
    RunFile file(path);
    file.remember(some_key, {.reached = true});
    file.write();
  }
  std::ofstream(path, std::ios::app) << "lattice,gradients,1,4";
  CHECK(RunFile(path).runs().size() == 1);
  std::ofstream(path, std::ios::app) << ",x,4,0.1,1,seed 1,0.1,1,0,0,0,0,0,1,0,0\n";
  CHECK_THROWS_WITH_AS(RunFile{path}, doctest::Contains("line 3"), Error);
  std::ofstream(path) << "task,samples\n";
  CHECK_THROWS_WITH_AS(RunFile{path}, doctest::Contains("of this version"), tool::UsageError);
}

TEST_CASE("scaling: a training ends at its goal, or with a last look at the end of its budget") {
  auto task = make_task("quadratic", {.seed = 1});
  const auto every_step = one_run(task, 100'000);
  CHECK(every_step.reached);
  CHECK(every_step.error <= task.goal);
  // Looks are far apart: the one at the budget's end sees that the goal is reached.
  task.every = 1 << 30;
  const double budget = 2 * every_step.samples;
  const auto at_end = one_run(task, budget);
  CHECK(at_end.reached);
  CHECK(at_end.error < every_step.error);
  CHECK(at_end.samples > 0);
  CHECK(at_end.samples < budget);
  const auto early = one_run(task, every_step.samples / 4);
  CHECK_FALSE(early.reached);
  CHECK(early.error > task.goal);
  CHECK(early.samples >= every_step.samples / 4);
  task.goal = 1000;  // it begins at 32
  const auto already = one_run(task, budget);
  CHECK(already.reached);
  CHECK(already.samples == 0);
}

TEST_CASE("scaling: several ranks train the same, and two workers tell the noise scale") {
  const auto task = make_task("quadratic", {.seed = 1});
  const auto one = one_run(task, 100'000, 1, 2), two = one_run(task, 100'000, 2, 2);
  CHECK(two.samples == doctest::Approx(one.samples).epsilon(1e-6));
  CHECK(two.critical_batch == doctest::Approx(one.critical_batch).epsilon(1e-6));
  CHECK(one.critical_batch == doctest::Approx(32).epsilon(0.3));
  CHECK(one.ranks == 1);
  CHECK(two.ranks == 2);
  CHECK(std::isnan(one_run(task, 1000).critical_batch));
}

TEST_CASE("scaling: simulated steps") {
  const auto machine = planner::read_machine(MPIGRAD_SOURCE_ROOT "/examples/machines/summit.toml");
  const auto task = make_task("lattice-norm", {.training = 256, .test = 16});
  const auto step = [&](int workers, const std::string& synchronisation, std::int64_t every) {
    return simulated_step(task, machine, workers, 4, synchronisation, every);
  };
  const double alone = step(1, "gradients", 1);
  CHECK(alone > 0);
  CHECK(step(64, "gradients", 1) > alone);
  // Weights are averaged by one call, and what it takes is shared by the steps up to the next.
  const double often = step(64, "weights", 1) - alone, seldom = step(64, "weights", 10) - alone;
  CHECK(often > 0);
  CHECK(often == doctest::Approx(10 * seldom));
  CHECK(step(64, "gossip", 1) > alone);
  CHECK(step(64, "gossip", 1) - alone < often);  // one message, and not the many of an all-reduce
  CHECK(step(1, "weights", 1) == doctest::Approx(alone));
  CHECK_THROWS_WITH_AS(step(machine.ranks() + 1, "gradients", 1), doctest::Contains("need one each"), Error);
}

TEST_CASE("scaling: a noise scale, or why there is none") {
  Study study{.task = make_task("quadratic", {}), .batch = 4};
  study.results = {
      {.workers = 1, .critical_batch = std::nan("")}, {.workers = 2, .critical_batch = 8}, {.workers = 4, .critical_batch = 32}};
  judge(study);
  CHECK(study.critical_batch == doctest::Approx(16));
  study.results.resize(1);
  judge(study);
  CHECK(std::isnan(study.critical_batch));
  CHECK(study.undefined.find("two workers") != std::string::npos);
  study.synchronisation = "weights";
  judge(study);
  CHECK(study.undefined.find("weights of their own") != std::string::npos);
  study.task.separable = false;
  judge(study);
  CHECK(study.undefined.find("no mean over its samples") != std::string::npos);
}

}  // namespace
}  // namespace mpigrad::scaling
