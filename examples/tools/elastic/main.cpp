// Keeps a training alive inside an allocation: when a rank or a node dies, the job is restarted on the remaining ranks, with the
// next grid that fits, from the newest complete checkpoint. MPI itself need not tolerate faults.
//
//   build/examples/elastic --hosts node1,node2 --ranks-per-host 4 -- build/examples/cosmoflow train --data universes
//       --grid sample=2,depth=4 --checkpoint-minutes 10 --out run
//
// Under Slurm, in a batch script, hosts are those of the allocation, and srun starts the ranks:
//
//   build/examples/elastic -- build/examples/cosmoflow train ...

#include <CLI/CLI.hpp>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "examples/tools/elastic/command.h"
#include "examples/tools/elastic/job.h"
#include "examples/tools/elastic/plan.h"
#include "examples/tools/elastic/rank.h"
#include "models/train/checkpoint/checkpoint.h"
#include "models/trainer/folder/state.h"
#include "models/trainer/options.h"
#include "models/trainer/run.h"
#include "models/trainer/tool/command_line.h"

namespace mpigrad::elastic {
namespace {

using tool::UsageError;

// A signal that asks to end; it is passed on to the job, which writes a checkpoint.
std::atomic<int> asked{0};
extern "C" void note(int signal) {
  if (signal != SIGUSR2 || asked == 0) asked = signal;  // a request for a report must not hide one to end
}

struct Options {
  std::vector<std::string> hosts{}, command{};
  int ranks_per_host = 0, retries = 3, forgiven = 1;
  std::string launcher, probe;
  bool watch_ranks = false;
  double probe_seconds = 30, probe_limit = 10;
};

void say(const std::string& text) { fmt::print(stderr, "elastic: {}\n", text); }

void add_options(CLI::App& app, Options& o) {
  app.add_option("--hosts", o.hosts,
                 "names, separated by commas; under Slurm those of the allocation, else this one. Letters, digits and . - _ : [ "
                 "], optionally after USER@")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group("Ranks");
  app.add_option("--ranks-per-host", o.ranks_per_host, "default: as many as the grid of the program needs")
      ->check(tool::whole_number(1, 1 << 20))
      ->group("Ranks");
  app.add_option(
         "--launcher", o.launcher,
         "command that starts ranks, with {ranks}, {hosts} (separated by commas), {nodes} and {ranks_per_host}; default: srun "
         "under Slurm, else the mpiexec of this build's MPI")
      ->group("Ranks");
  app.add_flag("--watch-ranks", o.watch_ranks,
               "start each rank under `elastic rank --`, whose line tells which rank has died, where and how; always on "
               "without --launcher")
      ->group("Ranks");
  app.add_option("--retries", o.retries, "give up after more than so many failures in a row without a newer checkpoint")
      ->check(tool::whole_number(0, 1000000))
      ->capture_default_str()
      ->group("Failures");
  app.add_option(
         "--forgive", o.forgiven,
         "deaths of ranks that are forgiven on a host that answers; the next one removes the host (one rank of the last host)")
      ->check(tool::whole_number(0, 1000000))
      ->capture_default_str()
      ->group("Failures");
  app.add_option("--probe", o.probe, "command that succeeds if {host} is alive; default: srun under Slurm, else ssh")
      ->group("Failures");
  app.add_option("--probe-every", o.probe_seconds, "seconds between probes while the job runs; 0: only when it has failed")
      ->check(tool::number_from(0))
      ->capture_default_str()
      ->group("Failures");
  app.add_option("--probe-limit", o.probe_limit, "seconds after which a host counts as dead")
      ->check(tool::number_above(0))
      ->capture_default_str()
      ->group("Failures");
  app.add_option("command", o.command, "after --: the trainer and its arguments, which must include --out; --resume is added");
  app.footer(
      "`LAUNCHER elastic rank -- PROGRAM ARGUMENTS` by itself runs each rank so that a line tells which of them has died.\n\n"
      "Exit codes: 0 the training has ended; 75 a limit or a signal has ended it, and the same command resumes it; 2 wrong\n"
      "arguments, here or of the trainer; 1 it gave up. The outcome is taken from the file `state` in the trainer's --out, if\n"
      "the trainer has written one, otherwise from its exit code, which mpiexec may lose. SIGTERM, SIGINT, SIGUSR1 and\n"
      "SIGUSR2 are passed on to the ranks.");
}

// Replaces `--resume FILE` by `--resume`, because the training has to resume from a newer checkpoint than FILE.
std::vector<std::string> with_newest(std::vector<std::string> command) {
  for (std::size_t i = 0; i < command.size(); ++i) {
    if (command[i].starts_with("--resume=")) command[i] = "--resume";
    if (command[i] == "--resume" && i + 1 < command.size() && !command[i + 1].starts_with("-"))
      command.erase(command.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
  return command;
}

void complete(Options& o) {
  if (o.command.empty()) throw UsageError("no program to run: elastic [OPTIONS] -- PROGRAM ARGUMENTS...");
  if (!value_of(o.command, "--out")) throw UsageError("the program needs --out, where its checkpoints are");
  if (std::find(o.command.begin(), o.command.end(), "--overwrite") != o.command.end())
    throw UsageError("--overwrite of the program would restart the training from the beginning after every failure");
  const auto resumed = std::find(o.command.begin(), o.command.end(), "--resume");
  if (resumed == o.command.end() && !value_of(o.command, "--resume")) o.command.push_back("--resume");
  const auto allocated = under_slurm() ? allocated_hosts() : Words();
  if (under_slurm() && o.hosts.empty() && allocated.empty())
    throw UsageError("scontrol show hostnames lists no hosts; give --hosts");
  if (o.hosts.empty()) o.hosts = allocated.empty() ? Words{host_name()} : allocated;
  require_host_names(o.hosts);
  const auto hosts = static_cast<int>(o.hosts.size());
  const auto grid = grid_of(o.command);
  if (o.ranks_per_host == 0) {
    if (!grid) throw UsageError("--ranks-per-host is needed if neither the program's --grid nor its recipe names a grid");
    const int ranks = ranks_of(trainer::parse_grid(*grid, 1, trainer::Channels::split));
    o.ranks_per_host = (ranks + hosts - 1) / hosts;
  }
  if (o.probe.empty()) o.probe = default_probe();
  o.watch_ranks = o.watch_ranks || o.launcher.empty();
  if (o.launcher.empty())
    // --overlap: Slurm never ends a step whose node has died, and the next step would wait for its cores.
    o.launcher = under_slurm()
                     ? srun_of_this_mpi() + " --nodes={nodes} --ntasks={ranks} --nodelist={hosts} --overlap --kill-on-bad-exit=1"
                     : mpiexec_of_this_mpi(true);
}

// Time of the newest checkpoint. Checkpoints are replaced: a later time means that training has progressed.
std::filesystem::file_time_type progress_in(const std::filesystem::path& folder) {
  std::error_code none;
  auto newest = std::filesystem::file_time_type::min();
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    if (entry.path().extension() != ".h5" && entry.path().filename() != "training-name")
      continue;  // local copies touch this
                 // file
    const auto time = entry.last_write_time(none);
    if (!none) newest = std::max(newest, time);
  }
  return newest;
}

class Elastic {
 public:
  explicit Elastic(const Options& o) : o_(o), hosts_(o.hosts, o.ranks_per_host, o.forgiven), out_(*value_of(o.command, "--out")) {
    if (const auto grid = grid_of(o.command)) {
      split_ = trainer::split_of(*grid).split == ChannelSplit::channels ? "channel" : "filter";
      grid_ = trainer::parse_grid(*grid, 1, trainer::Channels::split);
      if (ranks_of(*grid_) > hosts_.ranks())
        throw UsageError(fmt::format("--grid {} has {} ranks; {} hosts with {} ranks each have fewer", *grid, ranks_of(*grid_),
                                     o.hosts.size(), o.ranks_per_host));
    }
  }

  int run() {
    trust_those_that_answer();
    int failures = 0;
    for (int start = 1;; ++start) {
      const auto before = progress_in(out_);
      int none = SIGUSR2;
      asked.compare_exchange_strong(none, 0);  // no job is running that could report
      const int code = run_once(start);
      if (code == 0 || code == trainer::to_be_resumed || (code == 2 && start == 1)) return code;
      none = SIGUSR2;
      asked.compare_exchange_strong(none, 0);
      if (asked != 0) return say("ended by a signal"), trainer::to_be_resumed;
      failures = progress_in(out_) > before ? 1 : failures + 1;
      if (code != 2 && failures > o_.retries)
        return say(fmt::format("gives up after {} failures without a newer checkpoint; the last exit code was {}", failures,
                               code)),
               1;
      if (code == 2) accused_.clear();  // srun names ranks that only refuse, too
      const int ranks = hosts_.ranks();
      if (!judge()) return say("no host is left"), 1;
      // The same ranks would refuse the same arguments again. Others may not: the GPU of a dead host may have been the reason.
      if (code == 2 && hosts_.ranks() == ranks) return code;
    }
  }

 private:
  // Runs the job on the remaining hosts; returns its exit code.
  int run_once(int start) {
    auto command = start == 1 && !passed_by_checkpoints() ? o_.command : with_newest(o_.command);
    int ranks = hosts_.ranks();
    std::string grid;
    if (grid_) {
      const auto extents = next_grid(*grid_, ranks);
      ranks = ranks_of(extents);
      grid = text_of(extents);
      command = with_grid(command, grid);
    }
    // Hosts that have no rank in this grid are not probed.
    const int per_host = hosts_.ranks_per_host();
    auto names = hosts_.names();
    names.resize(static_cast<std::size_t>((ranks + per_host - 1) / per_host));
    std::string list;
    for (const auto& name : names) list += (list.empty() ? "" : ",") + name;
    auto words = fill(o_.launcher, {{"ranks", std::to_string(ranks)},
                                    {"hosts", list},
                                    {"nodes", std::to_string(names.size())},
                                    {"ranks_per_host", std::to_string(per_host)}});
    if (o_.watch_ranks) words.insert(words.end(), {std::filesystem::read_symlink("/proc/self/exe").string(), "rank", "--"});
    words.insert(words.end(), command.begin(), command.end());
    say(fmt::format("start {}: {} ranks on {}{}{}", start, ranks, list, grid.empty() ? "" : ", --grid ", grid));
    accused_.clear(), dead_.clear();
    const auto before = trainer::read_state(out_);
    Job job(words);
    bool refused = false;
    const auto look = [&](const std::string& line) {
      accuse(line, names);
      refused = refused || (line.starts_with("srun: error:") && line.find("Exited with exit code 2") != std::string::npos);
    };
    auto probed = std::chrono::steady_clock::now();
    std::vector<std::pair<std::string, Question>> questions;
    std::map<std::string, int> silent;
    while (!job.watch(0.2, look)) {
      if (const int signal = asked.exchange(0); signal != 0) {
        job.signal(as_launcher_takes(signal));
        if (signal != SIGUSR2) return ended_by(job, signal, look, before);
      }
      for (auto question = questions.begin(); question != questions.end();) {
        const auto answer = question->second.answer();
        if (!answer) {
          ++question;
          continue;
        }
        const auto name = question->first;
        question = questions.erase(question);
        silent[name] = *answer ? 0 : silent[name] + 1;
        if (silent[name] < 2) continue;  // a single silence may be chance
        say(fmt::format("{} does not answer: ending the job", name));
        dead_.push_back(name);
        job.kill();
        return 1;
      }
      const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - probed;
      if (o_.probe_seconds == 0 || passed.count() < o_.probe_seconds || !questions.empty()) continue;
      questions = ask(names, o_.probe_limit);
      probed = std::chrono::steady_clock::now();
    }
    int code = trainer::code_of_run(job.code(), out_, before);
    if (refused && code > 128) code = 2;  // srun returns the signal by which it has ended the other ranks
    if (code != 0)
      say(fmt::format("the job ended with {}", code > 128 ? fmt::format("signal {}", code - 128) : fmt::format("code {}", code)));
    return code;
  }

  // True if there is a checkpoint newer than the one that --resume names, that is, if this program was started before.
  bool passed_by_checkpoints() const {
    const auto file = value_of(o_.command, "--resume");
    std::error_code none;
    return file && !file->starts_with("-") && std::filesystem::exists(*file, none) &&
           progress_in(out_) > std::filesystem::last_write_time(*file, none);
  }

  // The ranks write a checkpoint and end. A further signal is passed on, too; the third one kills the job.
  int ended_by(Job& job, int first, const std::function<void(const std::string& line)>& look,
               const std::optional<trainer::RunState>& before) {
    int signals = 1;
    while (!job.watch(0.2, look)) {
      const int signal = asked.exchange(0);
      if (signal == 0) continue;
      if (signal != SIGUSR2 && ++signals > 2) {
        job.kill();
        break;
      }
      job.signal(as_launcher_takes(signal));
    }
    asked = first;
    if (trainer::read_state(out_) != before) return trainer::code_of_run(job.code(), out_, before);
    // For a program without a state file. MPICH's launcher may lose the ranks' exit code: if the training had finished, the next
    // job finds out.
    return job.code() == 0 ? trainer::to_be_resumed : job.code();
  }
  // srun ends the job itself at SIGTERM, and at SIGINT only reports the job's status.
  static int as_launcher_takes(int signal) { return under_slurm() && signal != SIGUSR2 ? SIGUSR1 : signal; }

  std::string text_of(const GridExtents& g) const {
    std::string text;
    const std::pair<std::string, int> axes[] = {{"sample", g.sample}, {"depth", g.depth},  {"height", g.height},
                                                {"width", g.width},   {split_, g.channel}, {"filter", g.filter}};
    for (const auto& [axis, extent] : axes)
      if (extent > 1) text += fmt::format("{}{}={}", text.empty() ? "" : ",", axis, extent);
    return text.empty() ? "sample=1" : text;
  }

  std::vector<std::pair<std::string, Question>> ask(const std::vector<std::string>& names, double limit) const {
    std::vector<std::pair<std::string, Question>> questions;
    for (const auto& name : names)
      if (trusted_.contains(name)) questions.emplace_back(name, Question(fill(o_.probe, {{"host", without_ranks(name)}}), limit));
    return questions;
  }
  // The hosts that do not answer.
  std::vector<std::string> silent_of(const std::vector<std::string>& names, double limit) const {
    std::vector<std::string> silent;
    for (auto& [name, question] : ask(names, limit)) {
      std::optional<bool> answer;
      while (!(answer = question.answer())) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (!*answer) silent.push_back(name);
    }
    return silent;
  }
  // Silence of a host that has never answered means nothing: ssh may ask for a password there.
  void trust_those_that_answer() {
    for (const auto& name : hosts_.names())
      if (!is_this_host(name)) trusted_.insert(name);
    for (const auto& name : silent_of(hosts_.names(), o_.probe_limit)) {
      trusted_.erase(name);
      say(fmt::format("{} does not answer to --probe: it will not be asked again", name));
    }
  }

  // Reads reports of dead ranks: those of `elastic rank`, and those of launchers, such as "PID 71 RUNNING AT node1" (MPICH) and
  // "srun: error: node1: task 3: Killed".
  void accuse(const std::string& line, const std::vector<std::string>& names) {
    const auto ended_on = host_of_ended_rank(line);
    // Later reports from the same job are about ranks that the launcher has ended.
    for (const auto& word : names) {
      if (!accused_.empty()) return;
      const auto name = without_ranks(word);
      if (!ended_on.empty() && (name == ended_on || (is_this_host(name) && is_this_host(ended_on)))) accused_.push_back(word);
      const auto running = line.find("RUNNING AT " + name);
      const auto behind = running == std::string::npos ? 0 : running + 11 + name.size();
      const bool whole = behind > 0 && (behind == line.size() || (!std::isalnum(static_cast<unsigned char>(line[behind])) &&
                                                                  line[behind] != '-' && line[behind] != '.'));
      if (whole || line.find("error: " + name + ": task") != std::string::npos) accused_.push_back(word);
    }
  }

  // Removes dead hosts. True if any host is left.
  bool judge() {
    bool left = true;
    for (const auto& name : silent_of(hosts_.names(), o_.probe_limit))
      if (std::find(dead_.begin(), dead_.end(), name) == dead_.end()) dead_.push_back(name);
    for (const auto& name : dead_) {
      say(fmt::format("{} is dead: continuing without it", name));
      left = hosts_.drop(name);
    }
    if (dead_.empty())
      for (const auto& name : accused_)
        if (const auto text = hosts_.accuse(name); !text.empty()) say(text);
    return left;
  }

  Options o_;
  Hosts hosts_;
  std::filesystem::path out_;
  std::optional<GridExtents> grid_;
  std::string split_ = "filter";
  std::vector<std::string> accused_, dead_;  // of the last job
  std::set<std::string> trusted_;            // hosts that answer as long as they live
};

int run(int argc, char** argv) {
  CLI::App app("Keeps a training alive when ranks or nodes die: restarts it on the remaining ranks, from the newest checkpoint.",
               "elastic");
  Options o;
  add_options(app, o);
  if (const int code = tool::parse(app, argc, argv); code >= 0) return code;
  return tool::finish(app, [&] {
    if (!leave_launcher("elastic")) return 2;
    const auto launcher = o.launcher;
    complete(o);
    for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2}) {
      struct sigaction action {};
      action.sa_handler = note;
      action.sa_flags = SA_RESTART;
      sigaction(signal, &action, nullptr);
    }
    Elastic elastic(o);
    require_known_hosts(o.hosts, launcher, o.probe, o.probe_limit);
    return elastic.run();
  });
}

}  // namespace
}  // namespace mpigrad::elastic

int main(int argc, char** argv) {
  if (argc > 3 && std::string(argv[1]) == "rank" && std::string(argv[2]) == "--")
    return mpigrad::elastic::run_rank({argv + 3, argv + argc});
  return mpigrad::elastic::run(argc, argv);
}
