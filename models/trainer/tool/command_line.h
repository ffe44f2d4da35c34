#pragma once
// What the command-line tools share: numbers as options, parsing, exit codes, JSON.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>

#include "models/trainer/tool/together.h"

// The whole of CLI11 takes as long to compile as a tool; only what adds options and parses needs it.
namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace mpigrad::tool {

// Checks of floating-point options. CLI11's own let NaN pass, for which every comparison is false, and infinity.
CLI::Validator any_number();
CLI::Validator number_above(double low);
CLI::Validator number_from(double low);
CLI::Validator number_between(double low, double high);  // both included
// Digits of ten, and a minus. CLI11's own numbers wrap at their ends, and 010 is eight.
CLI::Validator whole_number(std::int64_t low, std::int64_t high = std::numeric_limits<std::int64_t>::max());  // both included

// The options that were given on the command line, as "--name"; those of a subcommand that was called, too.
std::set<std::string> given_options(const CLI::App& app);
// Of `given` those that are not `effective`, as a warning that they mean nothing with `what`; or nothing.
void warn_of_no_effect(const std::set<std::string>& given, const std::set<std::string>& effective, const std::string& what,
                       int rank);

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
// same. What was printed and did not arrive is such an error, too. Collective.
int finish(const CLI::App& app, Transport& transport, const std::function<int()>& f);
// Of programs without ranks.
int finish(const CLI::App& app, const std::function<int()>& f);

// Rank 0 prints, and all ranks learn if that fails: for what is printed where the others do not wait. Collective.
void print_once(Transport& transport, const std::string& text);
// Text as a whole file, over what is there. Error: it cannot be written, or not completely.
void write_text(const std::filesystem::path& path, const std::string& text);

// JSON of two spaces' indentation. Names of files need not be UTF-8, JSON is: what is not becomes U+FFFD.
std::string to_text(const nlohmann::ordered_json& document);

}  // namespace mpigrad::tool
