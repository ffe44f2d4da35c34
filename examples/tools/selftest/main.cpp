// Checks an installation on the ranks of its launcher, in at most a minute.
//
//   mpiexec -n 4 mpigrad-selftest --folder $SCRATCH --report report.json
//   srun -n 8 mpigrad-selftest --scaling --machine perlmutter.toml

#include <stdlib.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "comm/launch.h"
#include "comm/together.h"
#include "examples/tools/selftest/selftest.h"
#include "framework/cuda/cuda.h"
#include "models/trainer/run.h"
#include "models/trainer/tool/command_line.h"

namespace mpigrad::selftest {
namespace {

struct Options {
  std::string folder, report{}, machine{};
  bool scaling = false, json = false;
  double seconds = 60;
};

struct Result {
  std::string name, problem{};  // none: passed
  double seconds = 0;
};

// The same on all ranks.
double seconds_of_first(const Communicator& world, double seconds) {
  world.transport().bcast(&seconds, 1, DType::float64, 0);
  return seconds;
}

// A new folder of rank 0, which all ranks must see; removed at the end.
class Folder {
 public:
  Folder(const Communicator& world, const std::string& parent) : first_(world.rank() == 0) {
    std::string made;
    tool::together(world, [&] {
      if (!first_) return;
      made = (std::filesystem::absolute(parent) / "mpigrad-selftest-XXXXXX").string();
      if (mkdtemp(made.data()) == nullptr)
        throw tool::UsageError(fmt::format("--folder {}: no folder can be made there", parent));
    });
    path_ = text_of_rank(world.transport(), made);
  }
  ~Folder() {
    std::error_code ignored;
    if (first_) std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  bool first_;
  std::filesystem::path path_;
};

Item visible(const Communicator& world, const std::filesystem::path& folder) {
  return {"files: all ranks see the folder", [=] {
            require(std::filesystem::is_directory(folder),
                    "[selftest] rank {} does not see {}: choose a folder of a file system that all nodes share, by --folder",
                    world.rank(), folder.string());
          }};
}

Result result_of(const Communicator& world, const Item& item) {
  const double start = detail::seconds_now();
  Result result{.name = item.name};
  try {
    together(world, item.run);
  } catch (const SharedError& error) {
    result.problem = error.what();
  }
  result.seconds = seconds_of_first(world, detail::seconds_now() - start);
  return result;
}

std::string line_of(const Result& result) {
  const std::string line =
      fmt::format("{} {:>7.2f} s  {}\n", result.problem.empty() ? "passed" : "FAILED", result.seconds, result.name);
  return result.problem.empty() ? line : line + "    " + result.problem + "\n";
}

std::string line_of(const Rate& rate) {
  std::string size = rate.bytes == 0     ? ""
                     : rate.bytes < 1024 ? fmt::format("{:.0f} B", rate.bytes)
                                         : fmt::format("{:.0f} KiB", rate.bytes / 1024);
  std::string line = fmt::format("{:<28}{:>10}{:>12.4g} {:<8}", rate.name, size, rate.measured, rate.unit);
  if (rate.expected > 0) line += fmt::format("{:>12.4g}{:>9.2f}", rate.expected, rate.measured / rate.expected);
  return line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
}

int run(const Communicator& world, const Options& o) {
  const double start = detail::seconds_now();
  const bool speaks = world.rank() == 0 && !o.json;
  const auto say = [&](const std::string& text) {
    if (speaks) fmt::print("{}", text), std::fflush(stdout);
  };
  if (!o.machine.empty()) require_machine(world, o.machine);
  const Folder folder(world, o.folder);
  auto document = describe_environment(world);
  say(to_text(document));
  std::vector<Item> items = value_items(world);
  const auto append = [&](std::vector<Item> more) { items.insert(items.end(), more.begin(), more.end()); };
  append(call_items(world)), append(halo_items(world)), append(training_items(world));
  append({visible(world, folder.path())}), append(file_items(world, folder.path()));
  int passed = 0, failed = 0;
  document["items"] = nlohmann::ordered_json::array();
  for (const auto& item : items) {
    const bool late = seconds_of_first(world, detail::seconds_now() - start) > o.seconds;
    const auto result =
        late ? Result{item.name, fmt::format("not run: {:g} s are over (--seconds)", o.seconds)} : result_of(world, item);
    ++(result.problem.empty() ? passed : failed);
    say(line_of(result));
    nlohmann::ordered_json entry{{"name", result.name}, {"passed", result.problem.empty()}, {"seconds", result.seconds}};
    if (!result.problem.empty()) entry["problem"] = result.problem;
    document["items"].push_back(entry);
  }
  if (o.scaling) {
    say(fmt::format("\n{:<28}{:>10}{:>12} {:<8}{}\n", "rate", "size", "measured", "",
                    o.machine.empty() ? "" : "  by machine    ratio"));
    for (const auto& rate : measure_rates(world, o.machine)) {
      say(line_of(rate));
      nlohmann::ordered_json entry{{"name", rate.name}, {"bytes", rate.bytes}, {"measured", rate.measured}, {"unit", rate.unit}};
      if (rate.expected > 0) entry["expected"] = rate.expected;
      document["rates"].push_back(entry);
    }
  }
  document["passed"] = passed, document["failed"] = failed, document["seconds"] = detail::seconds_now() - start;
  say(fmt::format("{} passed, {} failed in {:.1f} s\n", passed, failed, detail::seconds_now() - start));
  tool::together(world, [&] {
    if (world.rank() != 0) return;
    if (!o.report.empty()) tool::write_text(o.report, tool::to_text(document) + "\n");
    if (o.json) fmt::print("{}\n", tool::to_text(document));
  });
  return failed == 0 ? 0 : 1;
}

int run(const std::shared_ptr<Transport>& transport, int argc, char** argv) {
  const Communicator world(transport);
  CLI::App app(
      "Checks an installation: calls between ranks and their adjoints, halos, trainings and files, on the launcher's ranks.",
      "mpigrad-selftest");
  const char* temporary = std::getenv("TMPDIR");
  Options o{.folder = temporary != nullptr && *temporary != '\0' ? temporary : "/tmp"};
  app.add_option("--folder", o.folder,
                 "an existing folder that all ranks see, for a few small files, which are removed (default: TMPDIR, or /tmp)");
  app.add_option("--report", o.report, "write a report as JSON, to send with a question; replaces the file");
  app.add_option("--seconds", o.seconds, "items that have not begun by then count as failed")
      ->check(tool::number_above(0))
      ->capture_default_str();
  app.add_flag("--scaling", o.scaling, "also measure the processor, messages, allreduces and halos");
  app.add_option("--machine", o.machine, "a machine file, whose rates are printed next to the measured ones; with --scaling");
  app.add_flag("--json", o.json, "print the report and nothing else");
  if (const int code = tool::parse(app, argc, argv, *transport); code >= 0) return code;
  return tool::finish(app, *transport, [&] {
    if (!o.machine.empty() && !o.scaling) throw tool::UsageError("--machine is for --scaling");
    return run(world, o);
  });
}

}  // namespace
}  // namespace mpigrad::selftest

int main(int argc, char** argv) {
  // On the GPU, if there is one and no other device was asked for.
  if (mpigrad::cuda::available()) setenv("MPIGRAD_DEVICE", "cuda", 0);
  constexpr double watchdog = 60;  // a hang ends with the names of the call and of the missing ranks
  return mpigrad::launch(
      argc, argv,
      [&](const std::shared_ptr<mpigrad::Transport>& transport) { return mpigrad::selftest::run(transport, argc, argv); },
      watchdog);
}
