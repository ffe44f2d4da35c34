// clang-format off
// Answers before a job is submitted: which split is fastest, does it fit, what limits it.
//
//   build/examples/plan best --network cosmoflow --size 512 --machine examples/machines/perlmutter.toml --ranks 2048 --batch 64
//   mpiexec -n 2 build/examples/plan calibrate --networks cosmoflow --size 64 --out here.toml
//   build/examples/plan simulate --network cosmoflow --machine here.toml --grid depth=2 --batch 2 --trace step.json
//   build/examples/plan cost --strategy data --ranks 8 --samples 1280000 --batch 512 --alpha 30.31e-6 --bandwidth 12.5e9 --network resnet50
//   build/examples/plan integrated --network alexnet --ranks 512 --batch 2048 --alpha 2e-6 --bandwidth 6e9 --samples 1200000
//   build/examples/plan figures --out figures
//
// `best`, `simulate` and `calibrate` lay the network out with the code that trains it; `cost` and `integrated` are formulas from papers.
// clang-format on

#include <CLI/CLI.hpp>
#include <string_view>

#include "comm/launch.h"
#include "examples/studies/plan/best.h"
#include "examples/studies/plan/commands.h"
#include "examples/studies/plan/figures/figures.h"
#include "examples/studies/plan/simulate.h"
#include "models/trainer/tool/command_line.h"

namespace mpigrad::plan {
namespace {

struct Commands {
  CLI::App app{"Finds the fastest split of a network over ranks, whether it fits, and what limits it.", "plan"};
  BestOptions best;
  CalibrateOptions calibrate;
  SimulateOptions simulate;
  CostOptions cost;
  IntegratedOptions integrated;
  FiguresOptions figures;
  Commands() {
    app.require_subcommand(1);
    add_best(app, best);
    add_calibrate(app, calibrate);
    add_simulate(app, simulate);
    add_cost(app, cost);
    add_integrated(app, integrated);
    add_figures(app, figures);
  }
};

// Only the command that measures runs on ranks: for the others --ranks is a number to plan for.
int run_on_ranks(int argc, char** argv) {
  return launch(argc, argv, [&](const std::shared_ptr<Transport>& transport) {
    Commands c;
    if (const int code = tool::parse(c.app, argc, argv, *transport); code >= 0) return code;
    return tool::finish(c.app, *transport, [&] { return calibrate(Communicator(transport), c.calibrate); });
  });
}

int run_without_ranks(int argc, char** argv) {
  Commands c;
  if (const int code = tool::parse(c.app, argc, argv); code >= 0) return code;
  return tool::finish(c.app, [&] {
    if (c.app.got_subcommand("best")) return best(c.best);
    if (c.app.got_subcommand("simulate")) return simulate(c.simulate);
    if (c.app.got_subcommand("cost")) return cost(c.cost);
    if (c.app.got_subcommand("figures")) return figures(c.figures);
    return integrated(c.integrated);
  });
}

}  // namespace
}  // namespace mpigrad::plan

int main(int argc, char** argv) {
  const bool measures = argc > 1 && std::string_view(argv[1]) == "calibrate";
  return measures ? mpigrad::plan::run_on_ranks(argc, argv) : mpigrad::plan::run_without_ranks(argc, argv);
}
