#include "tests/bench/contrastive/contrastive_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <vector>

#include "framework/base/error.h"
#include "models/trainer/plot/figure.h"

namespace mpigrad::bench {
namespace {

const std::vector<std::string> losses{"nt_xent", "clip"}, forms{"direct", "ring", "cached"};
constexpr double mebibyte = 1024 * 1024;

std::vector<Measurement> read(const std::filesystem::path& csv) {
  std::vector<Measurement> all;
  std::ifstream file(csv);
  for (std::string line; std::getline(file, line);) {
    std::vector<std::string> cells;
    std::istringstream stream(line);
    for (std::string cell; std::getline(stream, cell, ',');) cells.push_back(cell);
    require(cells.size() == 10, "[contrastive_memory] {} cells in {}: {}", cells.size(), csv.string(), line);
    all.push_back({cells[0], cells[1], cells[2], std::stoll(cells[3]), std::stod(cells[4]), std::stod(cells[5]),
                   std::stod(cells[6]), std::stod(cells[7]), std::stod(cells[8]), std::stod(cells[9])});
  }
  return all;
}

using Lines = std::vector<Measurement>;
Lines chosen(const Lines& all, const std::string& loss, const std::string& form, const std::string& setting) {
  Lines result;
  for (const auto& m : all)
    if (m.loss == loss && m.form == form && m.setting == setting) result.push_back(m);
  return result;
}
std::vector<std::string> settings_of(const Lines& all) {
  std::vector<std::string> result;
  for (const auto& m : all)
    if (std::find(result.begin(), result.end(), m.setting) == result.end()) result.push_back(m.setting);
  return result;
}

std::string title(const std::string& loss) { return loss == "clip" ? "CLIP" : "NT-Xent"; }
std::string mib(double bytes) { return fmt::format("{:.0f}", bytes / mebibyte); }
// The exponent e of y ~ N^e between two lines.
std::string exponent(const Measurement& m, const Measurement* before, double Measurement::*member) {
  if (before == nullptr || before->*member <= 0) return "";
  const double e =
      std::log(m.*member / (before->*member)) / std::log(static_cast<double>(m.samples) / static_cast<double>(before->samples));
  return fmt::format("{:.2f}", e);
}

void write_table(std::ofstream& out, const Lines& lines) {
  out << "| N | form | tensors, MiB | grows as N^ | predicted, MiB | process, MiB | seconds | processor s | "
         "grows as N^ | products alone | ratio |\n|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n";
  const Measurement* before = nullptr;
  for (const auto& m : lines) {
    if (m.tensors <= 0) {
      out << fmt::format("| {} | {} | not run | | {} | | | | | | |\n", m.samples, m.form, mib(m.predicted));
      continue;
    }
    out << fmt::format("| {} | {} | {} | {} | {} | {} | {:.3f} | {:.3f} | {} | {:.3f} | {:.2f} |\n", m.samples, m.form,
                       mib(m.tensors), exponent(m, before, &Measurement::tensors), mib(m.predicted), mib(m.process), m.seconds,
                       m.processor, exponent(m, before, &Measurement::processor), m.floor, m.processor / m.floor);
    before = &m;
  }
}

plot::Lines panel(const Lines& all, const std::string& loss, bool memory) {
  plot::Lines lines{.title = fmt::format("{}, {}", title(loss), memory ? "peak memory of tensors" : "processor time of a step"),
                    .x_label = "samples",
                    .y_label = memory ? "MiB" : "seconds",
                    .log_x = true,
                    .log_y = true,
                    .markers = true,
                    .series = {}};
  for (const auto& form : forms)
    for (const auto& setting : settings_of(all)) {
      if (setting.find("threads") != std::string::npos) continue;  // the curve is almost the same as with MPI
      plot::Series series{.label = fmt::format("{}, {}", form, setting), .x = {}, .y = {}};
      for (const auto& m : chosen(all, loss, form, setting)) {
        if (m.tensors <= 0) continue;
        series.x.push_back(static_cast<double>(m.samples));
        series.y.push_back(memory ? m.tensors / mebibyte : m.processor);
      }
      lines.series.push_back(std::move(series));
    }
  return lines;
}

}  // namespace

void append(const std::filesystem::path& csv, const Measurement& m) {
  std::ofstream out(csv, std::ios::app);
  out << fmt::format("{},{},{},{},{},{},{},{},{},{}\n", m.loss, m.form, m.setting, m.samples, m.predicted, m.tensors, m.process,
                     m.seconds, m.processor, m.floor);
  require(out.flush().good(), "[contrastive_memory] cannot write {}", csv.string());
}

void write_report(const std::filesystem::path& csv, const std::filesystem::path& stem) {
  const auto all = read(csv);
  require(!all.empty(), "[contrastive_memory] nothing was measured: {}", csv.string());
  std::ofstream out(stem.string() + ".md");
  for (const auto& setting : settings_of(all))
    for (const auto& loss : losses) {
      out << fmt::format("\n## {}, {}\n\n", title(loss), setting);
      Lines lines;
      bool first = true;
      for (const auto& form : forms) {
        if (!first) out << "\n";
        lines = chosen(all, loss, form, setting);
        if (!lines.empty()) write_table(out, lines);
        first = lines.empty();
      }
    }
  require(out.flush().good(), "[contrastive_memory] cannot write {}.md", stem.string());
  plot::Figure figure("Contrastive losses: direct, round a ring, with cached gradients", 1300);
  for (const bool memory : {true, false}) figure.row(420, {panel(all, "nt_xent", memory), panel(all, "clip", memory)});
  figure.save(stem.string() + ".png", true);
}

}  // namespace mpigrad::bench
