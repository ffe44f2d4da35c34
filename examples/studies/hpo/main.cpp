// Searches hyper-parameters: trials are jobs of the allocation, several at a time. Those that crash, diverge or hang count as
// failed, and the same command resumes an interrupted search.
//
//   build/examples/hpo --space examples/studies/hpo/mnist.toml --set data=train-images-idx3-ubyte --strategy grid --out hpo-out
//   build/examples/hpo --space examples/studies/hpo/cosmoflow.toml --set data=universes --strategy hyperband --slots 8
//   --ranks-per-trial
//   4
//
// Prints the table of trials, the best first, and a command for the best; README.md here has an example.

#include <algorithm>
#include <atomic>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "examples/studies/hpo/report.h"
#include "examples/tools/elastic/command.h"
#include "models/trainer/run.h"
#include "models/trainer/tool/command_line.h"

extern char** environ;

namespace mpigrad::hpo {
namespace {

using tool::UsageError;

std::atomic<int> asked{0};
extern "C" void note(int signal) { asked = signal; }

struct Options {
  std::string space, compare;
  std::vector<std::string> set;
  PlaceOptions places;
  SearchOptions search;
  bool json = false, dry_run = false;
};

void add_options(CLI::App& app, Options& o) {
  auto& s = o.search.strategy;
  app.add_option("--space", o.space, "TOML: the program, its metric, its parameters")->required()->group("Search");
  app.add_option("--set", o.set, "NAME=VALUE, of the file's [variables]; may be given several times")
      ->allow_extra_args(false)
      ->group("Search");
  app.add_option("--strategy", s.name,
                 "grid: all points; random; halving: of many short trials the best continue; hyperband: brackets of halving")
      ->check(CLI::IsMember({"grid", "random", "halving", "hyperband"}))
      ->capture_default_str()
      ->group("Search");
  app.add_option("--trials", s.trials, "number of trials, for random and halving; for grid the first ones")
      ->check(tool::whole_number(1, 1000000))
      ->group("Search");
  app.add_option("--seed", s.seed, "seed of settings drawn at random")
      ->check(tool::whole_number(0))
      ->capture_default_str()
      ->group("Search");
  app.add_option("--eta", s.eta, "of halving and hyperband: one in so many continues, with so many times the resource")
      ->check(tool::whole_number(2, 1000))
      ->capture_default_str()
      ->group("Search");
  app.add_option("--most", s.most, "largest resource of a trial, in place of the file's")
      ->check(tool::whole_number(1, 1000000000))
      ->group("Search");
  app.add_flag("--dry-run", o.dry_run, "print trials or brackets, and run nothing")->group("Search");
  app.add_option("--ranks-per-trial", o.places.ranks, "")
      ->check(tool::whole_number(1, 1 << 20))
      ->capture_default_str()
      ->group("Ranks");
  app.add_option("--slots", o.places.slots, "trials at a time (default: as many as fit on the cores)")
      ->check(tool::whole_number(1, 1 << 20))
      ->group("Ranks");
  app.add_option("--threads", o.places.threads, "threads of a rank: OMP_NUM_THREADS")
      ->check(tool::whole_number(1, 1 << 16))
      ->capture_default_str()
      ->group("Ranks");
  app.add_option("--hosts", o.places.hosts,
                 "names, separated by commas; under Slurm those of the allocation, else this one. Letters, digits and . - _ : [ "
                 "], perhaps after USER@")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group("Ranks");
  app.add_option("--cores", o.places.cores, "cores of a host (default: those of this host)")
      ->check(tool::whole_number(1, 1 << 20))
      ->group("Ranks");
  app.add_option(
         "--launcher", o.places.launcher,
         "words that start a trial's ranks, with {ranks}, {hosts}, {nodes}, {ranks_per_host}, {threads} and {slot} (from 0); "
         "srun under Slurm, else mpiexec, and nothing for one rank on this host")
      ->group("Ranks");
  app.add_option("--compare", o.compare,
                 "ranks per trial x trials at a time, as 1x2,2x1: runs the same search with each and compares the times")
      ->group("Ranks");
  app.add_option("--limit", o.search.limit, "seconds after which a trial counts as hung; 0: never")
      ->check(tool::number_from(0))
      ->capture_default_str()
      ->group("Failures");
  app.add_option("--stall", o.search.stall,
                 "seconds without a new byte of output or metrics, after which a trial counts as hung; 0: never")
      ->check(tool::number_from(0))
      ->capture_default_str()
      ->group("Failures");
  app.add_flag("--retry-failed", o.search.retry_failed, "runs failed trials again")->group("Failures");
  app.add_option("--out", o.search.out, "folder of results; the same search is resumed")->default_str("hpo-out")->group("Output");
  app.add_flag("--overwrite", o.search.overwrite, "remove the search in the folder")->group("Output");
  app.add_flag("--quiet", o.search.quiet, "no line for each trial")->group("Output");
  app.add_flag("--json", o.json, "print one JSON document and nothing else")->group("Output");
  app.footer(
      "Exit codes: 0 the search has ended; 75 a signal has ended it, and the same command resumes it; 2 wrong arguments;\n"
      "1 all trials failed. SIGTERM and SIGINT end the trials; a second one kills them.");
  o.search.out = "hpo-out";
}

Settings settings_of(const std::vector<std::string>& texts) {
  Settings result;
  for (const auto& text : texts) {
    const auto sign = text.find('=');
    if (sign == std::string::npos || sign == 0) throw UsageError(fmt::format("--set is NAME=VALUE, not '{}'", text));
    if (!result.emplace(text.substr(0, sign), text.substr(sign + 1)).second)
      throw UsageError(fmt::format("--set gives {} twice", text.substr(0, sign)));
  }
  return result;
}

// Parses "1x2,2x1": ranks per trial and trials at a time.
std::vector<std::pair<int, int>> shapes_of(const std::string& text) {
  std::vector<std::pair<int, int>> result;
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find(',', begin), text.size());
    std::pair<int, int> shape;
    const char *first = text.data() + begin, *last = text.data() + end;
    const auto [middle, error] = std::from_chars(first, last, shape.first);
    const bool sign = error == std::errc() && middle != last && *middle == 'x';
    const auto [stop, wrong] = sign ? std::from_chars(middle + 1, last, shape.second) : std::from_chars_result{first, error};
    if (!sign || wrong != std::errc() || stop != last || shape.first < 1 || shape.second < 1)
      throw UsageError(fmt::format("--compare is a list such as 1x2,2x1, not '{}'", text));
    if (std::find(result.begin(), result.end(), shape) != result.end())
      throw UsageError(fmt::format("--compare has {}x{} twice", shape.first, shape.second));
    result.push_back(shape), begin = end + 1;
  }
  return result;
}

