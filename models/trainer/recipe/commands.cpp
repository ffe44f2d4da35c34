#include "models/trainer/recipe/commands.h"

#include <CLI/CLI.hpp>
#include <deque>
#include <nlohmann/json.hpp>

#include "models/trainer/recipe/flags.h"
#include "models/trainer/recipe/new_program.h"
#include "models/trainer/recipe/recipe.h"

namespace mpigrad::trainer {
namespace {

// The arguments given to one command.
struct Parsed {
  Keys keys{};
  KeyFlags flags{keys};
  std::string recipe{};
  std::vector<std::string> settings{};  // values of --set
  bool lists_keys = false;
  CLI::App* app = nullptr;
};

void declare(CLI::App& app, const Command& command, Parsed& parsed) {
  auto& sub = *app.add_subcommand(command.name, command.help);
  parsed.app = &sub;
  command.keys(parsed.keys);
  if (command.argument.empty()) sub.add_option("recipe", parsed.recipe, "recipe: a TOML file of keys");
  else sub.add_option("data", parsed.recipe, parsed.keys[command.argument].help);
  sub.add_option("--set", parsed.settings, "KEY=VALUE: a key of the recipe; may be given several times")->allow_extra_args(false);
  sub.add_flag("--keys", parsed.lists_keys, "print all keys with types, defaults, ranges and units; with --json as JSON");
  if (command.flags) command.flags(sub);
  parsed.flags.add_to(sub, command.all_flags);
}

// Sets keys from the recipe, then from --set, then from flags. Collective.
void read_keys(Transport& transport, const std::string& program, const Command& command, Parsed& parsed) {
  auto& o = command.options;
  o.program = program, o.command = command.name;
  const bool is_recipe = command.argument.empty(), given = !parsed.recipe.empty();
  if (given && is_recipe) o.origin = read_recipe(transport, parsed.recipe, program, command.name, parsed.keys);
  if (given && !is_recipe) parsed.keys.set(command.argument, {parsed.recipe}, "");
  std::set<std::string> set;
  for (const auto& setting : parsed.settings) parsed.keys.set_text(setting), set.insert(setting.substr(0, setting.find('=')));
  parsed.flags.apply(set);
  o.given = parsed.keys.given();
  o.recipe = parsed.keys.toml();
}

int print_keys(Transport& transport, const Command& command, const Keys& keys) {
  tool::print_once(transport, command.options.json ? tool::to_text(keys.json()) + "\n" : keys.table());
  return 0;
}

}  // namespace

int run_commands(const std::shared_ptr<Transport>& transport, int argc, char** argv, const std::string& program,
                 const std::string& help, const std::vector<Command>& commands) {
  CLI::App app(help, program);
  app.require_subcommand(1);
  std::deque<Parsed> parsed;
  for (const auto& command : commands) declare(app, command, parsed.emplace_back());
  std::string name;
  auto* makes = app.add_subcommand("new", "write a trainer to start from: a source, a meson.build and a recipe");
  makes->add_option("name", name, "name of the program and of its folder")->required();
  if (const int code = tool::parse(app, argc, argv, *transport); code >= 0) return code;
  return tool::finish(app, *transport, [&] {
    if (*makes) {
      std::string text;
      tool::together(*transport, [&] {
        if (transport->rank() == 0) text = new_program(name);
      });
      tool::print_once(*transport, text);
      return 0;
    }
    for (std::size_t i = 0; i < commands.size(); ++i) {
      if (!*parsed[i].app) continue;
      if (parsed[i].lists_keys) return print_keys(*transport, commands[i], parsed[i].keys);
      read_keys(*transport, program, commands[i], parsed[i]);
      apply_precision(commands[i].options);
      apply_device_options(commands[i].options);
      return commands[i].run(Communicator(transport));
    }
    return 2;
  });
}

}  // namespace mpigrad::trainer
