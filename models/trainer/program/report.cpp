// What the commands write and print.

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "framework/base/joined.h"
#include "models/train/metrics.h"
#include "models/trainer/folder/names.h"
#include "models/trainer/program/program.h"
#include "models/trainer/slices.h"

namespace mpigrad::trainer::program {
namespace {

std::string picture_file(const Program& program) { return program.name + ".png"; }

// The i-th target and the i-th output.
std::string target_name(const Problem& p, std::size_t i) {
  return i < p.targets.size() ? p.targets[i] : fmt::format("target {}", i);
}
std::string output_name(const Problem& p, std::size_t i) {
  return p.classes ? fmt::format("class {}", i) : target_name(p, i) + "_predicted";
}

void write_predictions(const std::filesystem::path& path, const Results& r) {
  const auto& p = r.predictions;
  const auto outputs = static_cast<std::size_t>(p.outputs), targets = static_cast<std::size_t>(r.scored ? p.targets : 0);
  std::vector<std::string> columns{"sample"};
  for (std::size_t t = 0; t < targets; ++t) columns.push_back(target_name(r.problem, t) + "_true");
  for (std::size_t i = 0; i < outputs; ++i) columns.push_back(output_name(r.problem, i));
  CsvWriter csv(path, columns, true);
  for (std::size_t n = 0; n < p.samples.size(); ++n) {
    std::vector<CsvCell> row{r.source.name_of_sample(p.samples[n])};
    for (std::size_t t = 0; t < targets; ++t) row.emplace_back(p.truth[n * targets + t]);
    for (std::size_t i = 0; i < outputs; ++i) row.emplace_back(p.predicted[n * outputs + i]);
    csv.row(row);
  }
}

void print_predictions(const Results& r) {
  const auto& p = r.predictions;
  const auto outputs = static_cast<std::size_t>(p.outputs), shown = std::min(p.samples.size(), most_rows);
  for (std::size_t n = 0; n < shown; ++n) {
    for (std::size_t i = 0; i < outputs; ++i) fmt::print("{:>11.4g} ", p.predicted[n * outputs + i]);
    fmt::print("  {}\n", std::filesystem::path(r.source.name_of_sample(p.samples[n])).filename().string());
  }
  if (p.samples.size() > shown) fmt::print("and {} more in {}\n", p.samples.size() - shown, predictions_file);
}

// Curves of the training, and what is predicted beside what is true.
void draw(const std::filesystem::path& path, const Program& program, const Results& r) {
  constexpr int height = 320;
  constexpr std::size_t most = 4;
  plot::Figure figure(program.name);
  if (!r.epochs.empty()) {
    struct Point {
      std::int64_t epoch;
      const EpochRow* row;
    };
    std::vector<Point> points;
    for (const auto& row : r.epochs) points.push_back({row.report.epoch, &row});
    const auto value = [&](const std::string& label, std::size_t i) {
      return curve(label, points, [i](const Point& p) { return p.row->values[i]; });
    };
    std::vector<plot::Panel> panels{plot::Lines{
        .title = "loss",
        .x_label = "epoch",
        .series = {curve("training", points, [](const Point& p) { return p.row->report.loss; }), value("validation", 0)}}};
    for (std::size_t i = 0; i < std::min(program.metrics.size(), most - 1); ++i)
      panels.emplace_back(plot::Lines{.title = program.metrics[i].name, .x_label = "epoch", .series = {value("", i + 1)}});
    figure.row(height, std::move(panels));
  }
  const auto& p = r.predictions;
  std::vector<plot::Panel> panels;
  const auto outputs = static_cast<std::size_t>(p.outputs);
  for (std::size_t t = 0; r.scored && p.outputs == p.targets && !r.problem.classes && t < std::min(outputs, most); ++t) {
    plot::Series points;
    for (auto i = t; i < p.predicted.size(); i += outputs) points.x.push_back(p.truth[i]), points.y.push_back(p.predicted[i]);
    panels.emplace_back(
        plot::Scatter{.title = target_name(r.problem, t), .x_label = "true", .y_label = "predicted", .series = {points}});
  }
  for (std::size_t n = 0; panels.empty() && n < std::min(p.samples.size(), most); ++n)
    panels.emplace_back(slice(r.source, p.samples[n], 0, fmt::format("{:.3g}", p.predicted[n * outputs])));
  figure.row(height, std::move(panels));
  if (program.draw) program.draw(figure, r);
  figure.save(path, true);
}

}  // namespace

std::vector<std::string> files_of(const Program& program) { return {predictions_file, summary_file, picture_file(program)}; }

void report(const Program& program, const trainer::Options& o, const Outputs& out, const Results& r, nlohmann::ordered_json run,
            const std::vector<std::string>& files, const std::string& text) {
  write_predictions(out / predictions_file, r);
  if (plot::available()) draw(out / picture_file(program), program, r);
  const auto number = [](double x) { return std::isfinite(x) ? nlohmann::ordered_json(x) : nlohmann::ordered_json(); };
  run["problem"] = nlohmann::ordered_json::parse(to_note(r.problem));
  for (const auto& [name, value] : r.values) run["validation"][name] = number(value);
  for (const auto& row : r.epochs) {
    nlohmann::ordered_json epoch{{"epoch", row.report.epoch + 1}, {"train_loss", row.report.loss}};
    const auto names = value_names(program);
    for (std::size_t i = 0; i < names.size(); ++i) epoch[names[i]] = number(row.values[i]);
    run["epochs"].push_back(std::move(epoch));
  }
  run["out"] = out.folder();
  write_text(out / summary_file, tool::to_text(run) + "\n");
  if (o.json) return fmt::print("{}\n", tool::to_text(run));
  std::vector<std::string> values;
  for (const auto& name : value_names(program))
    if (const auto found = r.values.find(name); found != r.values.end())
      values.push_back(fmt::format("{} {:.9g}", name, found->second));
  if (r.scored) fmt::print("\n{}\n", joined(values, ", "));
  else print_predictions(r);
  fmt::print("{}\nwritten to {}: {}\n", text, out.folder(), joined(out.written(files), ", "));
}

}  // namespace mpigrad::trainer::program