int exit_code(const Search& search) {
  const auto ranked = search.ranked();
  return !ranked.empty() && ranked[0].value ? 0 : 1;
}
int interrupted(const Options& o) {
  fmt::print(stderr, "hpo: ended by a signal; the same command resumes {}\n", o.search.out.string());
  return trainer::to_be_resumed;
}

int search_once(const Space& space, const Plan& plan, const Options& o) {
  Search search(space, plan, Places(o.places), o.search);
  if (search.finished_before() > 0 && !o.search.quiet)
    fmt::print(stderr, "going on with {}: {} trials or rungs have ended\n", o.search.out.string(), search.finished_before());
  if (!search.run([] { return asked.exchange(0); })) return interrupted(o);
  write_files(search);
  fmt::print("{}", o.json ? tool::to_text(to_json(search)) + "\n" : table_of(search));
  return exit_code(search);
}

// Measures the same trials with few ranks each and many at a time, and the other way round.
int compare(const Space& space, const Plan& plan, const Options& o) {
  std::vector<std::pair<Options, Places>> runs;
  for (const auto& [ranks, slots] : shapes_of(o.compare)) {
    auto own = o;
    own.places.ranks = ranks, own.places.slots = slots;
    own.search.out /= fmt::format("compare-{}x{}", ranks, slots);
    runs.emplace_back(own, Places(own.places));  // if one does not fit, none begins
  }
  std::string table = " ranks per trial  trials at a time  done  failed   seconds    done per minute  speed-up\n";
  auto document = nlohmann::ordered_json::array();
  double first = 0;
  std::int64_t first_ended = 0;
  int code = 0;
  for (const auto& [own, places] : runs) {
    Search search(space, plan, places, own.search);
    if (!search.run([] { return asked.exchange(0); })) return interrupted(o);
    write_files(search);
    code = std::max(code, exit_code(search));
    // Until the last trial ended, without the time of interruptions.
    double seconds = 0;
    for (const auto& result : search.results()) seconds = std::max(seconds, result.at);
    const auto ranked = search.ranked();
    const auto ended = std::count_if(ranked.begin(), ranked.end(), [](const Result& each) { return each.value.has_value(); });
    const auto rate = 60 * static_cast<double>(ended) / seconds;
    if (document.empty()) first = seconds, first_ended = ended;
    // Failed trials end early.
    const bool same = ended == first_ended && ended > 0;
    table += fmt::format("{:16}  {:16}  {:4}  {:6}  {:8.1f}  {:17.2f}  {:>8}\n", places.ranks(), places.slots(), ended,
                         static_cast<std::int64_t>(ranked.size()) - ended, seconds, rate,
                         same ? fmt::format("{:.2f}", first / seconds) : std::string("-"));
    document.push_back({{"ranks_per_trial", places.ranks()},
                        {"trials_at_a_time", places.slots()},
                        {"trials", ranked.size()},
                        {"done", ended},
                        {"seconds", seconds},
                        {"done_per_minute", rate},
                        {"speedup", same ? nlohmann::ordered_json(first / seconds) : nlohmann::ordered_json()}});
  }
  fmt::print("{}", o.json ? tool::to_text(document) + "\n" : table);
  return code;
}

