// The command `plan`: writes a recipe for `train`, made from the data.

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <map>

#include "framework/base/joined.h"
#include "framework/base/printable.h"
#include "framework/engine/activity.h"
#include "models/data/volumes/orientation.h"
#include "models/data/volumes/volumes.h"
#include "models/trainer/program/setting_keys.h"
#include "models/trainer/segmentation/findings.h"
#include "models/trainer/segmentation/plan/rules.h"
#include "models/trainer/tool/quantile.h"

namespace mpigrad::trainer::segmenting {

std::int64_t bytes_of_text(const std::string& text) {
  static const std::map<std::string, double> units{{"B", 1},        {"KiB", 0x1p10}, {"MiB", 0x1p20},
                                                   {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"kB", 1e3},
                                                   {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12}};
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || !(number > 0) || !(number < 1e9)) return 0;
  while (*end == ' ') ++end;
  const auto unit = units.find(end);
  return unit == units.end() ? 0 : static_cast<std::int64_t>(number * unit->second);
}

namespace {

constexpr std::int64_t most_samples = 400000;  // values of the foreground of a channel, in all volumes together

// Reads the data. UsageErrors: what no training can read.
AllFindings examined(const Communicator& world, const PlanOptions& o) {
  auto found = all_findings(world, o.data, o.source, o.trained, o.given.contains("labels.ignore"), o.workers, most_samples);
  const auto refuse = [&](const std::string& what) {
    throw UsageError(fmt::format("[plan] {}; `check` lists all problems", what));
  };
  const auto& cases = found.cases;
  if (cases.size() < 2) refuse(fmt::format("{} holds {} volumes; training and validation need one each", o.data, cases.size()));
  std::int64_t cells = 0;
  for (const auto& each : cases) {
    if (!each.read || !each.finite || each.labels.empty())
      refuse(each.problems.empty() ? fmt::format("{} has no labels", each.name) : each.problems.front());
    if (each.channels != cases.front().channels)
      refuse(fmt::format("{} has {} channels, {} has {}", each.name, each.channels, cases.front().name, cases.front().channels));
    cells += foreground_of(each.labels).cells;
  }
  if (cells == 0) refuse(fmt::format("no cell of {} has a label above 0", o.data));
  return found;
}

Fingerprint fingerprint_of(const PlanOptions& o, const AllFindings& found) {
  Fingerprint f{.channels = found.cases.front().channels};
  std::vector<double> nonzero;
  std::int64_t largest = 0;
  for (const auto& each : found.cases) {
    data::VolumeHeader header;
    header.extents = each.extents, header.spacing = each.spacing;
    const bool turns = !o.trained.orientation.empty() && !each.orientation.empty();
    if (turns) header = data::turned(header, data::turn_between(each.orientation, o.trained.orientation));
    f.spaced = f.spaced && header.spacing[0] > 0;
    f.extents.push_back(header.extents), f.spacings.push_back(header.spacing);
    nonzero.push_back(each.nonzero);
    if (!each.labels.empty()) largest = std::max(largest, each.labels.rbegin()->first);
  }
  if (!f.spaced) f.spacings.assign(f.extents.size(), {1, 1, 1});
  f.nonzero = tool::median(nonzero);
  f.classes = o.trained.problem.outputs > 0                              ? o.trained.problem.outputs
              : o.trained.label_map.empty() && found.dataset.classes > 1 ? found.dataset.classes
                                                                         : largest + 1;
  for (std::size_t c = 0; c < static_cast<std::size_t>(f.channels); ++c) {
    double volumes = 0, mean = 0, squares = 0;
    std::vector<double> samples;
    for (const auto& each : found.cases) {
      const auto g = foreground_of(each.labels);
      if (g.cells == 0) continue;
      ++volumes, mean += g.means[c], squares += g.variances[c] + g.means[c] * g.means[c];
      samples.insert(samples.end(), each.samples[c].begin(), each.samples[c].end());
    }
    mean /= volumes;
    const double variance = std::max(0.0, squares / volumes - mean * mean);
    f.intensities.push_back({tool::quantile(samples, 0.005), tool::quantile(samples, 0.995), mean, std::sqrt(variance)});
  }
  return f;
}

// True for channels that are CT.
std::vector<bool> scanners_with_a_scale(const PlanOptions& o, const AllFindings& found, std::int64_t channels) {
  const auto& names = o.modalities.empty() ? found.dataset.modalities : o.modalities;
  if (!names.empty() && static_cast<std::int64_t>(names.size()) != channels)
    throw UsageError(fmt::format("[plan] {} modalities for {} channels: {}", names.size(), channels, joined(names, ", ")));
  std::vector<bool> result(static_cast<std::size_t>(channels));
  for (std::size_t c = 0; c < names.size(); ++c) {
    auto name = names[c];
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char x) { return std::tolower(x); });
    result[c] = name == "ct";
  }
  return result;
}

