// `scaling speed`: runs a trainer on several grids, each in a separate job.

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "examples/studies/scaling/commands.h"
#include "examples/studies/scaling/speed_runs.h"
#include "examples/tools/elastic/command.h"
#include "framework/base/joined.h"
#include "models/trainer/folder/folder_lock.h"
#include "models/trainer/options.h"
#include "models/trainer/tool/command_line.h"

namespace mpigrad::scaling {
namespace {

namespace fs = std::filesystem;
using elastic::cores_here;
using elastic::has_option;
using elastic::require_program;
using elastic::under_slurm;
using elastic::value_of;
using elastic::Words;
using tool::UsageError;

// ---- the trainer's command

std::int64_t batch_of(const Words& command) {
  const auto text = value_of(command, "--batch");
  if (!text) throw UsageError("the program needs --batch, from which the time of a step and the batches of --mode weak follow");
  std::int64_t batch = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), batch);
  if (error != std::errc() || end != text->data() + text->size() || batch < 1 || batch > 1000000000)
    throw UsageError(fmt::format("the program's --batch is a whole number from 1 to 1000000000, not '{}'", *text));
  return batch;
}

std::vector<Measured> grids_of(const SpeedOptions& o, std::int64_t batch) {
  std::vector<Measured> grids;
  for (const auto& list : o.grids) {
    std::istringstream texts(list);
    for (std::string text; texts >> text;) {
      const auto extents = trainer::parse_grid(text, 1, trainer::Channels::split);
      const auto* split = trainer::split_of(text).split == ChannelSplit::channels ? "channel" : "filter";
      std::vector<std::string> axes, parts;
      for (const auto& [axis, extent] : {std::pair<const char*, int>{"sample", extents.sample},
                                         {"depth", extents.depth},
                                         {"height", extents.height},
                                         {"width", extents.width},
                                         {split, extents.channel},
                                         {"filter", extents.filter}})
        if (extent > 1) axes.emplace_back(axis), parts.push_back(fmt::format("{}={}", axis, extent));
      Measured grid{
          .grid = parts.empty() ? "sample=1" : joined(parts, ","), .way = joined(axes, "+"), .ranks = ranks_of(extents)};
      grid.batch = o.mode == "weak" ? batch * grid.ranks : batch;
      if (std::any_of(grids.begin(), grids.end(), [&](const Measured& other) { return other.grid == grid.grid; }))
        throw UsageError(fmt::format("--grids names {} twice", grid.grid));
      grids.push_back(std::move(grid));
    }
  }
  if (grids.empty()) throw UsageError("--grids names no grid; \"sample=1 sample=2 depth=2\" are three");
  return grids;
}

void check(const SpeedOptions& o) {
  if (o.command.empty()) throw UsageError("there is no program to run: scaling speed [OPTIONS] -- PROGRAM ARGUMENTS...");
  for (const auto* option : {"--grid", "--out", "--json"})
    if (has_option(o.command, option))
      throw UsageError(fmt::format("{} is not among the program's arguments: speed gives it", option));
  for (const auto* option : {"--resume", "--describe"})
    if (has_option(o.command, option))
      throw UsageError(fmt::format("{} is not among the program's arguments: trainings are measured from their start", option));
  for (const auto& word : o.command)
    if (word.find("grid.communication=") != std::string::npos)
      throw UsageError("grid.communication is not among the program's arguments: speed runs it with and without");
  require_program(o.command[0]);
}

}  // namespace

void add_speed(CLI::App& app, SpeedOptions& o) {
  auto* speed = app.add_subcommand("speed", "a trainer on several grids: its speed, and the part that communication takes");
  // An option with more words would end with the `--` before the program, and swallow it.
  speed
      ->add_option("--grids", o.grids,
                   "\"sample=1 sample=2 depth=2\", one word of the shell: each is a --grid of the trainer; speed-ups are against "
                   "the first")
      ->allow_extra_args(false);
  speed
      ->add_option("--mode", o.mode,
                   "strong: all grids train the program's --batch; weak: that is of one rank, and multiplied by the ranks of a "
                   "grid, whatever it splits")
      ->check(CLI::IsMember({"strong", "weak"}))
      ->capture_default_str();
  speed->add_option("--repeats", o.repeats, "runs of each grid, in turns, of which the median counts")
      ->check(tool::whole_number(1, 1000))
      ->capture_default_str();
  speed->add_option("--threads", o.threads, "threads of a rank: OMP_NUM_THREADS")
      ->check(tool::whole_number(1, 1 << 16))
      ->capture_default_str();
  speed->add_option("--launcher", o.launcher,
                    "words that start ranks, with {ranks} and {threads}; srun under Slurm, else mpiexec");
  speed->add_option("--limit", o.limit, "seconds after which a run has failed; 0: never")
      ->check(tool::number_from(0))
      ->capture_default_str();
  speed->add_option("--name", o.name, "name of the results: speed-NAME-MODE.json, .csv and .png (default: the program's)");
  speed->add_option("--out", o.out, "folder of results; its folder speed-runs has the runs' output")->capture_default_str();
  speed->add_flag("--overwrite", o.overwrite, "replace results of that name");
  speed->add_flag("--quiet", o.quiet, "no line for each run");
  speed->add_flag("--json", o.json, "print one JSON document and nothing else");
  speed->add_option("command", o.command,
                    "after --: a trainer and its arguments, --batch among them; --grid and --out are given");
  speed->footer(
      "Exit codes: 0 all runs have ended; 1 some have failed, and their rows say how; 2 wrong arguments. SIGTERM and SIGINT end "
      "the "
      "run,\n"
      "and what was measured until then is written.");
}

int speed(const SpeedOptions& options) {
  if (!elastic::leave_launcher("speed")) return 2;
  auto o = options;
  check(o);
  if (o.name.empty()) o.name = fs::path(o.command[0]).filename().string();
  if (o.name.find('/') != std::string::npos) throw UsageError(fmt::format("--name is a part of files' names, not '{}'", o.name));
  const bool here = o.launcher.empty() && !under_slurm();
  if (o.launcher.empty())
    o.launcher = here ? elastic::mpiexec_of_this_mpi(false)
                      : elastic::srun_of_this_mpi() + " --ntasks={ranks} --cpus-per-task={threads} --kill-on-bad-exit=1";
  SpeedStudy study{.name = o.name, .mode = o.mode, .command = joined(o.command, " "), .repeats = o.repeats, .threads = o.threads};
  study.grids = grids_of(o, batch_of(o.command));
  if (here) study.cores_here = cores_here();
  const auto result = fs::path(o.out) / fmt::format("{}.json", file_of(study));
  if (!o.overwrite && fs::exists(result)) throw UsageError(fmt::format("{} exists; --overwrite replaces it", result.string()));
  std::error_code error;
  fs::create_directories(o.out, error);
  require(fs::is_directory(o.out), "[scaling] the folder {} cannot be made: {}", o.out, error.message());
  const tool::FolderLock lock(o.out);
  const int signal = measure(study, o, o.launcher);
  tell(study, o);
  if (signal != 0) return 128 + signal;
  const bool failed = std::any_of(study.grids.begin(), study.grids.end(),
                                  [](const Measured& grid) { return !grid.failure.empty() || !grid.silent_failure.empty(); });
  return failed ? 1 : 0;
}

}  // namespace mpigrad::scaling
