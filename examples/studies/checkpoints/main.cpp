// The costs of checkpoints: saving, loading and restarting, by writer and format, for three networks (the questions of Rojas,
// Kahira et al. 2020, arXiv 2012.00825).
//
//   build/examples/checkpoint_study --out study                      # 1 and 2 ranks, as threads of this process
//   build/examples/checkpoint_study --rank-counts 4,16,64 --networks cosmoflow --out more
//   build/examples/checkpoint_study --simulate 4,8,16,32,64 --machine examples/machines/perlmutter.toml --out larger
//   mpiexec -n 2 build/examples/checkpoint_study --out processes     # its own ranks

#include "comm/launch.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "examples/studies/checkpoints/measure.h"
#include "examples/studies/checkpoints/simulate.h"
#include "models/trainer/plot/figure.h"
#include "models/trainer/run.h"
#include "models/trainer/tool/command_line.h"

namespace mpigrad::study {
namespace {

constexpr const char *table_file = "checkpoints.csv", *picture_file = "checkpoints.png";

std::string seconds(double value) { return std::isnan(value) ? "" : fmt::format("{:.4f}", value); }

std::string table_of(const std::vector<Row>& rows, const std::string& machine) {
  std::string text;
  std::string before;
  for (const auto& row : rows) {
    const auto head = fmt::format("{}, {} rank{}{}", row.network, row.ranks, row.ranks > 1 ? "s" : "",
                                  row.simulated        ? fmt::format(" (simulated: one rank here, {})", machine)
                                  : row.oversubscribed ? " (oversubscribed: more ranks than cores)"
                                                       : "");
    if (head != before)
      text += fmt::format("\n{}\n{:<50}{:>10}{:>10}{:>12}{:>10}\n", head, "", "MB", "save, s", "of which", "load, s");
    if (head != before) text += fmt::format("{:<50}{:>10}{:>10}{:>12}{:>10}\n", "", "", "", "still, s", "");
    before = head;
    text += fmt::format("{:<50}{:>10}{:>10}{:>12}{:>10}\n", row.way,
                        std::isnan(row.bytes) ? "" : fmt::format("{:.2f}", 1e-6 * row.bytes), seconds(row.save),
                        seconds(row.still), seconds(row.load));
    if (!row.same_bits.empty()) text += fmt::format("  the same bits as without a restart: {}\n", row.same_bits);
  }
  return text.substr(1);
}

std::string csv_of(const std::vector<Row>& rows) {
  std::string text = "network,ranks,oversubscribed,simulated,way,bytes,save_seconds,still_seconds,load_seconds,same_bits\n";
  for (const auto& row : rows)
    text += fmt::format("{},{},{},{},\"{}\",{},{},{},{},{}\n", row.network, row.ranks, row.oversubscribed ? 1 : 0,
                        row.simulated ? 1 : 0, row.way, std::isnan(row.bytes) ? "" : fmt::format("{:.0f}", row.bytes),
                        seconds(row.save), seconds(row.still), seconds(row.load), row.same_bits);
  return text;
}

// Seconds against ranks, or against the ways in order if there is only one number of ranks. Simulated values are dashed.
void draw(const std::vector<Row>& rows, const std::filesystem::path& path, bool overwrite, const std::string& machine) {
  plot::Figure figure(machine.empty() ? "Costs of checkpoints"
                                      : fmt::format("Costs of checkpoints: measured; dashed lines simulated for {}", machine));
  std::vector<std::string> networks;
  for (const auto& row : rows)
    if (std::find(networks.begin(), networks.end(), row.network) == networks.end()) networks.push_back(row.network);
  const bool many = std::any_of(rows.begin(), rows.end(), [&](const Row& row) { return row.ranks != rows.front().ranks; });
  const bool crowded = std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.oversubscribed; });
  for (const auto& network : networks)
    for (const bool weights : {false, true}) {
      plot::Lines save{.title = fmt::format("{}, {}: saving", network, weights ? "weights only" : "all of a training's state"),
                       .x_label = !many     ? ""
                                  : crowded ? "ranks (more than cores: oversubscribed)"
                                            : "ranks",
                       .y_label = "seconds",
                       .log_x = many,
                       .log_y = true,
                       .markers = true};
      auto load = save;
      load.title = fmt::format("{}: loading", network);
      // By way; measured and simulated points of one way have the same colour.
      std::map<std::string, std::pair<plot::Series, plot::Series>> series[2];
      std::map<std::string, plot::Colour> colours;
      double place = 0;
      for (const auto& row : rows) {
        if (row.network != network || std::isnan(row.still) || row.way.starts_with("weights: ") != weights) continue;
        if (row.way.find("gzip") != std::string::npos) continue;  // only in the table
        const auto colour = colours.emplace(row.way, plot::series_colour(colours.size())).first->second;
        auto& [saves, loads] = series[row.simulated ? 1 : 0][row.way];
        if (!row.simulated || !series[0].contains(row.way)) saves.label = row.way;  // for both panels
        saves.colour = loads.colour = colour, saves.dashed = loads.dashed = row.simulated;
        const double x = many ? row.ranks : ++place;
        saves.x.push_back(x), saves.y.push_back(row.save), loads.x.push_back(x), loads.y.push_back(row.load);
      }
      for (auto& kind : series)
        for (auto& [way, both] : kind) save.series.push_back(both.first), load.series.push_back(both.second);
      figure.row(360, {save, load});
    }
  figure.save(path, overwrite);
}

