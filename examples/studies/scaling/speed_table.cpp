#include "examples/studies/scaling/speed_table.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "framework/base/joined.h"
#include "models/nn/describe.h"
#include "models/trainer/plot/figure.h"
#include "models/trainer/run.h"
#include "models/trainer/tool/command_line.h"
#include "models/trainer/tool/quantile.h"

namespace mpigrad::scaling {
namespace {

namespace fs = std::filesystem;
using tool::median;
using Json = nlohmann::ordered_json;

const double none = std::nan("");

// The results of a grid's runs; NaN if unknown.
struct Row {
  const Measured* measured = nullptr;
  double rate = none, spread = none, milliseconds = none;  // samples per second; (largest - smallest) / median; per step
  double speed_up = none, efficiency = none;
  double exposed = none, waiting = none;  // fractions of a step
};

std::vector<Row> rows_of(const SpeedStudy& study) {
  std::vector<Row> rows;
  for (const auto& m : study.grids) {
    Row row{.measured = &m};
    if (m.failure.empty() && !m.rates.empty()) {
      row.rate = median(m.rates), row.waiting = median(m.waiting);
      row.milliseconds = 1e3 * static_cast<double>(m.batch) / row.rate;
      const auto [low, high] = std::minmax_element(m.rates.begin(), m.rates.end());
      if (m.rates.size() > 1) row.spread = (*high - *low) / row.rate;
      // Times of a sample are inverse rates. Because of noise the run that exchanges more may be faster.
      if (m.ranks == 1) row.exposed = 0;
      else if (const double silent = median(m.silent_rates); silent > 0 && m.silent_failure.empty())
        row.exposed = std::max(0.0, 1 - row.rate / silent);
    }
    rows.push_back(row);
  }
  const auto& first = rows.front();
  for (auto& row : rows) {
    row.speed_up = row.rate / first.rate * first.measured->ranks;
    row.efficiency = row.speed_up / row.measured->ranks;
  }
  return rows;
}

Json to_json(const SpeedStudy& s, const std::vector<Row>& rows) {
  const auto number = [](double x) { return std::isfinite(x) ? Json(x) : Json(); };
  Json list = Json::array();
  for (const auto& row : rows) {
    const auto& m = *row.measured;
    list.push_back({{"grid", m.grid},
                    {"ranks", m.ranks},
                    {"batch", m.batch},
                    {"samples_per_second", number(row.rate)},
                    {"runs", m.rates},
                    {"runs_without_communication", m.silent_rates},
                    {"spread", number(row.spread)},
                    {"milliseconds_per_step", number(row.milliseconds)},
                    {"parallel_speed_up", number(row.speed_up)},
                    {"efficiency", number(row.efficiency)},
                    {"exposed_communication", number(row.exposed)},
                    {"waiting_for_data", number(row.waiting)},
                    {"shortest_training_seconds", m.rates.empty() ? Json() : Json(m.seconds)},
                    {"peak_bytes_per_rank", m.bytes > 0 ? Json(m.bytes) : Json()},
                    {"failure", m.failure.empty() ? Json() : Json(m.failure)},
                    {"failure_without_communication", m.silent_failure.empty() ? Json() : Json(m.silent_failure)}});
  }
  return {{"kind", "speed"},      {"headline", fmt::format("Speed: {}, {} scaling", s.name, s.mode)},
          {"name", s.name},       {"mode", s.mode},
          {"command", s.command}, {"repeats", s.repeats},
          {"threads", s.threads}, {"interrupted", s.interrupted},
          {"results", list}};
}

std::string number_text(double x, const char* format) { return std::isfinite(x) ? fmt::format(fmt::runtime(format), x) : "-"; }

const std::vector<std::string> header{"grid",     "ranks",      "batch",     "samples/s", "spread %", "ms/step",
                                      "speed-up", "efficiency", "exposed %", "waiting %", "memory"};

std::vector<std::string> cells_of(const Row& row) {
  const auto& m = *row.measured;
  return {m.grid,
          fmt::format("{}", m.ranks),
          fmt::format("{}", m.batch),
          m.failure.empty() ? number_text(row.rate, "{:.4g}") : std::string("failed"),
          number_text(100 * row.spread, "{:.1f}"),
          number_text(row.milliseconds, "{:.4g}"),
          number_text(row.speed_up, "{:.2f}"),
          number_text(row.efficiency, "{:.3f}"),
          number_text(100 * row.exposed, "{:.1f}"),
          number_text(100 * row.waiting, "{:.1f}"),
          m.bytes > 0 && m.failure.empty() ? readable_bytes(m.bytes) : std::string("-")};
}

std::string notes_of(const SpeedStudy& s, const std::vector<Row>& rows) {
  const auto& first = rows.front();
  std::string text;
  for (const auto& m : s.grids)
    if (!m.silent_failure.empty()) text += fmt::format("{} without communication: {}\n", m.grid, m.silent_failure);
  if (s.interrupted) text += "ended by a signal: runs are missing\n";
  if (std::isfinite(first.rate))
    text += fmt::format("speed-up: samples per second over those of {}, times its {} rank{}; efficiency: that over the ranks\n",
                        first.measured->grid, first.measured->ranks, first.measured->ranks == 1 ? "" : "s");
  else text += fmt::format("{}, which speed-ups are against, was not measured: there are none\n", first.measured->grid);
  text += s.mode == "weak" ? "weak scaling: the batch grows with the ranks\n" : "strong scaling: all grids have the same batch\n";
  text += s.repeats == 1
              ? std::string("one run of each\n")
              : fmt::format("medians of {} runs, of which spread is the largest less the smallest over the median\n", s.repeats);
  const bool exposed =
      std::any_of(rows.begin(), rows.end(), [](const Row& r) { return r.measured->ranks > 1 && std::isfinite(r.exposed); });
  if (!s.never_silent.empty()) text += fmt::format("exposed communication is not available: {}\n", s.never_silent);
  else if (exposed)
    text +=
        "exposed: the part of a step that is saved where ranks exchange nothing (--communication none); waiting for slower ranks "
        "is "
        "part of it; 0 where noise would make it less\n";
  double shortest = INFINITY;
  int most = 0;
  for (const auto& row : rows) {
    if (!std::isfinite(row.rate)) continue;
    shortest = std::min(shortest, row.measured->seconds);
    most = std::max(most, row.measured->ranks);
  }
  if (shortest < 2)
    text += fmt::format(
        "the shortest training took {:.2g} s: with more --epochs there is less noise, and less of the first step\n", shortest);
  if (s.cores_here > 0 && most * s.threads > s.cores_here)
    text += fmt::format("this machine has {} core{} for all ranks: those of more than {} share them, and speed-up ends there\n",
                        s.cores_here, s.cores_here == 1 ? "" : "s", std::max<std::int64_t>(1, s.cores_here / s.threads));
  return text;
}

// One series for each way of splitting; all start with the point of one rank.
std::vector<plot::Series> series_of(const std::vector<Row>& rows, double Row::*value, double factor) {
  std::vector<plot::Series> list;
  const auto add = [&](plot::Series& series, const Row& row) {
    if (std::isfinite(row.*value)) series.x.push_back(row.measured->ranks), series.y.push_back(factor * row.*value);
  };
  std::vector<std::string> ways;
  for (const auto& row : rows)
    if (std::isfinite(row.rate) && !row.measured->way.empty() &&
        std::find(ways.begin(), ways.end(), row.measured->way) == ways.end())
      ways.push_back(row.measured->way);
  if (ways.empty()) ways.emplace_back();  // only one rank
  auto ascending = rows;
  std::stable_sort(ascending.begin(), ascending.end(),
                   [](const Row& a, const Row& b) { return a.measured->ranks < b.measured->ranks; });
  for (const auto& way : ways) {
    plot::Series series{.label = way.empty() ? "one rank" : way};
    for (const auto& row : ascending)
      if (row.measured->way == way || row.measured->way.empty()) add(series, row);
    list.push_back(std::move(series));
  }
  return list;
}

void draw(const fs::path& path, const SpeedStudy& s, const std::vector<Row>& rows) {
  plot::Series ideal{.label = "ideal"};
  for (const auto& row : rows)
    if (std::isfinite(row.rate)) ideal.x.push_back(row.measured->ranks);
  std::sort(ideal.x.begin(), ideal.x.end());
  ideal.y = ideal.x;
  auto speed_ups = series_of(rows, &Row::speed_up, 1), efficiencies = series_of(rows, &Row::efficiency, 1);
  speed_ups.push_back(ideal);
  std::fill(ideal.y.begin(), ideal.y.end(), 1.0);
  efficiencies.push_back(ideal);
  std::vector<plot::Panel> panels{plot::Lines{.title = "parallel speed-up",
                                              .x_label = "ranks",
                                              .y_label = "times one rank",
                                              .log_x = true,
                                              .log_y = true,
                                              .markers = true,
                                              .series = speed_ups},
                                  plot::Lines{.title = "efficiency",
                                              .x_label = "ranks",
                                              .y_label = "speed-up / ranks",
                                              .log_x = true,
                                              .markers = true,
                                              .series = efficiencies}};
  if (std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.measured->ranks > 1 && std::isfinite(row.exposed); }))
    panels.emplace_back(plot::Lines{.title = "exposed communication",
                                    .x_label = "ranks",
                                    .y_label = "% of a step",
                                    .log_x = true,
                                    .markers = true,
                                    .series = series_of(rows, &Row::exposed, 100)});
  plot::Figure figure(fmt::format("{}, {} scaling", s.name, s.mode));
  figure.row(360, std::move(panels));
  figure.save(path, true);
}

