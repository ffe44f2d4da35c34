#include "models/trainer/tool/command_line.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <sstream>

#include "comm/hdf5/io_thread.h"
#include "comm/process/problem.h"
#include "comm/process/standard_streams.h"
#include "comm/transport/environment.h"
#include "framework/base/joined.h"
#include "framework/base/new_file.h"
#include "framework/base/printable.h"
#include "models/trainer/recipe/rule.h"
#include "models/trainer/recipe/version.h"

namespace mpigrad::tool {
namespace {

// A rule of keys (models/trainer/recipe/rule.h) as a check of CLI11.
CLI::Validator validator(const trainer::Rule& rule, const char* name) {
  return {[problem = rule.problem](std::string& text) { return problem(text); }, rule.text, name};
}

// The argument at index `place` together with its option, or the option with its value.
std::string argument_at(const std::vector<std::string>& arguments, std::size_t place) {
  const auto option = [&](std::size_t i) { return i < arguments.size() && arguments[i].starts_with('-'); };
  if (place >= arguments.size()) return "no more";
  if (!option(place))
    return fmt::format("'{}{}'", place > 0 && option(place - 1) ? arguments[place - 1] + " " : "", arguments[place]);
  const bool value = place + 1 < arguments.size() && !option(place + 1);
  return fmt::format("'{}{}'", arguments[place], value ? " " + arguments[place + 1] : "");
}

// The exit code of a program after its last output.
int printed(Transport* transport) {
  const auto check = [] {
    if (const auto problem = output_problem(); !problem.empty()) throw Error(problem);
  };
  try {
    if (transport != nullptr) together(*transport, check);
    else check();
  } catch (const std::exception& error) {
    if (transport == nullptr || transport->rank() == 0) fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}

// The error of a tool with commands that was started without one.
std::optional<std::string> command_problem(const CLI::App& app, int argc, char** argv) {
  if (app.get_require_subcommand_min() == 0 || !app.get_subcommands().empty()) return std::nullopt;
  std::vector<std::string> names;
  for (const auto* command : app.get_subcommands([](const CLI::App*) { return true; })) names.push_back(command->get_name());
  if (argc < 2 || argv[1][0] == '-') return fmt::format("a command is missing: {}", joined(names, ", "));
  return fmt::format("there is no command '{}': {}", printable(argv[1]), joined(names, ", "));
}

// The error of a flag that no command here has, with the nearest one; none: all words that are left over are no flags.
std::optional<std::string> flag_problem(const CLI::App& app) {
  const auto left = app.remaining(true);
  const auto unknown = std::find_if(left.begin(), left.end(), [](const std::string& word) { return word.starts_with("--"); });
  if (unknown == left.end()) return std::nullopt;
  const auto name = unknown->substr(0, unknown->find('='));
  std::string nearest;
  const auto search = [&](const CLI::App& at) {
    for (const auto* option : at.get_options([](const CLI::Option* each) { return !each->get_group().empty(); }))
      for (const auto& each : option->get_lnames())
        if (nearest.empty() || edit_distance(name, "--" + each) < edit_distance(name, nearest)) nearest = "--" + each;
  };
  search(app);
  for (const auto* command : app.get_subcommands()) search(*command);
  if (nearest == name)
    return fmt::format("{} is given {} the command", name, app.get_option_no_throw(name) != nullptr ? "before" : "after");
  const bool close = !nearest.empty() && edit_distance(name, nearest) <= std::max<std::size_t>(2, name.size() / 4);
  return fmt::format("there is no flag '{}'; {}", printable(name),
                     close ? fmt::format("did you mean '{}'?", nearest) : "--help lists the flags");
}

int parse_on(CLI::App& app, int argc, char** argv, Transport* transport) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond `ulimit -f` is then an error of the write
  const int rank = transport != nullptr ? transport->rank() : 0;
  if (app.get_footer().empty())
    app.footer(
        std::string("Under mpiexec every process is a rank; --transport threads --ranks P runs P ranks in one process.\n") +
        environment_help);
  app.set_version_flag("--version", fmt::format("mpigrad {}, commit {}", trainer::version(), trainer::commit()));
  std::optional<std::string> problem;
  std::ostringstream help;
  bool helped = false;
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    helped = error.get_exit_code() == 0;
    if (helped) app.exit(error, help, help);
    else problem = command_problem(app, argc, argv);
    if (!helped && !problem && dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) problem = flag_problem(app);
    if (!helped && !problem) problem = error.what();
  }
  try {
    if (transport != nullptr) {
      const std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);  // argv[0] may differ between nodes
      require_same(*transport, arguments, [&](const Difference& difference) {
        throw UsageError(fmt::format("all ranks need the same arguments: rank 0 has {}, rank {} has {}",
                                     argument_at(difference.first, difference.place), difference.rank,
                                     argument_at(arguments, difference.place)));
      });
      together(*transport, [&] {  // a file may be missing on one node
        if (problem) throw UsageError(*problem);
      });
    } else if (problem) {
      throw UsageError(*problem);
    }
  } catch (const UsageError& error) {
    return usage_error(app, error.what(), rank);
  }
  if (!helped) return -1;
  if (rank == 0) fmt::print("{}", help.str());
  return printed(transport);
}

}  // namespace