// A recipe in the making: keys with values and comments.
class Recipe {
 public:
  Recipe(const SegmentationProgram& program, PlanOptions& o) : o_(o) {
    const auto values = o.trained.problem.values;
    const auto outputs = o.trained.problem.outputs;
    add_train_keys(keys_, program, o);
    // Keys refer to the settings' values: each is assigned by itself, and none moves.
    for (const auto& [name, value] : values) o.trained.problem.values.at(name) = value;
    o.trained.problem.outputs = outputs;
    for (const auto& key : keys_.all())
      if (o.given.contains(key.name)) lines_[key.name] = "given";
  }
  // Sets the key, unless it was given.
  void set(const std::string& name, const std::vector<std::string>& values, const std::string& comment) {
    if (o_.given.contains(name)) return;
    keys_.set(name, values, "[plan] ");
    o_.given.insert(name);
    lines_[name] = comment;
  }
  // The key has its value already.
  void show(const std::string& name, const std::string& comment) {
    if (!lines_.contains(name)) lines_[name] = comment;
  }
  std::string text() {
    std::vector<std::pair<std::string, std::string>> sections{{"", ""}};  // in the order of their first keys
    for (const auto& key : keys_.all()) {
      const auto line = lines_.find(key.name);
      if (line == lines_.end()) continue;
      auto at = std::find_if(sections.begin(), sections.end(), [&](const auto& each) { return each.first == key.section(); });
      if (at == sections.end()) at = sections.insert(sections.end(), {key.section(), fmt::format("\n[{}]\n", key.section())});
      if (!line->second.empty()) at->second += fmt::format("# {}\n", line->second);
      at->second += fmt::format("{} = {}\n", key.name.substr(key.name.rfind('.') + 1), keys_.value(key.name));
    }
    std::string text;
    for (const auto& [section, lines] : sections) text += lines;
    return text;
  }

 private:
  PlanOptions& o_;
  Keys keys_;
  std::map<std::string, std::string> lines_;  // comments of the keys of the recipe
};

std::vector<std::string> texts(const auto& numbers) {
  std::vector<std::string> result;
  for (const auto& x : numbers) result.push_back(fmt::format("{}", x));
  return result;
}

// Rounded to six digits.
double rounded(double x) { return std::strtod(fmt::format("{:.6g}", x).c_str(), nullptr); }

std::string by_axis(const auto& numbers) {
  std::vector<std::string> parts;
  for (const auto x : numbers) parts.push_back(fmt::format("{:.4g}", static_cast<double>(x)));
  return joined(parts, " x ");
}

std::string range_of(const Fingerprint& f, std::size_t axis) {
  auto least = f.extents.front()[static_cast<int>(axis)], most = least;
  for (const auto& e : f.extents)
    least = std::min(least, e[static_cast<int>(axis)]), most = std::max(most, e[static_cast<int>(axis)]);
  return least == most ? fmt::format("{}", least) : fmt::format("({} to {})", least, most);
}

// Keys that do not depend on the network's size: normalisation, loss, optimizer.
void set_training(Recipe& recipe, const PlanOptions& o, const Fingerprint& f, const std::vector<bool>& scaled) {
  const bool any = std::find(scaled.begin(), scaled.end(), true) != scaled.end();
  if (any) {
    std::vector<double> numbers;
    for (std::size_t c = 0; c < scaled.size(); ++c) {
      const auto& [low, high, mean, deviation] = f.intensities[c];
      const bool own = !scaled[c] || !(deviation > 0);
      for (const double x : {low, high, mean, deviation}) numbers.push_back(own ? 0 : rounded(x));
    }
    recipe.set("data.normalise", {"ct"}, "by the intensities of the foreground of all volumes, because the data are CT");
    if (o.trained.normalisation == "ct")
      recipe.set("data.intensities", texts(numbers), "0.5 and 99.5 percentiles, mean and deviation; zeros: normalised by volume");
  } else {
    const bool cropped = f.nonzero < 0.75;
    recipe.set("data.normalise", {cropped ? "nonzero" : "whole"},
               fmt::format("a box around the cells that are not 0 has {:.0f} % of the median volume", 100 * f.nonzero));
  }
  recipe.set("data.augment", {"nnunet"},
             "nnU-Net's changes of windows, mirrors among them: leave out flip where sides are classes");
  recipe.set("loss.background", {"false"}, "the overlap is of the classes above 0; the cross-entropy is of all");
  if (o.given.contains("optimizer.name")) return;
  recipe.set("optimizer.name", {"sgd"},
             "nnU-Net's optimizer. Its loss is a sum where this one is a mean of two: twice its rate of 0.01");
  recipe.set("optimizer.learning_rate", {"0.02"}, "");
  recipe.set("optimizer.momentum", {"0.99"}, "");
  recipe.set("optimizer.nesterov", {"true"}, "");
  recipe.set("optimizer.weight_decay", {"1.5e-05"}, "");
  recipe.set("optimizer.clip_norm", {"6"}, "");
  if (!o.given.contains("schedule.shape")) {
    recipe.set("schedule.shape", {"polynomial"}, "(1 - step / steps)^0.9");
    recipe.show("schedule.power", "");
  }
}

}  // namespace

