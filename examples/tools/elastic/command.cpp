#include "examples/tools/elastic/command.h"

#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <thread>
#include <utility>

#include "comm/transport/launcher.h"
#include "examples/tools/elastic/job.h"
#include "examples/tools/elastic/plan.h"
#include "framework/base/joined.h"
#include "framework/base/printable.h"
#include "models/trainer/recipe/recipe.h"
#include "models/trainer/tool/together.h"

namespace mpigrad::elastic {

using tool::UsageError;

bool under_slurm() { return std::getenv("SLURM_JOB_ID") && std::getenv("SLURM_JOB_NODELIST"); }

std::vector<std::string> allocated_hosts() {
  std::vector<std::string> hosts;
  std::istringstream lines(output_of("scontrol show hostnames"));
  for (std::string name; std::getline(lines, name);) hosts.push_back(name);
  return hosts;
}

std::string srun_of_this_mpi() {
  const char* chosen = std::getenv("SLURM_MPI_TYPE");
  const auto type = chosen && *chosen ? std::string() : std::string(slurm_mpi_type(mpi_library_version()));
  return srun_with_type(type, type.empty() ? std::string() : output_of("srun --mpi=list 2>&1"));
}

std::string srun_with_type(const std::string& type, const std::string& list) {
  if (type.empty()) return "srun";
  Words types;
  std::istringstream words(list);
  for (std::string word; words >> word;) types.push_back(word);
  const auto listed = [&](const std::string& name) { return std::find(types.begin(), types.end(), name) != types.end(); };
  if (listed("none") && !listed(type))  // every Slurm has the type none: this is a list
    throw UsageError(
        fmt::format("srun --mpi=list has no {0}, by which the {1} of this build starts its ranks: install Slurm's plugin {0}, "
                    "use --launcher, or set SLURM_MPI_TYPE",
                    type, mpi_library().empty() ? "MPI" : mpi_library()));
  return fmt::format("srun --mpi={}", type);
}

std::string host_name() {
  std::string name(256, '\0');
  gethostname(name.data(), name.size() - 1);
  name.resize(name.find('\0'));
  return name;
}

int cores_here() {
  if (const char* slurm = std::getenv("SLURM_CPUS_ON_NODE"); slurm && std::atoi(slurm) > 0) return std::atoi(slurm);
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

namespace {

bool has_program(const std::string& name) {
  const auto is_program = [](const std::string& path) {
    struct stat about {};
    return stat(path.c_str(), &about) == 0 && S_ISREG(about.st_mode) && access(path.c_str(), X_OK) == 0;
  };
  bool found = false;
  if (name.find('/') != std::string::npos) found = is_program(name);
  else if (const char* path = std::getenv("PATH")) {
    std::istringstream folders(path);
    for (std::string folder; std::getline(folders, folder, ':');)
      found |= is_program(fmt::format("{}/{}", folder.empty() ? "." : folder, name));
  }
  return found;
}

}  // namespace

std::string mpiexec_of_this_mpi(bool on_hosts) {
  return mpiexec_for(mpi_library(), output_of("mpiexec --version 2>&1"), on_hosts,
                     [](const char* name) { return has_program(name); });
}

std::string mpiexec_for(std::string_view library, std::string_view version, bool on_hosts,
                        const std::function<bool(const char*)>& has) {
  const bool open = library == "Open MPI";
  const auto says = [&](std::string_view words) { return version.find(words) != std::string_view::npos; };
  std::string program = "mpiexec";
  // Debian's names.
  const char* own = open ? "mpiexec.openmpi" : "mpiexec.mpich";
  if ((says("OpenRTE") || says("Open MPI") || says("PRRTE")) != open && !library.empty() && has(own)) program = own;
  program += " -n {ranks}";
  if (open) program += " --oversubscribe --bind-to none";  // as MPICH's does
  if (on_hosts) program += open ? " --map-by ppr:{ranks_per_host}:node --host {hosts}" : " -ppn {ranks_per_host} -hosts {hosts}";
  return program;
}

void require_program(const std::string& name) {
  if (!has_program(name)) throw UsageError(fmt::format("there is no program {}", name));
}

bool leave_launcher(const std::string& program) {
  if (const auto launcher = launcher_of_environment(); launcher.processes > 1) {
    if (launcher.rank > 0) return false;
    throw UsageError(
        fmt::format("{} is one process, which starts ranks itself, and {} started {}: run it without a launcher, or with -n 1",
                    program, launcher.name, launcher.processes));
  }
  std::vector<std::string> names;
  for (char** entry = environ; *entry; ++entry) {
    const std::string name(*entry, std::find(*entry, *entry + std::strlen(*entry), '='));
    for (const auto* prefix : {"PMI_", "PMIX_", "OMPI_COMM_WORLD_", "HYDI_"})
      if (name.starts_with(prefix)) names.push_back(name);
  }
  for (const auto& name : names) unsetenv(name.c_str());
  return true;
}

void require_host_names(const std::vector<std::string>& hosts) {
  const auto made_of = [](std::string_view text, std::string_view more) {
    return !text.empty() && text.front() != '-' && std::all_of(text.begin(), text.end(), [&](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || more.find(c) != std::string_view::npos;
    });
  };
  const auto balanced = [](std::string_view text) {
    int open = 0;
    for (const char c : text)
      if ((c == '[' && ++open > 1) || (c == ']' && --open < 0)) return false;
    return open == 0;
  };
  for (const auto& host : hosts) {
    const std::string_view name = host;
    const auto at = name.find('@');
    const bool user = at != std::string_view::npos;
    if ((user && !made_of(name.substr(0, at), ".-_")) || !made_of(user ? name.substr(at + 1) : name, ".-_:[]") || !balanced(name))
      throw UsageError(
          fmt::format("--hosts are names, not '{}': letters, digits and . - _ : [ ], optionally after USER@; not "
                      "beginning with -; each [ with its ]",
                      printable(host)));
    if (std::count(hosts.begin(), hosts.end(), host) > 1)
      throw UsageError(fmt::format("--hosts are names, each only once: {}", host));
  }
}

std::string without_ranks(const std::string& host) {
  const auto colon = host.rfind(':');
  if (colon == std::string::npos || colon + 1 == host.size()) return host;
  const bool number = host.find_first_not_of("0123456789", colon + 1) == std::string::npos;
  const bool plain = host.find(':') == colon || (colon > 0 && host[colon - 1] == ']');  // otherwise it is an IPv6 address
  return number && plain ? host.substr(0, colon) : host;
}

bool is_this_host(const std::string& host) {
  const auto name = without_ranks(host);
  return name == host_name() || name == "localhost";
}

namespace {

// Asks all hosts at once. Returns those whose command ended with the exit code `failed`; without `failed`, those with a code
// other than 0.
std::vector<std::string> ask_all(std::vector<std::pair<std::string, Question>> questions, std::optional<int> failed) {
  std::vector<std::string> names;
  for (auto& [host, question] : questions) {
    while (!question.answer()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (failed ? question.code() == *failed : question.code() != 0) names.push_back(host);
  }
  return names;
}

// The hosts that neither the name service nor the probe knows.
std::vector<std::string> unknown_hosts(const std::vector<std::string>& hosts, const std::string& probe, double limit) {
  constexpr double patience = 8, most = 9.5;
  constexpr int no_such_name = 2;  // of getent; any other failure says nothing about the name
  if (!has_program("getent")) return {};
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::pair<std::string, Question>> questions;
  for (const auto& host : hosts) {
    if (is_this_host(host)) continue;
    auto name = without_ranks(host.substr(host.find('@') + 1));
    if (name.starts_with('[')) name = name.substr(1, name.find(']') - 1);  // an IPv6 address
    questions.emplace_back(host, Question({"getent", "ahosts", name}, patience));
  }
  const auto unresolved = ask_all(std::move(questions), no_such_name);
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
  std::vector<std::pair<std::string, Question>> probes;
  for (const auto& host : unresolved)  // ssh may know names that the name service does not
    probes.emplace_back(host, Question(fill(probe, {{"host", without_ranks(host)}}), std::min(limit, most - passed.count())));
  return ask_all(std::move(probes), std::nullopt);
}

}  // namespace

std::string default_probe() {
  return under_slurm() ? "srun --nodes=1 --ntasks=1 --overlap --nodelist={host} true"
                       : "ssh -o BatchMode=yes -o ConnectTimeout=5 -- {host} true";
}

void require_known_hosts(const std::vector<std::string>& hosts, const std::string& launcher, const std::string& probe,
                         double limit) {
  if (launcher.empty() && under_slurm()) {
    const auto allocated = allocated_hosts();
    for (const auto& host : hosts)
      if (!allocated.empty() && std::find(allocated.begin(), allocated.end(), host) == allocated.end())
        throw UsageError(
            fmt::format("--hosts {}: the allocation has no host of that name, but {}", host, joined(allocated, ",")));
    return;
  }
  if (!launcher.empty() && launcher.find("{hosts}") == std::string::npos) return;
  if (const auto unknown = unknown_hosts(hosts, probe, limit); !unknown.empty())
    throw UsageError(
        fmt::format("--hosts {}: there is no host of that name: the name service does not know it, and it does not answer "
                    "to: {}",
                    joined(unknown, ","), probe));
}

bool has_option(const Words& command, const std::string& option) {
  return std::any_of(command.begin(), command.end(),
                     [&](const std::string& word) { return word == option || word.starts_with(option + "="); });
}

std::optional<std::string> value_of(const Words& command, const std::string& option) {
  for (std::size_t i = 0; i < command.size(); ++i) {
    if (command[i] == option && i + 1 < command.size()) return command[i + 1];
    if (command[i].starts_with(option + "=")) return command[i].substr(option.size() + 1);
  }
  return std::nullopt;
}

Words with_value(Words command, const std::string& option, const std::string& value) {
  bool found = false;
  for (std::size_t i = 0; i < command.size(); ++i) {
    if (command[i] == option && i + 1 < command.size()) command[i + 1] = value, found = true;
    else if (command[i].starts_with(option + "=")) command[i] = fmt::format("{}={}", option, value), found = true;
  }
  if (!found) command.push_back(option), command.push_back(value);
  return command;
}

namespace {

constexpr const char* grid_key = "grid.extents=";

// True if word i is the value of --set, or --set=VALUE itself, and sets the grid.
bool sets_grid(const Words& command, std::size_t i) {
  return (i > 0 && command[i - 1] == "--set" && command[i].starts_with(grid_key)) ||
         command[i].starts_with(std::string("--set=") + grid_key);
}

}  // namespace

std::optional<std::string> grid_of(const Words& command) {
  if (auto grid = value_of(command, "--grid")) return grid;
  std::optional<std::string> set, recipe;
  for (std::size_t i = 0; i < command.size(); ++i) {
    if (sets_grid(command, i)) set = command[i].substr(command[i].find(grid_key) + std::string(grid_key).size());
    const bool value = i > 0 && (command[i - 1] == "--out" || command[i - 1] == "--set" || command[i - 1] == "--resume" ||
                                 command[i - 1] == "--data" || command[i - 1] == "--weights");
    if (!recipe && !value && !command[i].starts_with('-') && command[i].ends_with(".toml")) recipe = command[i];
  }
  return set || !recipe ? set : trainer::value_in_recipe(*recipe, "grid.extents");
}

Words with_grid(const Words& command, const std::string& grid) {
  Words words;
  for (std::size_t i = 0; i < command.size(); ++i) {
    const bool before = command[i] == "--set" && i + 1 < command.size() && sets_grid(command, i + 1);
    if (!before && !sets_grid(command, i)) words.push_back(command[i]);
  }
  return with_value(words, "--grid", grid);
}

std::string last_line(const std::filesystem::path& output) {
  std::ifstream stream(output, std::ios::binary | std::ios::ate);
  if (!stream.good()) return {};
  constexpr std::int64_t most = 8192;
  const auto size = static_cast<std::int64_t>(stream.tellg());
  stream.seekg(std::max<std::int64_t>(0, size - most));
  std::string last, text{std::istreambuf_iterator<char>(stream), {}};
  std::replace(text.begin(), text.end(), '\r', '\n');
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    for (const auto* launcher : {"====", "[proxy:", "[mpiexec@", "srun:", "slurmstepd:"})
      if (!last.empty() && line.starts_with(launcher)) return last;
    for (char& c : line)
      if (static_cast<unsigned char>(c) < 0x20) c = ' ';
    const auto begin = line.find_first_not_of(" ="), end = line.find_last_not_of(' ');
    if (begin == std::string::npos) continue;
    line = line.substr(0, end + 1);
    last = line.size() > 300 ? fmt::format("{} ...", line.substr(0, 300)) : line;
  }
  return last;
}

}  // namespace mpigrad::elastic
