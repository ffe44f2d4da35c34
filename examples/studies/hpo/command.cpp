#include "examples/studies/hpo/command.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "examples/tools/elastic/command.h"
#include "examples/tools/elastic/job.h"
#include "examples/tools/elastic/plan.h"
#include "framework/base/joined.h"
#include "models/trainer/tool/command_line.h"

namespace mpigrad::hpo {
namespace {

using elastic::under_slurm;
using tool::UsageError;

// Runs a command and takes its output, errors included; false: it failed, or took too long.
bool succeeds_printing(const std::vector<std::string>& command, std::string& text) {
  auto path = (std::filesystem::temp_directory_path() / "mpigrad-hpo-XXXXXX").string();
  const int file = mkstemp(path.data());
  require(file >= 0, "[hpo] no file can be made in {}", std::filesystem::temp_directory_path().string());
  close(file);
  const struct Remove {
    const std::string& path;
    ~Remove() { unlink(path.c_str()); }
  } remove{path};
  elastic::Job job(command, path);
  bool ended = false;
  for (int i = 0; i < 6000 && !ended; ++i) {
    ended = job.watch(0, {});
    if (!ended) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (!ended) job.kill();
  std::ifstream stream(path);
  text.assign(std::istreambuf_iterator<char>(stream), {});
  return ended && job.code() == 0;
}

// True if a text has the option as a separate word.
bool names(const std::string& text, const std::string& option) {
  const auto part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_'; };
  for (auto at = text.find(option); at != std::string::npos; at = text.find(option, at + 1)) {
    const auto end = at + option.size();
    if ((at == 0 || !part(text[at - 1])) && (end == text.size() || !part(text[end]))) return true;
  }
  return false;
}

// Throws UsageError if the program's output for that option does not list all of these names.
void require_names(const Space& space, const char* asked, const std::set<std::string>& wanted, const char* kind) {
  auto asking = space.program;
  asking.emplace_back(asked);
  std::string text;
  if (!succeeds_printing(asking, text))
    throw UsageError(
        fmt::format("{} does not tell its {}s (a space file with help = false does not ask)", shell_text(asking), kind));
  for (const auto& name : wanted)
    if (!names(text, name))
      throw UsageError(
          fmt::format("{}: {} has no {} {} (its {} does not name it)", space.name, space.program[0], kind, name, asked));
}

}  // namespace

Places::Places(const PlaceOptions& o)
    : hosts_(o.hosts), launcher_(o.launcher), slots_(o.slots), ranks_(o.ranks), threads_(o.threads) {
  if (hosts_.empty() && under_slurm()) {
    hosts_ = elastic::allocated_hosts();
    if (hosts_.empty()) throw UsageError("scontrol show hostnames lists no hosts; use --hosts");
  }
  const bool here = hosts_.empty() || (hosts_.size() == 1 && elastic::is_this_host(hosts_[0]));
  if (hosts_.empty()) hosts_ = {"localhost"};
  elastic::require_host_names(hosts_);
  const int cores = o.cores > 0 ? o.cores : elastic::cores_here(), hosts = static_cast<int>(hosts_.size());
  if (threads_ > cores) throw UsageError(fmt::format("a rank has {} threads; a host has {} cores (--cores)", threads_, cores));
  ranks_per_host_ = std::min(ranks_, cores / threads_);
  hosts_per_trial_ = (ranks_ + ranks_per_host_ - 1) / ranks_per_host_;
  const int room = hosts_per_trial_ > 1 ? hosts / hosts_per_trial_ : hosts * (cores / (ranks_ * threads_));
  if (slots_ == 0) slots_ = room;
  if (room == 0 || slots_ > room)
    throw UsageError(
        fmt::format("{} trials at a time of {} ranks with {} threads do not fit: {} host{} of {} cores have room for "
                    "{} (--slots, --ranks-per-trial, --threads; --cores and --hosts describe the hosts)",
                    std::max(slots_, 1), ranks_, threads_, hosts, hosts == 1 ? "" : "s", cores, room));
  if (launcher_.empty() && under_slurm())
    launcher_ = elastic::srun_of_this_mpi() +
                " --exact --nodes={nodes} --ntasks={ranks} --cpus-per-task={threads} --nodelist={hosts} --kill-on-bad-exit=1";
  else if (launcher_.empty() && !here) launcher_ = elastic::mpiexec_of_this_mpi(true);
  else if (launcher_.empty() && ranks_ > 1) launcher_ = elastic::mpiexec_of_this_mpi(false);
  constexpr double limit = 10;
  elastic::require_known_hosts(hosts_, o.launcher, elastic::default_probe(), limit);
  if (const auto words = launcher(0); !words.empty()) elastic::require_program(words[0]);
}

std::vector<std::string> Places::launcher(int slot) const {
  if (launcher_.empty()) return {};
  const auto hosts = static_cast<int>(hosts_.size());
  std::string list;
  for (int i = 0; i < hosts_per_trial_; ++i)
    list += fmt::format("{}{}", i > 0 ? "," : "", hosts_[static_cast<std::size_t>((slot * hosts_per_trial_ + i) % hosts)]);
  return elastic::fill(launcher_, {{"ranks", std::to_string(ranks_)},
                                   {"hosts", list},
                                   {"nodes", std::to_string(hosts_per_trial_)},
                                   {"ranks_per_host", std::to_string(ranks_per_host_)},
                                   {"threads", std::to_string(threads_)},
                                   {"slot", std::to_string(slot)}});
}

std::vector<std::string> command_of(const Space& space, const Setting& setting, int resource, const std::filesystem::path& out) {
  auto words = space.program;
  const auto give = [&](const std::string& option, const std::string& value) {
    if (value.starts_with('-')) return words.push_back(fmt::format("{}={}", option, value));  // otherwise it looks like an option
    words.push_back(option), words.push_back(value);
  };
  const auto vary = [&](const std::string& name, bool flag, const std::string& value) {
    if (is_key(name)) words.insert(words.end(), {"--set", fmt::format("{}={}", name, value)});
    else if (!flag) give("--" + name, value);
    else if (value == "true") words.push_back("--" + name);
  };
  for (std::size_t i = 0; i < space.parameters.size(); ++i) vary(space.parameters[i].name, space.parameters[i].flag, setting[i]);
  if (!space.resource.empty()) vary(space.resource, false, std::to_string(resource));
  give(space.out, out.string());
  return words;
}

std::string shell_text(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) {
    const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
      return std::isalnum(c) != 0 || std::string_view("-_./=,:+@%").find(static_cast<char>(c)) != std::string_view::npos;
    });
    if (!text.empty()) text += ' ';
    if (plain) {
      text += word;
      continue;
    }
    text += '\'';
    for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    text += '\'';
  }
  return text;
}

std::string text_of(const Space& space, const Setting& setting) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < setting.size(); ++i) parts.push_back(fmt::format("{}={}", space.parameters[i].name, setting[i]));
  return joined(parts, " ");
}

void check_program(const Space& space) {
  elastic::require_program(space.program[0]);
  if (!space.help) return;
  std::set<std::string> options{space.out}, keys;
  const auto note = [&](const std::string& name) { is_key(name) ? keys.insert(name) : options.insert("--" + name); };
  for (const auto& parameter : space.parameters) note(parameter.name);
  if (!space.resource.empty()) note(space.resource);
  for (const auto& word : space.resume)
    if (word.starts_with("--")) options.insert(word.substr(0, word.find('=')));
  require_names(space, "--help", options, "option");
  if (!keys.empty()) require_names(space, "--keys", keys, "key");
}

}  // namespace mpigrad::hpo