int run(const std::shared_ptr<Transport>& transport, int argc, char** argv) {
  const Communicator world(transport);
  CLI::App app("Measures saving, loading and restarting, by writer and format.", "checkpoint_study");
  Options o;
  std::string out = "checkpoint-study";
  bool overwrite = false, json = false;
  std::string file;  // of the new processes that this program starts: see restart_from()
  app.add_option("--restart", file)->group("");
  app.add_option("--networks", o.networks, "some of cosmoflow, unet3d, resnet50")
      ->delimiter(',')
      ->check(CLI::IsMember({"cosmoflow", "unet3d", "resnet50"}));
  const auto* ranks =
      app.add_option("--rank-counts", o.ranks, "numbers of ranks, as threads; default 1,2, or the ranks of mpiexec")
          ->delimiter(',')
          ->check(tool::whole_number(1, 4096));
  std::vector<int> simulated;
  std::string machine_file;
  auto* larger =
      app.add_option("--simulate", simulated,
                     "numbers of ranks that are computed instead of run, from the measurement of one rank and --machine")
          ->delimiter(',')
          ->check(tool::whole_number(2, 1 << 20));
  app.add_option("--machine", machine_file, "file of a machine with [disk], of examples/machines or of `plan calibrate`")
      ->needs(larger);
  app.add_option("--rounds", o.rounds, "rounds, of which the median counts")
      ->check(tool::whole_number(1, 1000))
      ->capture_default_str();
  app.add_flag("--tiny", o.tiny, "networks of a few hundred kilobytes, for a trial run");
  app.add_option("--out", out, "folder for table and picture, and for the measured files")->capture_default_str();
  app.add_flag("--overwrite", overwrite, "replace files of an earlier run there");
  app.add_flag("--json", json, "print one JSON document and nothing else");
  if (const int code = tool::parse(app, argc, argv, *transport); code >= 0) return code;
  return tool::finish(app, *transport, [&] {
    if (!file.empty()) {
      const auto hash = restart_from(file, o.networks.front(), world, o.tiny);
      if (world.rank() == 0) fmt::print("{}\n", hash);
      return 0;
    }
    if (world.size() > 1 && ranks->count() > 0)
      throw tool::UsageError("--rank-counts is for a single process that starts its ranks; here there are several processes");
    std::optional<planner::Machine> machine;
    if (!simulated.empty()) {
      if (machine_file.empty()) throw tool::UsageError("--simulate needs --machine");
      if (world.size() > 1 || std::find(o.ranks.begin(), o.ranks.end(), 1) == o.ranks.end())
        throw tool::UsageError("--simulate needs the measurement of one rank: --rank-counts with 1, in one process");
      machine = planner::read_machine(machine_file);
      simulate({}, *machine, simulated);  // throws for invalid options before anything slow
    }
    const trainer::Outputs outputs(world, out, {table_file, picture_file}, overwrite);
    outputs.create(world);
    o.folder = std::filesystem::path(out) / "files";
    const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    std::vector<Row> rows;
    if (world.size() > 1) {
      rows = measure(world, o, cores * std::max(1, world.size() / std::max(1, transport->node_size())));
    } else {
      for (const int p : o.ranks)
        run_threads(p, [&](std::shared_ptr<Transport> made) {
          set_threads_of_rank(*made);
          const auto more = measure(Communicator(std::move(made)), o, cores);
          if (!more.empty()) rows.insert(rows.end(), more.begin(), more.end());
        });
    }
    trainer::together(world, [&] {
      if (world.rank() != 0) return;
      if (machine) {
        const auto more = simulate(rows, *machine, simulated);
        rows.insert(rows.end(), more.begin(), more.end());
      }
      const auto name = machine ? machine->name : std::string();
      std::filesystem::remove_all(o.folder);
      trainer::write_text(outputs / table_file, csv_of(rows));
      draw(rows, outputs / picture_file, overwrite, name);
      if (!json) return fmt::print("{}written to {}: {}, {}\n", table_of(rows, name), out, table_file, picture_file);
      auto document = nlohmann::ordered_json::array();
      for (const auto& row : rows)
        document.push_back({{"network", row.network},
                            {"ranks", row.ranks},
                            {"oversubscribed", row.oversubscribed},
                            {"simulated", row.simulated},
                            {"way", row.way},
                            {"bytes", row.bytes},
                            {"save_seconds", row.save},
                            {"still_seconds", row.still},
                            {"load_seconds", row.load},
                            {"same_bits", row.same_bits}});
      fmt::print("{}\n", tool::to_text(document));
    });
    return 0;
  });
}

}  // namespace
}  // namespace mpigrad::study

int main(int argc, char** argv) {
  return mpigrad::launch(argc, argv, [&](const std::shared_ptr<mpigrad::Transport>& transport) {
    return mpigrad::study::run(transport, argc, argv);
  });
}
