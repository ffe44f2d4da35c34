#pragma once
// What the command-line tools share: numbers as options, parsing, exit codes, JSON.

#include <CLI/CLI.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "examples/tool/together.h"

namespace mpigrad::tool {

// Checks of floating-point options. CLI11's own let NaN pass, for which every comparison is false, and infinity.
CLI::Validator any_number();
CLI::Validator number_above(double low);
CLI::Validator number_from(double low);
CLI::Validator number_between(double low, double high);  // both included

// What every tool that runs on ranks takes from the environment, for footers.
inline constexpr const char* environment_help =
    "MPIGRAD_CHECKS=signatures,same,watchdog=SECONDS,trace checks the calls of the ranks against each other, ends hangs and\n"
    "prints every call; MPIGRAD_REDUCTIONS=fixed adds up in a fixed order.";

// Parses; -1: go on. Else the exit code, after the help or one line about what is wrong. The help ends with how ranks are
// made, unless the program has set a footer of its own. Collective: ranks started with different arguments would wait for
// messages that nobody sends, or train something that nobody asked for; all of them refuse.
int parse(CLI::App& app, int argc, char** argv, Transport& transport);
// In programs without ranks.
int parse(CLI::App& app, int argc, char** argv);
int usage_error(const CLI::App& app, std::string message, int rank);

// Runs a program and turns UsageError and SharedError into one line and an exit code; so other errors, if all ranks have the
// same. Collective.
int finish(const CLI::App& app, Transport& transport, const std::function<int()>& f);

// JSON of two spaces' indentation. Names of files need not be UTF-8, JSON is: what is not becomes U+FFFD.
std::string to_text(const nlohmann::ordered_json& document);

}  // namespace mpigrad::tool
