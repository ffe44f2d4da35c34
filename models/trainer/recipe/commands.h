#pragma once
// Commands of a trainer: PROGRAM COMMAND [recipe.toml] [--set KEY=VALUE ...] [flags].

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "models/trainer/options.h"
#include "models/trainer/recipe/keys.h"

namespace mpigrad::trainer {

struct Command {
  std::string name, help;
  Options& options;                            // the base of the options that the keys are bound to
  std::function<void(Keys& keys)> keys;        // declares the keys
  std::function<void(CLI::App& app)> flags{};  // adds flags that are not keys: add_run_flags()
  std::function<int(const Communicator& world)> run;
  bool all_flags = false;  // every key has a flag: for commands with few keys
  std::string argument{};  // the key that the argument gives, for commands without recipes; empty: the argument is a recipe
};

// Parses, reads the recipe, sets the keys (recipe, then --set, then flags), tells the libraries of precision and device, and runs
// the command. --keys prints the table of keys instead, with --json as JSON. Flags of earlier versions are refused with the key
// that replaces them. Returns the exit code; 2: arguments or recipes that make no sense. Collective.
int run_commands(const std::shared_ptr<Transport>& transport, int argc, char** argv, const std::string& program,
                 const std::string& help, const std::vector<Command>& commands);

}  // namespace mpigrad::trainer