int run(int argc, char** argv) {
  CLI::App app("Searches hyper-parameters of a program that trains: many trials, several at a time.", "hpo");
  Options o;
  add_options(app, o);
  if (const int code = tool::parse(app, argc, argv); code >= 0) return code;
  return tool::finish(app, [&] {
    if (!elastic::leave_launcher("hpo")) return 2;
    const auto space = read_space(o.space, settings_of(o.set));
    const auto plan = make_plan(space, o.search.strategy);
    if (o.dry_run) {
      fmt::print("{}", to_string(space, plan));
      return 0;
    }
    if (!o.compare.empty() &&
        (tool::given_options(app).contains("--slots") || tool::given_options(app).contains("--ranks-per-trial")))
      throw UsageError("--compare sets --slots and --ranks-per-trial itself");
    if (o.compare.empty()) static_cast<void>(Places(o.places));
    else
      for (const auto& [ranks, slots] : shapes_of(o.compare)) {
        auto places = o.places;
        places.ranks = ranks, places.slots = slots;
        static_cast<void>(Places(places));
      }
    check_program(space);
    setenv("OMP_NUM_THREADS", std::to_string(o.places.threads).c_str(), 1);
    // Each launcher that binds ranks to cores would use the first cores.
    for (const auto* name : {"OMPI_MCA_hwloc_base_binding_policy", "PRTE_MCA_hwloc_default_binding_policy"})
      setenv(name, "none", 0);
    for (const int signal : {SIGTERM, SIGINT}) {
      struct sigaction action {};
      action.sa_handler = note;
      action.sa_flags = SA_RESTART;
      sigaction(signal, &action, nullptr);
    }
    return o.compare.empty() ? search_once(space, plan, o) : compare(space, plan, o);
  });
}

}  // namespace
}  // namespace mpigrad::hpo

int main(int argc, char** argv) { return mpigrad::hpo::run(argc, argv); }
