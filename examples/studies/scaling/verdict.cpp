#include "examples/studies/scaling/verdict.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "examples/studies/scaling/tasks/projection.h"
#include "models/train/workers/noise_scale.h"
#include "models/trainer/plot/figure.h"
#include "models/trainer/run.h"
#include "models/trainer/tool/command_line.h"

namespace mpigrad::scaling {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

const double none = std::nan("");

// One number of workers: its measurement, the law's prediction, and its speed.
struct Row {
  int workers = 1;
  const WorkersResult* measured = nullptr;  // null: more workers than were trained; samples by the law
  double samples = none;                    // to the goal
  double efficiency = none, law = none;     // statistical: E_1 / E_P, and the prediction by the noise scale
  double rate = none;                       // samples per second
  std::string rate_is{};                    // "measured", "simulated", "ideal"
  double parallel = none, learning = none;  // speed-ups
  double seconds = none;                    // to the goal, at that rate
};

std::vector<Row> rows_of(const Study& study, const planner::Machine* machine, const LearnOptions& o) {
  std::vector<Row> rows;
  for (const auto& result : study.results)
    rows.push_back(
        {.workers = result.workers, .measured = &result, .samples = std::isfinite(result.samples) ? result.samples : none});
  const auto& one = study.results.front();
  const double batch = static_cast<double>(study.batch);
  const bool has_law = std::isfinite(study.critical_batch) && study.synchronisation == "gradients";
  if (machine && has_law)
    for (const int w : o.more_workers) rows.push_back({.workers = w});
  for (auto& row : rows) {
    if (has_law)
      row.law = statistical_efficiency(batch, row.workers, study.critical_batch) /
                statistical_efficiency(batch, one.workers, study.critical_batch);
    if (row.measured) row.efficiency = one.samples / row.samples;
    else row.samples = one.samples / row.law;
    // A task without a network has only the ideal step time.
    if (machine && !study.task.rate_law) {
      const double seconds = simulated_step(study.task, *machine, row.workers, study.batch, study.synchronisation, study.every);
      row.rate = row.workers * batch / seconds, row.rate_is = "simulated";
    } else if (row.measured && row.measured->measured_rate > 0) {
      row.rate = row.measured->measured_rate, row.rate_is = "measured";
    }
  }
  const bool ideal = study.task.rate_law && std::none_of(rows.begin(), rows.end(),
                                                         [](const Row& r) { return r.rate_is == "measured" && r.workers > 1; });
  for (auto& row : rows) {
    if (ideal) row.rate = row.workers, row.rate_is = "ideal";
    if (row.rate_is.empty() || rows.front().rate_is != row.rate_is) continue;
    row.parallel = row.rate / rows.front().rate * one.workers;
    row.learning = row.parallel * (row.measured ? row.efficiency : row.law);
    if (row.rate_is != "ideal") row.seconds = row.samples / row.rate;
  }
  return rows;
}

Json to_json(const Study& s, const std::vector<Row>& rows, const planner::Machine* machine) {
  const auto number = [](double x) { return std::isfinite(x) ? Json(x) : Json(); };
  Json list = Json::array();
  for (const auto& row : rows) {
    Json entry{{"workers", row.workers},
               {"samples", number(row.samples)},
               {"samples_are", row.measured ? "measured" : "law"},
               {"statistical_efficiency", number(row.efficiency)},
               {"predicted_efficiency", number(row.law)},
               {"samples_per_second", number(row.rate)},
               {"rate_is", row.rate_is},
               {"parallel_speed_up", number(row.parallel)},
               {"learning_speed_up", number(row.learning)},
               {"seconds", number(row.seconds)}};
    if (const auto* m = row.measured)
      entry.update({{"learning_rate", m->learning_rate},
                    {"tuned", m->tuned},
                    {"rate_at_end_of_list", m->at_end},
                    {"reached", m->reached},
                    {"trainings", m->runs},
                    {"samples_quartiles", {number(m->lower), number(m->upper)}},
                    {"critical_batch", number(m->critical_batch)},
                    {"copies_per_rank", m->copies},
                    {"copy_bytes_per_rank", m->copy_bytes}});
    list.push_back(std::move(entry));
  }
  return {{"kind", "learn"},
          {"task", s.task.name},
          {"error", s.task.error_name},
          {"goal", s.goal},
          {"synchronisation", s.synchronisation},
          {"every", s.every},
          {"batch_of_a_worker", s.batch},
          {"momentum", s.task.momentum},
          {"machine", machine ? Json(machine->name) : Json()},
          {"critical_batch", number(s.critical_batch)},
          {"critical_batch_undefined", s.undefined.empty() ? Json() : Json(s.undefined)},
          {"most_learning_speed_up", number(1 + s.critical_batch / static_cast<double>(s.batch))},
          {"results", list}};
}

std::string number_text(double x, const char* format, const char* missing = "-") {
  return std::isfinite(x) ? fmt::format(fmt::runtime(format), x) : missing;
}

std::vector<std::string> cells_of(const Row& row) {
  const auto* m = row.measured;
  return {fmt::format("{}", row.workers),
          m ? fmt::format("{:.3g}{}", m->learning_rate, m->at_end ? "*" : "") : "-",
          m ? fmt::format("{}/{}", m->reached, m->runs) : "law",
          number_text(row.samples, "{:.0f}"),
          m ? fmt::format("{}..{}", number_text(m->lower, "{:.0f}"), number_text(m->upper, "{:.0f}")) : "",
          number_text(row.efficiency, "{:.3g}"),
          number_text(row.law, "{:.3g}"),
          m ? number_text(m->critical_batch, "{:.1f}") : "",
          number_text(row.rate, "{:.4g}"),
          number_text(row.parallel, "{:.2f}"),
          number_text(row.learning, "{:.2f}"),
          number_text(row.seconds, "{:.3g}")};
}
const std::vector<std::string> header{"workers", "rate",    "reached", "samples",  "quartiles", "efficiency",
                                      "law",     "B_noise", "per s",   "parallel", "learning",  "seconds"};

std::string notes_of(const Study& s, const std::vector<Row>& rows, const planner::Machine* machine) {
  std::string text;
  const double batch = static_cast<double>(s.batch);
  if (std::isfinite(s.critical_batch)) {
    text += fmt::format("gradient noise scale: {:.4g} samples", s.critical_batch);
    if (s.synchronisation == "gradients")
      text += fmt::format(
          "; by it learning speed-up ends below 1 + B_noise / b = {:.4g}, however fast steps are, and half of that is reached "
          "with {:.0f} workers",
          1 + s.critical_batch / batch, std::max(1.0, s.critical_batch / batch));
    text += '\n';
  } else {
    text += fmt::format("gradient noise scale: undefined, {}\n", s.undefined);
  }
  if (s.synchronisation != "gradients")
    text += fmt::format("workers average their weights {} every {} step{}; the law is of gradients that are averaged in each\n",
                        s.synchronisation == "gossip" ? "in pairs" : "", s.every, s.every == 1 ? "" : "s");
  if (std::any_of(rows.begin(), rows.end(), [](const Row& r) { return r.measured && r.measured->at_end; }))
    text += "* the first or last of the rates to choose from: a better one may lie beyond (--learning-rates)\n";
  if (s.task.rate_law) text += "rates are the task's law, a fixed part of the best one for each batch; none was tuned\n";
  const auto& rate_is = rows.front().rate_is;
  if (rate_is == "simulated") text += fmt::format("samples per second are simulated on {}\n", machine->name);
  else if (rate_is == "ideal")
    text += "parallel speed-up is taken as ideal, because the task has no network whose steps could be timed\n";
  else if (rate_is == "measured") text += "samples per second are measured, where each worker had a rank\n";
  else text += "without --machine only workers that have a rank each have a time\n";
  const auto& most = s.results.back();
  text += fmt::format("memory: {} {} of the network with the optimizer's state on a rank for {} workers, {}\n", most.copies,
                      most.copies == 1 ? "copy" : "copies", most.workers, readable_bytes(most.copy_bytes));
  return text;
}

// The name of the files, without extension. Studies of one task with different options have different names.
std::string name_of(const Study& study, const LearnOptions& o) {
  auto name = fmt::format("{}{}-{}", learn_prefix, study.task.name, study.synchronisation);
  if (study.synchronisation != "gradients") name += fmt::format("-{}", study.every);
  if (o.goal > 0) name += fmt::format("-goal{:g}", o.goal);
  if (o.batch > 0) name += fmt::format("-batch{}", o.batch);
  if (o.training > 0) name += fmt::format("-samples{}", o.training);
  if (o.data_seed != LearnOptions{}.data_seed) name += fmt::format("-data{}", o.data_seed);
  return name;
}

// The table for programs: full precision, empty cells for missing numbers.
std::string csv_of(const std::vector<Row>& rows) {
  std::string text =
      "workers,measured,learning_rate,samples,statistical_efficiency,predicted_efficiency,parallel_speed_up,learning_speed_up,"
      "rate_is\n";
  const auto number = [](double value) { return std::isfinite(value) ? fmt::format("{}", value) : std::string(); };
  for (const auto& row : rows)
    text += fmt::format("{},{},{},{},{},{},{},{},{}\n", row.workers, row.measured ? 1 : 0,
                        row.measured ? number(row.measured->learning_rate) : "", number(row.samples), number(row.efficiency),
                        number(row.law), number(row.parallel), number(row.learning), row.rate_is);
  return text;
}

void draw(const fs::path& path, const Study& s, const std::vector<Row>& rows, const planner::Machine* machine) {
  plot::Series samples{.label = "measured"}, law{.label = "predicted from the noise scale"};
  plot::Series efficiency{.label = "measured"}, predicted{.label = "predicted from the noise scale"};
  plot::Series parallel{.label = "parallel"}, learning{.label = "learning"}, beyond{.label = "learning, samples by the law"},
      ideal{.label = "ideal"};
  for (const auto& row : rows) {
    const double w = row.workers;
    if (row.measured && std::isfinite(row.samples)) samples.x.push_back(w), samples.y.push_back(row.samples);
    if (std::isfinite(row.law)) law.x.push_back(w), law.y.push_back(rows.front().samples / row.law);
    if (std::isfinite(row.efficiency) && row.efficiency > 0) efficiency.x.push_back(w), efficiency.y.push_back(row.efficiency);
    if (std::isfinite(row.law)) predicted.x.push_back(w), predicted.y.push_back(row.law);
    if (std::isfinite(row.parallel)) {
      parallel.x.push_back(w), parallel.y.push_back(row.parallel);
      if (row.measured && row.learning > 0) learning.x.push_back(w), learning.y.push_back(row.learning);
      if ((!row.measured || &row == &rows[s.results.size() - 1]) && std::isfinite(row.learning))
        beyond.x.push_back(w), beyond.y.push_back(row.learning);
      ideal.x.push_back(w), ideal.y.push_back(w);
    }
  }
  const auto speed = machine && !s.task.rate_law ? fmt::format("speed-up on {}", machine->name) : std::string("speed-up");
  std::vector<plot::Series> speeds{parallel, learning, ideal};
  if (beyond.x.size() > 1) speeds.insert(speeds.begin() + 2, beyond);
  plot::Figure figure(
      fmt::format("{}: {} {:g}, {} samples of each worker a step", s.task.name, s.task.error_name, s.goal, s.batch));
  figure.row(360, {plot::Lines{.title = "samples to the goal",
                               .x_label = "workers",
                               .y_label = "samples",
                               .log_x = true,
                               .log_y = true,
                               .markers = true,
                               .series = {samples, law}},
                   plot::Lines{.title = "statistical efficiency",
                               .x_label = "workers",
                               .y_label = "E(1) / E(P)",
                               .log_x = true,
                               .log_y = true,
                               .markers = true,
                               .series = {efficiency, predicted}},
                   plot::Lines{.title = speed,
                               .x_label = "workers",
                               .y_label = "times one worker",
                               .log_x = true,
                               .log_y = true,
                               .markers = true,
                               .series = speeds}});
  figure.save(path, true);
}

}  // namespace

