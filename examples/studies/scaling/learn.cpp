// scaling learn: the samples that W workers need to an error, and the time that this takes.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "examples/studies/scaling/commands.h"
#include "examples/studies/scaling/learning.h"
#include "examples/studies/scaling/verdict.h"
#include "models/trainer/folder/folder_lock.h"
#include "models/trainer/run.h"
#include "models/trainer/tool/command_line.h"
#include "models/trainer/tool/quantile.h"

namespace mpigrad::scaling {
namespace {

namespace fs = std::filesystem;
using tool::UsageError;

// A rate is not judged by the seeds for which it was chosen.
constexpr std::uint64_t first_seed = 1, first_tuning_seed = 1'000'001;
constexpr std::int64_t most_seeds = 1'000'000;
// Numbers of workers for a machine if --more-workers is not given and they fit.
const std::vector<int> more_workers{128, 1024, 15000};

// RunResult as numbers, for ranks without a worker.
constexpr std::size_t result_numbers = 9;
std::array<double, result_numbers> numbers_of(const RunResult& r) {
  return {r.reached ? 1.0 : 0.0,
          r.budget,
          r.samples,
          r.error,
          r.critical_batch,
          r.samples_per_second,
          static_cast<double>(r.ranks),
          static_cast<double>(r.copies),
          static_cast<double>(r.copy_bytes)};
}
RunResult result_of(const std::array<double, result_numbers>& n) {
  return {.reached = n[0] != 0,
          .budget = n[1],
          .samples = n[2],
          .error = n[3],
          .critical_batch = n[4],
          .samples_per_second = n[5],
          .ranks = static_cast<int>(n[6]),
          .copies = static_cast<std::int64_t>(n[7]),
          .copy_bytes = static_cast<std::int64_t>(n[8])};
}

struct Search {
  const Communicator& world;
  const LearnOptions& options;
  const Task& task;
  std::string synchronisation;
  std::int64_t every = 1;
  std::string data{};
  RunFile& file;
  std::map<int, Communicator> first_ranks{};  // the first so many ranks of the world

  double budget(int workers) const { return static_cast<double>(task.budget) * std::max(1.0, workers / 64.0); }