CLI::Validator any_number() { return validator(trainer::any_number(), "number"); }
CLI::Validator number_above(double low) { return validator(trainer::above(low), "number"); }
CLI::Validator number_from(double low) { return validator(trainer::from(low), "number"); }
CLI::Validator number_between(double low, double high) { return validator(trainer::between(low, high), "number"); }
CLI::Validator whole_number(std::int64_t low, std::int64_t high) { return validator(trainer::whole(low, high), "whole number"); }

std::set<std::string> given_options(const CLI::App& app) {
  std::set<std::string> names;
  for (const auto* option : app.get_options([](const CLI::Option* each) { return each->count() > 0; }))
    if (!option->get_lnames().empty()) names.insert("--" + option->get_lnames().front());
  for (const auto* command : app.get_subcommands()) names.merge(given_options(*command));
  return names;
}

void warn_of_no_effect(const std::set<std::string>& given, const std::set<std::string>& effective, const std::string& what,
                       int rank) {
  std::vector<std::string> idle;
  std::set_difference(given.begin(), given.end(), effective.begin(), effective.end(), std::back_inserter(idle));
  if (rank == 0 && !idle.empty())
    fmt::print(stderr, "warning: {} {} no effect with {}\n", joined(idle, ", "), idle.size() == 1 ? "has" : "have", what);
}

int usage_error(const CLI::App& app, std::string message, int rank) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  if (rank == 0) fmt::print(stderr, "{}: {}\n", app.get_name(), message);
  return 2;
}

int parse(CLI::App& app, int argc, char** argv) {
  keep_standard_streams(), name_memory_errors();
  return parse_on(app, argc, argv, nullptr);
}
int parse(CLI::App& app, int argc, char** argv, Transport& transport) {
  std::signal(SIGUSR2, SIG_IGN);  // trainings handle it; sent earlier or later it must not end the process
  return parse_on(app, argc, argv, &transport);
}

int finish(const CLI::App& app, Transport& transport, const std::function<int()>& f) {
  // Reads ahead that are no longer needed must end before the process closes HDF5.
  struct Drain {
    ~Drain() {
      io_thread().run([] {});
    }
  } drain;
  ErrorRendezvous rendezvous(transport);
  try {
    const int code = f();
    return code != 0 ? code : printed(&transport);
  } catch (const UsageError& error) {
    return usage_error(app, error.what(), transport.rank());
  } catch (const SharedError& error) {
    if (transport.rank() == 0) fmt::print(stderr, "{}\n", error.what());
    return 1;
  } catch (const std::exception& error) {
    if (transport.size() == 1 && dynamic_cast<const FileInTheWay*>(&error) != nullptr) return usage_error(app, error.what(), 0);
    if (!rendezvous.all_end(problem_of(error))) throw;
    return 1;
  }
}

int finish(const CLI::App& app, const std::function<int()>& f) {
  try {
    const int code = f();
    return code != 0 ? code : printed(nullptr);
  } catch (const UsageError& error) {
    return usage_error(app, error.what(), 0);
  } catch (const FileInTheWay& error) {
    return usage_error(app, error.what(), 0);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", problem_of(error));
    return 1;
  }
}

void print_once(Transport& transport, const std::string& text) {
  together(transport, [&] {
    if (transport.rank() == 0) fmt::print("{}", text);
  });
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  // Links, pipes and devices of the system: /dev/stdout, and /dev/fd/63, a shell's name for a pipe.
  const auto folder = path.parent_path();
  if (folder == "/dev" || folder == "/dev/fd" || folder == "/proc/self/fd") return write_to_device(path, text, "out");
  write_new_file(path, text, "out");
}

std::string to_text(const nlohmann::ordered_json& document) {
  return document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace mpigrad::tool
