#include "examples/studies/hpo/report.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "framework/base/joined.h"
#include "models/trainer/plot/figure.h"
#include "models/trainer/run.h"
#include "models/trainer/tool/command_line.h"

namespace mpigrad::hpo {
namespace {

using Json = nlohmann::ordered_json;

std::string seconds_text(double seconds) {
  return seconds < 600 ? fmt::format("{:.1f} s", seconds) : fmt::format("{:.1f} min", seconds / 60);
}

// "27 trials: 25 done, 2 crashed"
std::string counts(const std::vector<Result>& ranked) {
  std::map<std::string, int> numbers;
  for (const auto& result : ranked) ++numbers[result.status];
  std::vector<std::string> parts;
  for (const auto* status : {done, crashed, diverged, hung})
    if (numbers[status] > 0) parts.push_back(fmt::format("{} {}", numbers[status], status));
  return fmt::format("{} trial{}: {}", ranked.size(), ranked.size() == 1 ? "" : "s", joined(parts, ", "));
}

// Seconds in all rungs of a trial.
std::map<int, double> seconds_of_trials(const Search& search) {
  std::map<int, double> sums;
  for (const auto& result : search.results()) sums[result.task.trial] += result.seconds;
  return sums;
}

// The best result with a value, or null.
const Result* best_of(const std::vector<Result>& ranked) { return ranked.empty() || !ranked[0].value ? nullptr : &ranked[0]; }

// A dot for each point, because panels of curves have no dots without lines and may have logarithmic axes.
void add_dots(plot::Lines& panel, const std::vector<double>& x, const std::vector<double>& y, const plot::Colour& colour) {
  for (std::size_t i = 0; i < x.size(); ++i) panel.series.push_back({.x = {x[i]}, .y = {y[i]}, .colour = colour});
}

bool spans_decades(const std::vector<double>& y) {
  if (y.empty()) return false;
  const auto [low, high] = std::minmax_element(y.begin(), y.end());
  return *low > 0 && *high > 30 * *low;
}

plot::Lines over_time(const Search& search) {
  std::vector<Result> results = search.results();
  std::stable_sort(results.begin(), results.end(), [](const Result& a, const Result& b) { return a.at < b.at; });
  std::vector<double> x, y, when, best;
  for (const auto& result : results) {
    if (!result.value) continue;
    const double minutes = result.at / 60, value = *result.value;
    x.push_back(minutes), y.push_back(value);
    if (!best.empty()) when.push_back(minutes), best.push_back(best.back());
    const bool better = best.empty() || (search.space().minimize ? value < best.back() : value > best.back());
    if (better) when.push_back(minutes), best.push_back(value);
  }
  plot::Lines panel{
      .title = "the best so far", .x_label = "minutes", .y_label = search.space().metric, .log_y = spans_decades(y)};
  add_dots(panel, x, y, plot::series_colour(0));
  panel.series.push_back({.x = when, .y = best, .colour = plot::series_colour(1)});
  return panel;
}

plot::Lines against(const Search& search, const std::vector<Result>& ranked, std::size_t place) {
  const auto& parameter = search.space().parameters[place];
  std::vector<std::string> names = parameter.values;
  std::vector<double> x, y;
  for (const auto& result : ranked) {
    if (!result.value || result.task.resource != ranked[0].task.resource) continue;
    const auto& text = search.setting(result.task.trial)[place];
    x.push_back(parameter.numeric ? std::strtod(text.c_str(), nullptr)
                                  : static_cast<double>(std::find(names.begin(), names.end(), text) - names.begin()));
    y.push_back(*result.value);
  }
  std::string label;
  if (!parameter.numeric)
    for (std::size_t i = 0; i < names.size(); ++i) label += fmt::format("{}{}: {}", i == 0 ? "" : ", ", i, names[i]);
  plot::Lines panel{.title = parameter.name,
                    .x_label = label,
                    .log_x = parameter.numeric && (parameter.log || spans_decades(x)),
                    .log_y = spans_decades(y)};
  add_dots(panel, x, y, plot::series_colour(0));
  if (!x.empty()) add_dots(panel, {x[0]}, {y[0]}, plot::series_colour(1));  // the best, on top
  return panel;
}

Json setting_json(const Search& search, int trial) {
  Json result = Json::object();
  const auto& setting = search.setting(trial);
  for (std::size_t i = 0; i < setting.size(); ++i) {
    const auto& parameter = search.space().parameters[i];
    if (parameter.flag) result[parameter.name] = setting[i] == "true";
    else if (parameter.numeric) result[parameter.name] = Json::parse(setting[i], nullptr, false);
    else result[parameter.name] = setting[i];
  }
  return result;
}

}  // namespace

std::string table_of(const Search& search) {
  const auto ranked = search.ranked();
  const auto& space = search.space();
  const auto seconds = seconds_of_trials(search);
  std::vector<std::vector<std::string>> rows(1, {"rank", "trial", space.metric, "seconds"});
  if (!space.resource.empty()) rows[0].push_back(space.resource);
  for (const auto& parameter : space.parameters) rows[0].push_back(parameter.name);
  for (const auto& result : ranked) {
    if (!result.value) continue;
    rows.push_back({std::to_string(rows.size()), std::to_string(result.task.trial), fmt::format("{:.6g}", *result.value),
                    fmt::format("{:.1f}", seconds.at(result.task.trial))});
    if (!space.resource.empty()) rows.back().push_back(std::to_string(result.task.resource));
    for (const auto& value : search.setting(result.task.trial)) rows.back().push_back(value);
  }
  std::string text =
      fmt::format("{}; {} with {} at a time, each of {} rank{} of {} thread{}\n", counts(ranked), seconds_text(search.seconds()),
                  search.places().slots(), search.places().ranks(), search.places().ranks() == 1 ? "" : "s",
                  search.places().threads(), search.places().threads() == 1 ? "" : "s");
  std::vector<std::size_t> widths(rows[0].size());
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  for (const auto& row : rows) {
    if (rows.size() == 1) break;
    for (std::size_t i = 0; i < row.size(); ++i) text += fmt::format("{}{:>{}}", i > 0 ? "  " : "", row[i], widths[i]);
    text += '\n';
  }
  for (const auto& result : ranked)
    if (!result.value)
      text += fmt::format("trial {} {} ({}): {}\n", result.task.trial, result.status,
                          text_of(space, search.setting(result.task.trial)), result.reason);
  if (const auto* best = best_of(ranked))
    text += fmt::format("To train the best again:\n  {}\n", search.command_to_repeat(*best));
  return text;
}

Json to_json(const Search& search) {
  const auto ranked = search.ranked();
  const auto& space = search.space();
  const auto seconds = seconds_of_trials(search);
  Json document{{"program", "hpo"},
                {"space", space.name},
                {"metric", space.metric},
                {"goal", space.minimize ? "min" : "max"},
                {"trials_at_a_time", search.places().slots()},
                {"ranks_per_trial", search.places().ranks()},
                {"threads_per_rank", search.places().threads()},
                {"seconds", search.seconds()},
                {"best", nullptr}};
  if (const auto* best = best_of(ranked))
    document["best"] = {{"trial", best->task.trial},
                        {"value", *best->value},
                        {"parameters", setting_json(search, best->task.trial)},
                        {"command", search.command_to_repeat(*best)}};
  for (const auto* status : {done, crashed, diverged, hung})
    document[status] = std::count_if(ranked.begin(), ranked.end(), [&](const Result& each) { return each.status == status; });
  auto& brackets = document["brackets"] = Json::array();
  for (const auto& bracket : search.plan().brackets) {
    Json rungs = Json::array();
    for (const auto& rung : bracket.rungs)
      rungs.push_back({{"trials", rung.trials}, {"resource", rung.resource > 0 ? Json(rung.resource) : Json()}});
    brackets.push_back(rungs);
  }
  auto& trials = document["trials"] = Json::array();
  for (const auto& result : ranked) {
    Json trial{{"trial", result.task.trial}, {"parameters", setting_json(search, result.task.trial)}, {"status", result.status}};
    trial["value"] = result.value ? Json(*result.value) : Json();
    if (!space.resource.empty()) trial["resource"] = result.task.resource;
    trial["seconds"] = seconds.at(result.task.trial);
    if (!result.reason.empty()) trial["reason"] = result.reason;
    trials.push_back(trial);
  }
  return document;
}

void write_files(const Search& search) {
  trainer::write_text(search.out() / "hpo.json", tool::to_text(to_json(search)) + "\n");
  const auto ranked = search.ranked();
  if (!best_of(ranked)) return;
  std::vector<plot::Panel> panels{over_time(search)};
  for (std::size_t i = 0; i < search.space().parameters.size(); ++i) panels.emplace_back(against(search, ranked, i));
  plot::Figure figure(fmt::format("{}: {}", std::filesystem::path(search.space().name).filename().string(), counts(ranked)));
  const auto rows = (panels.size() + 2) / 3, wide = (panels.size() + rows - 1) / rows;
  for (std::size_t begin = 0; begin < panels.size(); begin += wide)
    figure.row(340, {panels.begin() + static_cast<std::ptrdiff_t>(begin),
                     panels.begin() + static_cast<std::ptrdiff_t>(std::min(begin + wide, panels.size()))});
  figure.save(search.out() / "hpo.png", true);
}

}  // namespace mpigrad::hpo