  // Runs a training, or takes it from an earlier call, on as many of the first ranks as share the workers evenly (one for one
  // worker), while the others wait. Collective.
  RunResult run(int workers, double rate, std::uint64_t seed, double budget) {
    const RunKey key{task.name, synchronisation, every, workers, task.batch, rate, seed, data, task.goal};
    const int ranks = std::gcd(workers, world.size());
    if (const auto there = file.find(key, budget, ranks)) return *there;
    std::array<double, result_numbers> numbers{};
    if (world.rank() < ranks) {
      if (!first_ranks.contains(ranks)) {
        std::vector<int> members(static_cast<std::size_t>(ranks));
        std::iota(members.begin(), members.end(), 0);
        first_ranks.emplace(ranks, world.subgroup(members));
      }
      numbers = numbers_of(train_to_goal(first_ranks.at(ranks), task, key, budget));
    }
    world.transport().bcast(numbers.data(), numbers.size(), DType::float64, 0);
    const auto result = result_of(numbers);
    if (result.reached && result.samples == 0)
      throw UsageError(fmt::format("--goal {:g}: {} is {:g} before the first step; a smaller goal is needed", task.goal,
                                   task.error_name, result.error));
    trainer::together(world, [&] {
      file.remember(key, result);
      if (world.rank() == 0) file.write();
    });
    if (world.rank() == 0 && !options.quiet)
      fmt::print(stderr, "{}, {} worker{}, rate {:g}, seed {}: {}\n", task.name, workers, workers == 1 ? "" : "s", rate, seed,
                 result.reached ? fmt::format("{:.0f} samples to {} {:g}", result.samples, task.error_name, task.goal)
                                : fmt::format("not reached with {:.0f} samples ({:.4g})", result.samples, result.error));
    return result;
  }
};

double to_goal(const RunResult& r) { return r.reached ? r.samples : std::numeric_limits<double>::infinity(); }

// The rate with the lowest median over the tuning seeds; if no rate reaches the goal, the one that comes nearest.
double tune(Search& search, int workers, const std::vector<double>& rates) {
  auto budget = search.budget(workers);
  double best = std::numeric_limits<double>::infinity(), nearest = best, chosen = rates.front();
  for (const double rate : rates) {
    std::vector<double> samples, errors;
    for (std::int64_t s = 0; s < search.options.tuning_seeds; ++s) {
      const auto result = search.run(workers, rate, first_tuning_seed + static_cast<std::uint64_t>(s), budget);
      samples.push_back(to_goal(result)), errors.push_back(result.error);
    }
    const double median = tool::median(samples), error = tool::median(errors);
    if (median < best || (std::isinf(best) && error < nearest)) best = median, nearest = error, chosen = rate;
    // A run that needs twice as long as the best so far is stopped.
    if (std::isfinite(best))
      budget = std::min(budget, std::max(2 * best, 4.0 * workers * static_cast<double>(search.task.batch)));
  }
  return chosen;
}

WorkersResult study(Search& search, int workers, std::vector<double> rates) {
  WorkersResult result{.workers = workers};
  const auto& task = search.task;
  if (rates.empty() && task.rate_law) rates = {task.rate_law(workers, task.batch)};
  if (rates.empty()) rates = task.learning_rates;
  std::sort(rates.begin(), rates.end());
  rates.erase(std::unique(rates.begin(), rates.end()), rates.end());
  result.tuned = rates.size() > 1;
  result.learning_rate = result.tuned ? tune(search, workers, rates) : rates.front();
  result.at_end = result.tuned && (result.learning_rate == rates.front() || result.learning_rate == rates.back());
  std::vector<double> samples, critical, speeds;
  for (std::int64_t s = 0; s < search.options.seeds; ++s) {
    const auto run =
        search.run(workers, result.learning_rate, first_seed + static_cast<std::uint64_t>(s), search.budget(workers));
    samples.push_back(to_goal(run));
    result.reached += run.reached ? 1 : 0, ++result.runs;
    if (std::isfinite(run.critical_batch)) critical.push_back(run.critical_batch);
    if (run.ranks == workers && run.samples_per_second > 0) speeds.push_back(run.samples_per_second);
    result.copies = run.copies, result.copy_bytes = run.copy_bytes;
  }
  result.samples = tool::median(samples);
  result.lower = tool::quantile(samples, 0.25), result.upper = tool::quantile(samples, 0.75);
  result.critical_batch = tool::median(critical);
  result.measured_rate = speeds.empty() ? 0 : tool::median(speeds);
  return result;
}

void check(const LearnOptions& o) {
  if (std::find(o.workers.begin(), o.workers.end(), 1) == o.workers.end())
    throw UsageError("--workers needs 1, with which the others are compared");
  if (o.task == "images" && o.images.empty())
    throw UsageError("--task images needs --images FOLDER, with a folder for each class");
  if (o.task != "images" && !o.images.empty()) throw UsageError("--images is for --task images");
}

void check_machine(const LearnOptions& o, const Task& task, const planner::Machine* machine) {
  const auto most = *std::max_element(o.workers.begin(), o.workers.end());
  if (machine && !task.rate_law && most > machine->ranks())
    throw UsageError(fmt::format("--workers {}: {} has {} ranks", most, machine->name, machine->ranks()));
  if (o.more_workers.empty()) return;
  if (!machine) throw UsageError("--more-workers needs --machine, on which their steps are simulated");
  if (o.sync_every > 0 || o.gossip || !task.separable)
    throw UsageError(
        "--more-workers: their samples are those of the law, which is of gradients that are averaged in every step and of losses "
        "that are means over samples");
  if (most == 1) throw UsageError("--more-workers: the law needs a noise scale, and it takes two --workers to measure it");
  for (const int w : o.more_workers) {
    if (w <= most)
      throw UsageError(fmt::format("--more-workers {}: with up to {} the samples are measured (--workers)", w, most));
    if (w > machine->ranks())
      throw UsageError(fmt::format("--more-workers {}: {} has {} ranks", w, machine->name, machine->ranks()));
  }
}

Task task_of(const LearnOptions& o) {
  Task task;
  try {
    task = make_task(o.task, {.seed = o.data_seed, .training = o.training, .folder = o.images});
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  if (o.goal > 0) task.goal = o.goal;
  if (o.batch > 0) task.batch = o.batch;
  if (o.budget > 0) task.budget = o.budget;
  if (o.every > 0) task.every = o.every;
  const auto most = *std::max_element(o.workers.begin(), o.workers.end());
  if (task.training->size() < most * task.batch)
    throw UsageError(fmt::format("--workers {}: {} samples are too few for {} of each", most, task.training->size(), task.batch));
  return task;
}

// Describes a run's data, in addition to its key's numbers. No commas, because it is a cell of a table.
std::string data_of(const LearnOptions& o, const Task& task) {
  auto text =
      fmt::format("seed {} of {}+{} looked at every {}", o.data_seed, task.training->size(), task.test->size(), task.every);
  if (!o.images.empty()) text += fmt::format(" in {:016x}", tool::fingerprint({fs::absolute(o.images).string()}));
  return text;
}

}  // namespace

void add_learn(CLI::App& app, LearnOptions& o) {
  auto* command = app.add_subcommand(
      "learn", "samples that W workers need to an error, learning and parallel speed-up; W may be more than ranks");
  const auto whole = [&](const char* name, std::int64_t& value, std::int64_t low, const char* text) {
    return command->add_option(name, value, text)->check(tool::whole_number(low));
  };
  std::string tasks;
  std::vector<std::string> names;
  for (const auto& [name, sentence] : task_names()) tasks += fmt::format("\n{}: {}", name, sentence), names.push_back(name);
  command->add_option("--task", o.task, fmt::format("the task to learn{}", tasks))
      ->check(CLI::IsMember(names))
      ->capture_default_str();
  command->add_option("--images", o.images, "folder of --task images: a folder for each class");
  command
      ->add_option("--workers", o.workers,
                   "numbers of workers, separated by commas, 1 among them; each runs on as many ranks as share it evenly")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(tool::whole_number(1, 1 << 16))
      ->capture_default_str();
  whole("--batch", o.batch, 1, "samples of one worker in a step (default: the task's)");
  command->add_option("--goal", o.goal, "error to reach (default: the task's)")->check(tool::number_above(0));
  whole("--budget", o.budget, 1,
        "samples after which a training has not reached the goal (default: the task's); W / 64 times as many for W > 64 workers");
  whole("--look-every", o.every, 1, "samples between two evaluations of the error (default: the task's)");
  whole("--samples", o.training, 1, "samples to train on (default: the task's)");
  command
      ->add_option("--learning-rates", o.learning_rates,
                   "rates to choose from for each number of workers, ascending, separated by commas (default: the task's)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(tool::number_above(0));
  command->add_option("--seeds", o.seeds, "trainings of each number of workers; medians count")
      ->check(tool::whole_number(1, most_seeds))
      ->capture_default_str();
  whole("--tuning-seeds", o.tuning_seeds, 1, "other seeds, by which a learning rate is chosen")->capture_default_str();
  whole("--sync-every", o.sync_every, 1,
        "workers step independently and average their weights every so many steps (default: gradients in every step)");
  command->add_flag("--gossip", o.gossip, "workers average with one random partner each instead of all");
  command->add_option("--machine", o.machine,
                      "machine file such as examples/machines/perlmutter.toml: times of steps are simulated on it");
  command
      ->add_option(
          "--more-workers", o.more_workers,
          "further numbers, whose samples are the law's: with --machine (default: those of 128, 1024, 15000 that it has)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(tool::whole_number(1, 65536));
  command->add_option("--data-seed", o.data_seed, "seed of generated samples")->capture_default_str();
  command->add_option("--out", o.out, "folder; a study in it is resumed")->capture_default_str();
  command->add_flag("--json", o.json, "print one JSON document");
  command->add_flag("--quiet", o.quiet, "no line for each training");
}

int learn(const Communicator& world, const LearnOptions& given) {
  auto o = given;
  check(o);
  const auto task = task_of(o);
  std::optional<tool::FolderLock> lock;
  std::optional<RunFile> file;
  std::optional<planner::Machine> machine;
  trainer::together(world, [&] {
    if (!o.machine.empty()) {
      try {
        machine = planner::read_machine(o.machine);
      } catch (const Error& failure) {
        throw UsageError(failure.what());
      }
    }
    check_machine(o, task, machine ? &*machine : nullptr);
    std::error_code error;
    fs::create_directories(o.out, error);
    require(fs::is_directory(o.out), "[scaling] the folder {} cannot be made: {}", o.out, error.message());
    if (world.rank() == 0) lock.emplace(o.out);
    file.emplace(fs::path(o.out) / "runs.csv");
  });
  world.transport().barrier();  // all ranks have read it before rank 0 writes
  std::sort(o.workers.begin(), o.workers.end());
  o.workers.erase(std::unique(o.workers.begin(), o.workers.end()), o.workers.end());
  if (machine && o.more_workers.empty())
    for (const int w : more_workers)
      if (w > o.workers.back() && w <= machine->ranks()) o.more_workers.push_back(w);
  Search search{world,
                o,
                task,
                o.gossip           ? "gossip"
                : o.sync_every > 0 ? "weights"
                                   : "gradients",
                std::max<std::int64_t>(o.sync_every, 1),
                data_of(o, task),
                *file};
  Study result{
      .task = task, .synchronisation = search.synchronisation, .every = search.every, .batch = task.batch, .goal = task.goal};
  for (const int w : o.workers) {
    result.results.push_back(study(search, w, o.learning_rates));
    const auto& one = result.results.front();
    if (std::isinf(one.samples))
      throw UsageError(
          fmt::format("--goal {:g}: {} of {} trainings of 1 worker reached it within {} samples; a larger goal or --budget, or "
                      "other --learning-rates are needed",
                      task.goal, one.reached, one.runs, task.budget));
  }
  judge(result);
  trainer::together(world, [&] {
    if (world.rank() == 0) tell(result, machine ? &*machine : nullptr, o);
  });
  return 0;
}

}  // namespace mpigrad::scaling