void judge(Study& study) {
  study.critical_batch = none;
  if (!study.task.separable) {
    study.undefined = "because the loss of a batch is no mean over its samples: gradients of parts of it are not its parts";
    return;
  }
  if (study.synchronisation != "gradients") {
    study.undefined = "because workers have weights of their own between averages";
    return;
  }
  double sum = 0;
  int count = 0;
  for (const auto& result : study.results)
    if (result.workers > 1 && std::isfinite(result.critical_batch)) sum += std::log(result.critical_batch), ++count;
  if (count > 0) study.critical_batch = std::exp(sum / count);
  else study.undefined = "because it takes two workers to measure it";
}

void tell(const Study& study, const planner::Machine* machine, const LearnOptions& o) {
  const auto rows = rows_of(study, machine, o);
  const auto name = name_of(study, o);
  auto document = to_json(study, rows, machine);
  Json table = Json::array();
  for (const auto& row : rows) table.push_back(cells_of(row));
  document["table"] = {{"header", header}, {"rows", table}};
  document["notes"] = notes_of(study, rows, machine);
  draw(fs::path(o.out) / (name + ".png"), study, rows, machine);
  trainer::write_text(fs::path(o.out) / (name + ".json"), tool::to_text(document) + "\n");
  trainer::write_text(fs::path(o.out) / (name + ".csv"), csv_of(rows));
  write_report(o.out);
  if (o.json) {
    fmt::print("{}\n", tool::to_text(document));
    return;
  }
  fmt::print(
      "{}: {} {:g}, {} samples of each worker a step, {}\n\n", study.task.name, study.task.error_name, study.goal, study.batch,
      study.synchronisation == "gradients"
          ? "gradients averaged in every step"
          : fmt::format("weights averaged{} every {} steps", study.synchronisation == "gossip" ? " in pairs" : "", study.every));
  constexpr auto line = "{:>7} {:>8} {:>7} {:>8} {:>15} {:>10} {:>6} {:>8} {:>9} {:>9} {:>9} {:>9}\n";
  const auto print = [&](const std::vector<std::string>& c) {
    fmt::print(line, c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7], c[8], c[9], c[10], c[11]);
  };
  print(header);
  for (const auto& row : rows) print(cells_of(row));
  fmt::print("\n{}\nwritten to {}: runs.csv, {}.csv, {}.json, {}.png, {}\n", notes_of(study, rows, machine), o.out, name, name,
             name, report_file);
}

}  // namespace mpigrad::scaling