std::string csv_of(const std::vector<Row>& rows) {
  std::string text =
      "grid,ranks,batch,samples_per_second,spread,milliseconds_per_step,parallel_speed_up,efficiency,exposed_communication,"
      "waiting_for_data,peak_bytes_per_rank,failed\n";
  const auto number = [](double x) { return std::isfinite(x) ? fmt::format("{}", x) : std::string(); };
  for (const auto& row : rows) {
    const auto& m = *row.measured;
    text +=
        fmt::format("\"{}\",{},{},{},{},{},{},{},{},{},{},{}\n", m.grid, m.ranks, m.batch, number(row.rate), number(row.spread),
                    number(row.milliseconds), number(row.speed_up), number(row.efficiency), number(row.exposed),
                    number(row.waiting), m.bytes > 0 ? fmt::format("{}", m.bytes) : std::string(), m.failure.empty() ? 0 : 1);
  }
  return text;
}

// Columns as wide as their contents: the first and last are text, aligned left; numbers are aligned right.
std::string text_of(const std::vector<std::vector<std::string>>& lines) {
  std::vector<std::size_t> widths(lines.front().size(), 0);
  for (const auto& line : lines)
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  std::string text;
  for (const auto& line : lines) {
    std::string row = fmt::format("{:<{}}", line[0], widths[0]);
    for (std::size_t i = 1; i < header.size(); ++i) row += fmt::format("  {:>{}}", line[i], widths[i]);
    for (std::size_t i = header.size(); i < line.size(); ++i) row += fmt::format("  {}", line[i]);
    text += row.substr(0, row.find_last_not_of(' ') + 1) + '\n';
  }
  return text;
}

}  // namespace

