#pragma once
// Functions that command-line tools share: numbers as options, parsing, exit codes, JSON.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>

#include "models/trainer/tool/together.h"

// CLI11 takes as long to compile as a tool; only sources that add options and parse include it.
namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace mpigrad::tool {

// Validators of floating-point options. CLI11's own accept infinity, and NaN, for which every comparison is false.
CLI::Validator any_number();
CLI::Validator number_above(double low);
CLI::Validator number_from(double low);
CLI::Validator number_between(double low, double high);  // both included
// Decimal digits, and a minus. CLI11's own numbers wrap at their limits, and read 010 as eight.
CLI::Validator whole_number(std::int64_t low, std::int64_t high = std::numeric_limits<std::int64_t>::max());  // both included

// The options given on the command line, as "--name"; including those of a subcommand that was called.
std::set<std::string> given_options(const CLI::App& app);
// Warns that the options of `given` that are not in `effective` have no effect with `what`.
void warn_of_no_effect(const std::set<std::string>& given, const std::set<std::string>& effective, const std::string& what,
                       int rank);

// Environment variables of every tool that runs on ranks, for footers.
inline constexpr const char* environment_help =
    "MPIGRAD_CHECKS=signatures,same,watchdog=SECONDS,trace checks the calls of the ranks against each other, ends hangs and\n"
    "prints every call; MPIGRAD_REDUCTIONS=fixed adds up in a fixed order.";

// Parses; returns -1 to continue, else the exit code, after printing the help or one line about the error. The help ends with how
// to start ranks, unless the program has set its own footer. Collective: ranks that are started with different arguments could
// wait for messages that are never sent, or train something unintended; so all of them refuse.
int parse(CLI::App& app, int argc, char** argv, Transport& transport);
// For programs without ranks.
int parse(CLI::App& app, int argc, char** argv);
int usage_error(const CLI::App& app, std::string message, int rank);

// Runs a program and turns UsageError and SharedError into one line and an exit code; other errors, too, if all ranks throw the
// same one. Output that could not be written is such an error. Collective.
int finish(const CLI::App& app, Transport& transport, const std::function<int()>& f);
// For programs without ranks.
int finish(const CLI::App& app, const std::function<int()>& f);

// Rank 0 prints, and all ranks get an error if that fails: for output after which the other ranks do not wait. Collective.
void print_once(Transport& transport, const std::string& text);
// Writes text as a whole file, replacing an existing one. Error: it cannot be written, or not completely.
void write_text(const std::filesystem::path& path, const std::string& text);

// JSON with an indentation of two spaces. JSON is UTF-8; other bytes, such as in names of files, become U+FFFD.
std::string to_text(const nlohmann::ordered_json& document);

}  // namespace mpigrad::tool