int plan(const Communicator& world, const SegmentationProgram& program, PlanOptions o) {
  if (o.data.empty()) throw UsageError("plan needs the data: a folder or a file");
  if (!program.planned) throw UsageError(fmt::format("{} has no plans: its network has no levels to choose", program.name));
  const auto grid = parse_grid(o.grid, 1, Channels::split);
  take_regions(o);
  if (o.given.contains("data.window")) o.trained.problem.extents = window_of(o.window);
  if (o.given.contains("data.intensities")) throw UsageError("data.intensities: the plan measures them");
  if (o.orientation != "stored") o.trained.orientation = o.orientation;
  std::optional<Spacing> spacing;
  if (o.spacing.size() == 1) o.spacing.resize(3, o.spacing.front());
  if (o.spacing.size() == 3) spacing = {o.spacing[0], o.spacing[1], o.spacing[2]};
  else if (!o.spacing.empty()) throw UsageError("data.spacing is one number or three, D,H,W");
  trainer::together(world, [&] {
    std::error_code none;
    if (world.rank() == 0 && !o.overwrite && std::filesystem::exists(o.file, none))
      throw UsageError(fmt::format("{} exists; --overwrite replaces it", o.file));
  });
  const detail::SlowPhase phase;  // ranks wait for the one with the slowest files
  const auto start = std::chrono::steady_clock::now();
  const auto found = examined(world, o);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::string text;
  trainer::together(world, [&] {
    if (world.rank() != 0) return;
    for (const auto& problem : found.problems) fmt::print(stderr, "warning: {}\n", problem);
    const auto f = fingerprint_of(o, found);
    if (o.trained.regions.empty() && o.trained.label_map.empty() && !found.dataset.regions.empty())
      o.trained.regions = regions_of(found.dataset.regions, found.dataset.region_order);
    Recipe recipe(program, o);
    const auto scaled = scanners_with_a_scale(o, found, f.channels);
    set_training(recipe, o, f, scaled);

    // Each rank keeps volumes in memory, at the spacing of the training, and their labels.
    const auto target = spacing ? *spacing : target_spacing(f);
    double kept = 0;
    for (std::size_t i = 0; i < f.extents.size(); ++i) {
      double cells = 4 * static_cast<double>(f.channels) + 4;
      for (std::size_t a = 0; a < 3; ++a)
        cells *= static_cast<double>(f.extents[i][static_cast<int>(a)]) * f.spacings[i][a] / target[a];
      kept += cells;
    }
    const auto volumes = static_cast<std::int64_t>(std::min(kept, static_cast<double>(data::volumes_in_memory)));
    auto problem = o.trained.problem;
    problem.channels = f.channels;
    problem.outputs = o.trained.regions.empty() ? f.classes : static_cast<std::int64_t>(o.trained.regions.size());
    const auto before = problem.values;
    Description step;
    const auto bytes = [&](const Shape& window, const NetworkPlan& network, std::int64_t batch) {
      problem.extents = window, problem.values = before;
      program.planned(problem.values, network);
      if (program.complete) program.complete(problem.values);
      auto options = o;
      options.batch = batch, options.given.insert("schedule.batch");
      step = step_of(program, options, problem, grid);
      return step.peak_bytes + volumes;
    };
    const std::int64_t groups = grid.sample * o.training.fit.accumulate;
    PlanRules rules{.bytes = bytes,
                    .most_bytes = bytes_of_text(o.memory),
                    .filters = o.filters,
                    .least_batch = (std::max<std::int64_t>(2, groups) + groups - 1) / groups * groups,
                    .batch_step = groups,
                    .spacing = spacing};
    if (o.given.contains("data.window")) rules.window = o.trained.problem.extents;
    if (o.given.contains("schedule.batch")) rules.batch = o.batch;
    Plan plan;
    try {
      plan = plan_of(f, rules);
      bytes(plan.window, plan.network, plan.batch);
    } catch (const UsageError&) {
      throw;
    } catch (const Error& error) {
      throw UsageError(error.what());
    }

    // What the plan sets.
    problem.values = before;
    program.planned(problem.values, plan.network);
    for (const auto& setting : program.settings)
      if (const auto& value = problem.values.at(setting.name); value != before.at(setting.name)) {
        if (o.given.contains(key_of(setting)))
          throw UsageError(fmt::format("{} is chosen by the plan: change it in the recipe", key_of(setting)));
        o.trained.problem.values.at(setting.name) = value;
        recipe.show(key_of(setting), "");
      }
    recipe.show("data.path", "");
    if (f.spaced)
      recipe.set("data.spacing", texts(std::vector{rounded(plan.spacing[0]), rounded(plan.spacing[1]), rounded(plan.spacing[2])}),
                 fmt::format("the median volume has {} cells of this spacing", by_axis(plan.median)));
    recipe.set("data.window", texts(plan.window),
               fmt::format("{:.0f} % of the cells of the median volume", 100 * static_cast<double>(plan.window.elements()) /
                                                                             (plan.median[0] * plan.median[1] * plan.median[2])));
    const double windows = plan.median[0] * plan.median[1] * plan.median[2] / static_cast<double>(plan.window.elements());
    recipe.set("data.windows_per_volume", texts(std::vector{std::max(std::llround(windows), 1LL)}),
               "of each volume in an epoch, for as many cells as it has");
    recipe.set("loss.batch_dice", {plan.batch_dice && o.training.fit.accumulate == 1 ? "true" : "false"},
               "true if a window has less than a quarter of the cells of the median volume, in batches of one part");
    recipe.set("schedule.batch", texts(std::vector{plan.batch}), "at most 5 % of all cells, at least 2");
    const double kept_part = o.division.folds > 0 ? 1 / static_cast<double>(o.division.folds) : o.division.fraction;
    recipe.show("schedule.epochs", fmt::format("{} volumes, {} of them for validation", f.extents.size(),
                                               std::llround(kept_part * static_cast<double>(f.extents.size()))));
    std::string head = fmt::format("# A plan for {} volumes of {} x {} x {} cells [z, y, x], {} channels, {} {}.\n",
                                   f.extents.size(), range_of(f, 0), range_of(f, 1), range_of(f, 2), f.channels, problem.outputs,
                                   o.trained.regions.empty() ? "classes" : "regions");
    head +=
        fmt::format("# A training step needs {} on a rank (of {}), and the volumes that it keeps {}: {} of {}.\n",
                    readable_bytes(step.peak_bytes), step.ranks, readable_bytes(volumes), readable_bytes(plan.bytes), o.memory);
    head += fmt::format("# {} parameters, {:.4g} GFLOP forward for a batch.\n", step.parameters, step.forward_gflop);
    head += fmt::format("# Foreground of each channel: 0.5 and 99.5 percentiles, mean, deviation:{}\n", [&] {
      std::string numbers;
      for (const auto& [low, high, mean, deviation] : f.intensities)
        numbers += fmt::format(" ({:.4g}, {:.4g}, {:.4g}, {:.4g})", low, high, mean, deviation);
      return numbers;
    }());
    tool::write_text(o.file, head + fmt::format("program = \"{}\"\ncommand = \"train\"\n", program.name) + recipe.text());
    if (o.json)
      text = tool::to_text({{"recipe", o.file},
                            {"volumes", f.extents.size()},
                            {"spacing", plan.spacing},
                            {"median", plan.median},
                            {"window", std::vector<std::int64_t>(plan.window.begin(), plan.window.end())},
                            {"levels", plan.network.strides.size()},
                            {"strides", plan.network.strides},
                            {"kernels", plan.network.kernels},
                            {"filters", plan.network.filters},
                            {"batch", plan.batch},
                            {"step_bytes", step.peak_bytes},
                            {"volume_bytes", volumes},
                            {"parameters", step.parameters},
                            {"seconds_of_reading", seconds}}) +
             "\n";
    else
      text = fmt::format(
          "{}: {} volumes read in {:.1f} s; spacing {} mm, median volume {} cells, window {}, {} levels, batch {}\n"
          "a step needs {} on a rank (of {}), the volumes that it keeps {}; {:.4g} GFLOP forward, {} parameters\n",
          o.file, f.extents.size(), seconds, by_axis(plan.spacing), by_axis(plan.median), by_axis(plan.window),
          plan.network.strides.size(), plan.batch, readable_bytes(step.peak_bytes), step.ranks, readable_bytes(volumes),
          step.forward_gflop, step.parameters);
  });
  tool::print_once(world.transport(), text);
  return 0;
}

}  // namespace mpigrad::trainer::segmenting
