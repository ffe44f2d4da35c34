#include "examples/studies/plan/scaling.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "examples/studies/plan/networks.h"
#include "framework/base/joined.h"
#include "models/trainer/options.h"
#include "models/trainer/plot/figure.h"
#include "models/trainer/run.h"
#include "models/trainer/tool/command_line.h"

namespace mpigrad::plan {

using tool::UsageError;

std::vector<ScalingPoint> scaling_points(const SimulateOptions& o) {
  if (!o.trace.empty() || !o.grid_of.empty() || !o.straggler.empty())
    throw UsageError("--scaling excludes --trace, --grid-of and --straggler");
  const bool weak = o.scaling == "weak";
  const auto input = subject_named(o.network, o.size).input;
  auto grid = trainer::parse_grid(o.grid, 1, trainer::Channels::split);
  const auto split = trainer::split_of(o.grid);
  auto one = o;
  std::vector<ScalingPoint> points;
  for (;;) {
    one.grid = planner::grid_text(grid, split);
    const auto run = simulated(one);
    const auto mean = mean_of(run.simulation);
    ScalingPoint point{.grid = one.grid, .ranks = run.ranks, .batch = one.batch, .memory = run.memory};
    point.seconds = run.simulation.mean, point.compute = mean.work;
    point.halos = mean.halos + mean.redistribution, point.collectives = mean.collectives;
    const auto rate = [](const ScalingPoint& p) { return p.samples_per_second() / p.ranks; };
    if (!points.empty()) point.efficiency = rate(point) / rate(points.front());
    points.push_back(point);
    if (2 * static_cast<std::int64_t>(run.ranks) > o.to_ranks) break;
    if (weak) {
      grid.sample *= 2, one.batch *= 2;
      continue;
    }
    int* axes[] = {&grid.depth, &grid.height, &grid.width};
    int longest = 0;
    for (int d = 1; d < 3; ++d)
      if (input[d + 1] / *axes[d] > input[longest + 1] / *axes[longest]) longest = d;
    *axes[longest] *= 2;
  }
  if (points.size() < 2) throw UsageError(fmt::format("--to-ranks {}: no grid is larger than --grid {}", o.to_ranks, o.grid));
  return points;
}

std::vector<std::string> scaling_header() {
  return {"ranks",      "batch",      "grid",     "step, s",        "samples per s",
          "efficiency", "compute, s", "halos, s", "collectives, s", "GiB of a rank"};
}

std::vector<std::string> scaling_row(const ScalingPoint& p) {
  return {std::to_string(p.ranks),
          std::to_string(p.batch),
          p.grid,
          fmt::format("{:.4g}", p.seconds),
          fmt::format("{:.4g}", p.samples_per_second()),
          fmt::format("{:.3f}", p.efficiency),
          fmt::format("{:.4g}", p.compute),
          fmt::format("{:.3g}", p.halos),
          fmt::format("{:.3g}", p.collectives),
          fmt::format("{:.3g}", static_cast<double>(p.memory) / (1 << 30))};
}

int scaling(const SimulateOptions& o) {
  if (!o.plot.empty() && !o.overwrite && std::filesystem::exists(o.plot))
    throw UsageError(fmt::format("--plot {} exists: choose another, or say --overwrite", o.plot));
  const auto points = scaling_points(o);
  if (!o.plot.empty()) {
    plot::Series speed{.label = "simulated"}, ideal{.label = "ideal", .dashed = true};
    std::string csv = "ranks,batch,grid,step_s,samples_per_s,efficiency,compute_s,halos_s,collectives_s,memory_bytes\n";
    for (const auto& p : points) {
      for (auto* series : {&speed, &ideal}) series->x.push_back(p.ranks);
      speed.y.push_back(p.samples_per_second()), ideal.y.push_back(p.samples_per_second() / p.efficiency);
      csv += fmt::format("{},{},\"{}\",{},{},{},{},{},{},{}\n", p.ranks, p.batch, p.grid, p.seconds, p.samples_per_second(),
                         p.efficiency, p.compute, p.halos, p.collectives, p.memory);
    }
    plot::Figure figure(fmt::format("{} scaling of {} on {}", o.scaling, o.network, machine_of(o.machine).name), 700);
    figure.row(360, {plot::Lines{.title = "samples per second",
                                 .x_label = "ranks",
                                 .log_x = true,
                                 .log_y = true,
                                 .markers = true,
                                 .series = {speed, ideal}}});
    figure.save(o.plot, true);
    trainer::write_text(std::filesystem::path(o.plot).replace_extension(".csv"), csv);
  }
  if (o.json) {
    auto list = nlohmann::ordered_json::array();
    for (const auto& p : points)
      list.push_back({{"ranks", p.ranks},
                      {"batch", p.batch},
                      {"grid", p.grid},
                      {"seconds_per_step", p.seconds},
                      {"efficiency", p.efficiency},
                      {"compute_s", p.compute},
                      {"halos_s", p.halos},
                      {"collectives_s", p.collectives},
                      {"memory_bytes", p.memory}});
    fmt::print("{}\n", tool::to_text({{"network", o.network}, {"scaling", o.scaling}, {"points", list}}));
    return 0;
  }
  fmt::print("{} scaling of {}\n\n", o.scaling, o.network);
  const auto line = [](const std::vector<std::string>& cells) {
    for (std::size_t i = 0; i < cells.size(); ++i)
      if (i != 2) fmt::print("{:>15}", cells[i]);
    fmt::print("  {}\n", cells[2]);
  };
  line(scaling_header());
  for (const auto& p : points) line(scaling_row(p));
  if (!o.plot.empty()) fmt::print("\nwritten to {}, and a CSV file of the same name\n", o.plot);
  return 0;
}

}  // namespace mpigrad::plan
