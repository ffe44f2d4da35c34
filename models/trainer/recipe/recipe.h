#pragma once
// Recipes: TOML files that set the keys of a command.

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "models/trainer/recipe/keys.h"
#include "models/trainer/tool/together.h"

namespace mpigrad::trainer {

// Entries of a section [origin], written by the trainer: where the recipe comes from.
using Origin = std::map<std::string, std::string>;

// Sets the keys of a recipe file. `include = "base.toml"` (or a list), relative to the file, comes first and is overridden. The
// keys `program` and `command` say which program and command the recipe is for. Rank 0 reads. UsageError, with file and line: no
// such file, TOML's errors, keys that do not exist, values of another type or out of range, a recipe for another program or
// command, files that include each other. Collective.
Origin read_recipe(Transport& transport, const std::filesystem::path& path, const std::string& program,
                   const std::string& command, Keys& keys);

// The text of a key in a recipe file, on this process only, for programs that start trainers; none: the recipe does not set it.
// UsageError: as read_recipe(), but keys are not checked.
std::optional<std::string> value_in_recipe(const std::filesystem::path& path, const std::string& key);

}  // namespace mpigrad::trainer