std::string file_of(const SpeedStudy& study) { return fmt::format("{}{}-{}", speed_prefix, study.name, study.mode); }

void tell(const SpeedStudy& study, const SpeedOptions& o) {
  const auto rows = rows_of(study);
  const auto name = file_of(study);
  const auto folder = fs::path(o.out);
  auto document = to_json(study, rows);
  std::vector<std::vector<std::string>> lines{header};
  for (const auto& row : rows) lines.push_back(cells_of(row));
  if (std::any_of(study.grids.begin(), study.grids.end(), [](const Measured& grid) { return !grid.failure.empty(); })) {
    lines[0].emplace_back("failure");
    for (std::size_t i = 0; i < rows.size(); ++i) lines[i + 1].push_back(rows[i].measured->failure);
  }
  document["table"] = {{"header", lines[0]}, {"rows", std::vector<std::vector<std::string>>(lines.begin() + 1, lines.end())}};
  document["notes"] = notes_of(study, rows);
  const bool anything = std::any_of(rows.begin(), rows.end(), [](const Row& row) { return std::isfinite(row.speed_up); });
  std::error_code error;
  if (anything) draw(folder / (name + ".png"), study, rows);
  else fs::remove(folder / (name + ".png"), error);  // picture of the replaced results
  trainer::write_text(folder / (name + ".csv"), csv_of(rows));
  trainer::write_text(folder / (name + ".json"), tool::to_text(document) + "\n");
  write_report(o.out);
  if (o.json) {
    fmt::print("{}\n", tool::to_text(document));
    return;
  }
  fmt::print("{}, {} scaling, {} thread{} a rank\n\n{}\n{}\nwritten to {}: {}.json, {}.csv, {}{}\n", study.name, study.mode,
             study.threads, study.threads == 1 ? "" : "s", text_of(lines), document["notes"].get<std::string>(), o.out, name,
             name, anything ? fmt::format("{}.png, ", name) : std::string(), report_file);
}

}  // namespace mpigrad::scaling
