#include "examples/studies/hpo/search.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "examples/tools/elastic/command.h"
#include "framework/base/new_file.h"
#include "framework/base/printable.h"
#include "models/trainer/folder/state.h"
#include "models/trainer/tool/command_line.h"

namespace mpigrad::hpo {
namespace {

using Json = nlohmann::ordered_json;
using tool::UsageError;
constexpr const char *search_file = "search.json", *results_file = "results.csv";
const std::vector<std::string> results_of_search{results_file, "hpo.json", "hpo.png", "trials"};

const auto process_start = std::chrono::steady_clock::now();
double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now() - process_start).count(); }

// Identifies a search: with other values, results would belong to another search.
Json identity(const Space& space, const Plan& plan, const StrategyOptions& o) {
  Json result{{"program", space.program},
              {"metric", space.metric},
              {"metrics", space.metrics},
              {"goal", space.minimize ? "min" : "max"},
              {"take", space.best_row ? "best" : "last"},
              {"resource", space.resource},
              {"out", space.out},
              {"resume", space.resume}};
  for (const auto& p : space.parameters) {
    auto& parameter = result["parameters"][p.name];
    if (!p.is_range()) parameter = p.values;
    else parameter = {{"from", p.from}, {"to", p.to}, {"log", p.log}, {"integer", p.integer}, {"points", p.points}};
  }
  result["strategy"] = o.name;
  if (o.name != "grid") result["seed"] = o.seed;
  for (const auto& bracket : plan.brackets) {
    Json rungs;
    // Grids, and settings drawn one by one, may have been extended.
    for (const auto& rung : bracket.rungs)
      rungs.push_back(bracket.rungs.size() > 1 || plan.brackets.size() > 1 ? Json{rung.trials, rung.resource}
                                                                           : Json{rung.resource});
    result["rungs"].push_back(rungs);
  }
  return result;
}

}  // namespace

Search::Search(const Space& space, const Plan& plan, const Places& places, const SearchOptions& options)
    : space_(space), plan_(plan), places_(places), options_(options), schedule_(plan, space.minimize) {
  claim_folder();
  std::vector<std::string> parameters;
  for (const auto& p : space_.parameters) parameters.push_back(p.name);
  results_ = std::make_unique<Results>(options_.out / results_file, parameters);
  for (const auto& result : results_->all()) {
    before_ = std::max(before_, result.at);
    if (result.status != done && options_.retry_failed) again_.push_back(result.task.trial);
  }
  if (options_.retry_failed) results_->forget_failed();
  std::sort(again_.begin(), again_.end());
  // The previous grid may have been longer: results that are not in this one stay in the file.
  for (const auto& result : results_->all()) {
    if (result.task.trial > static_cast<int>(plan_.settings.size())) continue;
    schedule_.record(result.task.trial, result.task.rung, result.value);
    ++finished_before_;
  }
  before_ -= now();
}

void Search::claim_folder() {
  const auto& out = options_.out;
  std::error_code none;
  const auto mine = identity(space_, plan_, options_.strategy);
  if (std::filesystem::exists(out, none) && !std::filesystem::is_directory(out, none))
    throw UsageError(fmt::format("{} is no folder", out.string()));
  const auto require_ours = [&] {
    const bool ours = std::filesystem::is_regular_file(out / search_file, none);
    if (!ours && tool::has_files(out)) throw UsageError(fmt::format("{} has files, and they are of no search", out.string()));
    return ours;
  };
  require_ours();
  std::filesystem::create_directories(out, none);
  require(std::filesystem::is_directory(out), "[hpo] the folder {} cannot be made: {}", out.string(), none.message());
  lock_ = std::make_unique<tool::FolderLock>(out);
  const bool ours = require_ours();
  if (ours && options_.overwrite) {
    for (const auto& file : results_of_search) std::filesystem::remove_all(out / file);
  } else if (ours) {
    std::ifstream stream(out / search_file);
    const auto theirs = Json::parse(stream, nullptr, false);
    for (const auto& [key, value] : mine.items())
      if (!theirs.is_object() || theirs.value(key, Json()) != value)
        throw UsageError(fmt::format("{} is of another search: its {} differ{}; another --out, or --overwrite", out.string(), key,
                                     key == "parameters" || key == "rungs" ? "" : "s"));
    return;
  }
  // First, so that a folder that a killed search has left is known to be of a search.
  write_new_file(out / search_file, tool::to_text(mine) + "\n", "hpo");
  std::filesystem::create_directories(out / "trials", none);
  require(std::filesystem::is_directory(out / "trials"), "[hpo] the folder {} cannot be made: {}", (out / "trials").string(),
          none.message());
}

std::filesystem::path Search::folder_of(int trial) const { return options_.out / "trials" / fmt::format("{:04}", trial); }

double Search::seconds() const { return before_ + now(); }

