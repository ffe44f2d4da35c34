// More ranks compute faster; do they learn faster?
//
//   build/examples/scaling learn --task lattice --machine examples/machines/perlmutter.toml --out study
//   build/examples/scaling speed --grids "sample=1 sample=2 depth=2" --out study -- build/examples/cosmoflow train --data runs
//   build/examples/scaling report study
//
// `learn` trains W virtual workers on the available ranks, counts the samples to an error, and compares that with the gradient
// noise scale and the time of steps; `speed` runs a trainer on several grids; both end with report.html.

#include <CLI/CLI.hpp>
#include <string_view>

#include "comm/launch.h"
#include "comm/process/threads.h"
#include "examples/studies/scaling/commands.h"
#include "examples/tools/elastic/command.h"
#include "models/trainer/tool/command_line.h"

namespace mpigrad::scaling {
namespace {

struct Commands {
  CLI::App app{"More ranks compute faster; do they learn faster?", "scaling"};
  LearnOptions learn;
  SpeedOptions speed;
  std::string folder;
  Commands() {
    app.require_subcommand(1);
    add_learn(app, learn);
    add_speed(app, speed);
    app.add_subcommand("report", "write report.html of the results in a folder again")
        ->add_option("folder", folder, "of results")
        ->required();
  }
};

int run_on_ranks(int argc, char** argv) {
  return launch(argc, argv, [&](const std::shared_ptr<Transport>& transport) {
    Commands c;
    if (const int code = tool::parse(c.app, argc, argv, *transport); code >= 0) return code;
    return tool::finish(c.app, *transport, [&] { return learn(Communicator(transport), c.learn); });
  });
}

// `speed` starts ranks itself.
int run_without_ranks(int argc, char** argv) {
  Commands c;
  if (const int code = tool::parse(c.app, argc, argv); code >= 0) return code;
  return tool::finish(c.app, [&] {
    if (c.app.got_subcommand("speed")) return speed(c.speed);
    if (!elastic::leave_launcher("report")) return 2;
    write_report(c.folder);
    fmt::print("written: {}/{}\n", c.folder, report_file);
    return 0;
  });
}

}  // namespace
}  // namespace mpigrad::scaling

int main(int argc, char** argv) {
  mpigrad::restart_with_short_waits(argv);
  const bool learns = argc > 1 && std::string_view(argv[1]) == "learn";
  return learns ? mpigrad::scaling::run_on_ranks(argc, argv) : mpigrad::scaling::run_without_ranks(argc, argv);
}
