// scaling learn: how many samples W workers need to an error, and what their speed is worth.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "examples/scaling/commands.h"
#include "examples/scaling/learning.h"
#include "examples/scaling/verdict.h"
#include "examples/tool/command_line.h"
#include "examples/trainer/run.h"
#include "framework/joined.h"

namespace mpigrad::scaling {
namespace {

namespace fs = std::filesystem;
using tool::UsageError;

constexpr std::uint64_t first_seed = 1, first_tuning_seed = 1001;  // a rate is not judged by the seeds that it was chosen for

struct Search {
  const Communicator& world;
  const LearnOptions& options;
  const Task& task;
  std::string synchronisation;
  std::int64_t every = 1;
  std::string data{};
  RunFile& file;
  std::int64_t made = 0;

  // The run, or what an earlier call has left of it. Collective.
  RunResult run(int workers, double rate, std::uint64_t seed, double budget) {
    const RunKey key{task.name, synchronisation, every, workers, task.batch, rate, seed, data, task.goal};
    if (const auto there = file.find(key, budget, world.size())) return *there;
    const auto result = train_to_goal(world, task, key, budget);
    ++made;
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

// The rate whose median over the seeds for tuning is lowest; of those that none reaches with, the one that came nearest.
double tune(Search& search, int workers, const std::vector<double>& rates) {
  auto budget = static_cast<double>(search.task.budget);
  double best = std::numeric_limits<double>::infinity(), nearest = best, chosen = rates.front();
  for (const double rate : rates) {
    std::vector<double> samples, errors;
    for (std::int64_t s = 0; s < search.options.tuning_seeds; ++s) {
      const auto result = search.run(workers, rate, first_tuning_seed + static_cast<std::uint64_t>(s), budget);
      samples.push_back(to_goal(result)), errors.push_back(result.error);
    }
    const double median = quantile(samples, 0.5), error = quantile(errors, 0.5);
    if (median < best || (std::isinf(best) && error < nearest)) best = median, nearest = error, chosen = rate;
    // What needs twice as long as the best so far need not be seen to its end.
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
  result.tuned = rates.size() > 1;
  result.learning_rate = result.tuned ? tune(search, workers, rates) : rates.front();
  result.at_end = result.tuned && (result.learning_rate == rates.front() || result.learning_rate == rates.back());
  std::vector<double> samples, critical, speeds;
  for (std::int64_t s = 0; s < search.options.seeds; ++s) {
    const auto run =
        search.run(workers, result.learning_rate, first_seed + static_cast<std::uint64_t>(s), static_cast<double>(task.budget));
    samples.push_back(to_goal(run));
    result.reached += run.reached ? 1 : 0, ++result.runs;
    if (std::isfinite(run.critical_batch)) critical.push_back(run.critical_batch);
    if (run.ranks == workers && run.samples_per_second > 0) speeds.push_back(run.samples_per_second);
    result.copies = run.copies, result.copy_bytes = run.copy_bytes;
  }
  result.samples = quantile(samples, 0.5), result.lower = quantile(samples, 0.25), result.upper = quantile(samples, 0.75);
  result.critical_batch = critical.empty() ? std::nan("") : quantile(critical, 0.5);
  result.measured_rate = speeds.empty() ? 0 : quantile(speeds, 0.5);
  return result;
}

void check(const LearnOptions& o, int ranks) {
  for (const auto w : o.workers)
    if (w % ranks != 0) throw UsageError(fmt::format("--workers {}: {} ranks cannot share them evenly", w, ranks));
  if (std::find(o.workers.begin(), o.workers.end(), 1) == o.workers.end() && ranks == 1)
    throw UsageError("--workers needs 1, with which the others are compared");
  if (o.task == "images" && o.images.empty())
    throw UsageError("--task images needs --images FOLDER, with a folder for each class");
  if (o.task != "images" && !o.images.empty()) throw UsageError("--images is for --task images");
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

// What a run is of, beside its key's numbers. No commas: it is a cell of a table.
std::string data_of(const LearnOptions& o, const Task& task) {
  auto text =
      fmt::format("seed {} of {}+{} looked at every {}", o.data_seed, task.training->size(), task.test->size(), task.every);
  if (!o.images.empty()) text += fmt::format(" in {:016x}", tool::fingerprint({fs::absolute(o.images).string()}));
  return text;
}

}  // namespace

void add_learn(CLI::App& app, LearnOptions& o) {
  auto* command = app.add_subcommand(
      "learn",
      "samples that W workers need to an error, and learning speed-up beside parallel speed-up; W may be more than ranks");
  const auto whole = [&](const char* name, std::int64_t& value, std::int64_t low, const char* text) {
    return command->add_option(name, value, text)->check(tool::whole_number(low));
  };
  std::string tasks;
  std::vector<std::string> names;
  for (const auto& [name, sentence] : task_names()) tasks += fmt::format("\n{}: {}", name, sentence), names.push_back(name);
  command->add_option("--task", o.task, fmt::format("what is learned{}", tasks))
      ->check(CLI::IsMember(names))
      ->capture_default_str();
  command->add_option("--images", o.images, "folder of --task images: a folder for each class");
  command->add_option("--workers", o.workers, "numbers of workers, separated by commas, multiples of the ranks")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(tool::whole_number(1, 1 << 16))
      ->capture_default_str();
  whole("--batch", o.batch, 1, "samples of one worker in a step (default: the task's)");
  command->add_option("--goal", o.goal, "error to reach (default: the task's)")->check(tool::number_above(0));
  whole("--budget", o.budget, 1, "samples after which a training has not reached it (default: the task's)");
  whole("--look-every", o.every, 1, "samples between two looks at the error (default: the task's)");
  whole("--samples", o.training, 1, "to train on (default: the task's)");
  command
      ->add_option("--learning-rates", o.learning_rates,
                   "to choose from for each number of workers, ascending, separated by commas (default: the task's)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(tool::number_above(0));
  whole("--seeds", o.seeds, 1, "trainings of each number of workers; medians count")->capture_default_str();
  whole("--tuning-seeds", o.tuning_seeds, 1, "others, by which a learning rate is chosen")->capture_default_str();
  whole("--sync-every", o.sync_every, 1,
        "workers step by themselves and average their weights every so many steps (default: gradients in every step)");
  command->add_flag("--gossip", o.gossip, "they average with one partner each, drawn anew, instead of all");
  command->add_option("--machine", o.machine,
                      "machine file such as examples/machines/perlmutter.toml: times of steps are simulated on it");
  command->add_option("--more-workers", o.ranks_on_machine, "further numbers, whose samples are the law's: with --machine")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(tool::whole_number(1, 65536))
      ->capture_default_str();
  command->add_option("--data-seed", o.data_seed, "of generated samples")->capture_default_str();
  command->add_option("--out", o.out, "folder; a study that is in it already is gone on with")->capture_default_str();
  command->add_flag("--json", o.json, "print one JSON document");
  command->add_flag("--quiet", o.quiet, "no line for each training");
}

int learn(const Communicator& world, const LearnOptions& o) {
  check(o, world.size());
  const auto task = task_of(o);
  std::optional<RunFile> file;
  std::optional<planner::Machine> machine;
  trainer::together(world, [&] {
    std::error_code error;
    fs::create_directories(o.out, error);
    require(fs::is_directory(o.out), "[scaling] the folder {} cannot be made: {}", o.out, error.message());
    file.emplace(fs::path(o.out) / "runs.csv");
    if (o.machine.empty()) return;
    try {
      machine = planner::read_machine(o.machine);
    } catch (const Error& failure) {
      throw UsageError(failure.what());
    }
  });
  world.transport().barrier();  // all have read it before rank 0 writes
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
  auto workers = o.workers;
  std::sort(workers.begin(), workers.end());
  workers.erase(std::unique(workers.begin(), workers.end()), workers.end());
  for (const int w : workers) {
    result.results.push_back(study(search, w, o.learning_rates));
    const auto& first = result.results.front();
    if (&first == &result.results.back() && std::isinf(first.samples))
      throw UsageError(fmt::format(
          "--goal {:g}: {} of {} trainings of {} worker{} reached it within {} samples; a larger goal or --budget, or "
          "other --learning-rates are needed",
          task.goal, first.reached, first.runs, first.workers, first.workers == 1 ? "" : "s", task.budget));
  }
  judge(result);
  trainer::together(world, [&] {
    if (world.rank() == 0) tell(result, machine ? &*machine : nullptr, o);
  });
  return 0;
}

}  // namespace mpigrad::scaling