Work Search::work_of(const Task& task, int slot) {
  const auto folder = folder_of(task.trial);
  const auto again = std::find(again_.begin(), again_.end(), task.trial);
  if (space_.resume.empty() || again != again_.end()) {
    std::filesystem::remove_all(folder);
    if (again != again_.end()) again_.erase(again);
  }
  std::filesystem::create_directories(folder);
  auto words = places_.launcher(slot);
  const auto command = command_of(space_, setting(task.trial), task.resource, folder);
  words.insert(words.end(), command.begin(), command.end());
  words.insert(words.end(), space_.resume.begin(), space_.resume.end());
  const auto output = task.rung == 0 ? std::string("output.txt") : fmt::format("output-{}.txt", task.rung + 1);
  under_way_.push_back(task);
  return {.id = static_cast<int>(under_way_.size()) - 1,
          .command = std::move(words),
          .output = folder / output,
          .metrics = folder / space_.metrics};
}

Result Search::judged(const Task& task, const Ended& ended) const {
  const auto folder = folder_of(task.trial);
  Result result{.task = task, .seconds = ended.seconds, .at = seconds()};
  const auto printed =
      elastic::last_line(folder / (task.rung == 0 ? std::string("output.txt") : fmt::format("output-{}.txt", task.rung + 1)));
  const auto fail_as = [&](const char* status, const std::string& reason) {
    result.status = status, result.reason = printable(reason);
    return result;
  };
  if (ended.hung) return fail_as(hung, ended.problem);
  if (!ended.problem.empty()) return fail_as(crashed, ended.problem);
  if (ended.code != 0) {
    const auto code = ended.code > 128 ? fmt::format("signal {}", ended.code - 128) : fmt::format("exit code {}", ended.code);
    return fail_as(tells_of_divergence(printed) ? diverged : crashed,
                   printed.empty() ? code : fmt::format("{}: {}", code, printed));
  }
  // A launcher may return 0 for a training that a signal has ended; its table then has fewer epochs.
  if (const auto state = trainer::read_state(folder); trainer::code_of_run(0, folder, std::nullopt) != 0)
    return fail_as(crashed, fmt::format("its state is {}{}{}", state->word, state->why.empty() ? "" : ": ", state->why));
  try {
    const double value = read_metric(folder / space_.metrics, space_);
    if (!std::isfinite(value)) return fail_as(diverged, fmt::format("{} is {}", space_.metric, value));
    result.status = done, result.value = value;
    return result;
  } catch (const Error& error) {
    return fail_as(crashed, error.what());
  }
}

void Search::note(const Task& task, const Ended& ended) {
  const auto result = judged(task, ended);
  results_->append(result, setting(task.trial));
  schedule_.record(task.trial, task.rung, result.value);
  if (options_.quiet) return;
  const auto resource = space_.resource.empty() ? std::string() : fmt::format(" {}={}", space_.resource, task.resource);
  const auto what =
      result.value ? fmt::format("{} {:.6g}", space_.metric, *result.value) : fmt::format("{}: {}", result.status, result.reason);
  fmt::print(stderr, "trial {} ({}{}): {}, {:.1f} s\n", task.trial, text_of(space_, setting(task.trial)), resource, what,
             result.seconds);
}

bool Search::run(const std::function<int()>& asked) {
  const FarmOptions farm{.slots = places_.slots(),
                         .limit = options_.limit,
                         .stall = options_.stall,
                         // srun ends a job at SIGTERM by itself, together with its ranks.
                         .farewell = elastic::under_slurm() ? SIGUSR1 : SIGTERM};
  const auto next = [&](int slot) -> std::optional<Work> {
    const auto task = schedule_.next();
    if (!task) return std::nullopt;
    return work_of(*task, slot);
  };
  return run_farm(
      farm, next, [&](const Ended& ended) { note(under_way_[static_cast<std::size_t>(ended.id)], ended); }, asked);
}

std::vector<Result> Search::ranked() const {
  std::map<int, Result> last;
  for (const auto& result : results()) {
    if (result.task.trial > static_cast<int>(plan_.settings.size())) continue;
    const auto found = last.find(result.task.trial);
    if (found == last.end() || found->second.task.rung < result.task.rung) last[result.task.trial] = result;
  }
  std::vector<Result> list;
  for (auto& [trial, result] : last) list.push_back(result);
  std::stable_sort(list.begin(), list.end(), [&](const Result& a, const Result& b) {
    if (a.value.has_value() != b.value.has_value()) return a.value.has_value();
    if (!a.value) return false;
    if (a.task.resource != b.task.resource) return a.task.resource > b.task.resource;
    return space_.minimize ? *a.value < *b.value : *a.value > *b.value;
  });
  return list;
}

std::string Search::command_to_repeat(const Result& result) const {
  auto words = places_.launcher(0);
  const auto command = command_of(space_, setting(result.task.trial), result.task.resource, options_.out / "best");
  words.insert(words.end(), command.begin(), command.end());
  return fmt::format("OMP_NUM_THREADS={} {}", places_.threads(), shell_text(words));
}

}  // namespace mpigrad::hpo
