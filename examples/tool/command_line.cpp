#include "examples/tool/command_line.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "comm/hdf5/io_thread.h"

namespace mpigrad::tool {
namespace {

// `rule` is what the help and the message say: "above 0".
CLI::Validator number(const std::string& rule, const std::function<bool(double)>& holds) {
  const auto check = [rule, holds](std::string& text) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0') return fmt::format("'{}' is not a number", text);
    if (std::isfinite(value) && holds(value)) return std::string();
    return rule.empty() ? fmt::format("a finite number is needed, not {}", text)
                        : fmt::format("a finite number {} is needed, not {}", rule, text);
  };
  return {check, rule, "number"};
}

}  // namespace

CLI::Validator any_number() {
  return number("", [](double) { return true; });
}
CLI::Validator number_above(double low) {
  return number(fmt::format("above {}", low), [low](double x) { return x > low; });
}
CLI::Validator number_from(double low) {
  return number(fmt::format("of {} or more", low), [low](double x) { return x >= low; });
}
CLI::Validator number_between(double low, double high) {
  return number(fmt::format("from {} to {}", low, high), [low, high](double x) { return x >= low && x <= high; });
}

int usage_error(const CLI::App& app, std::string message, int rank) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  if (rank == 0) fmt::print(stderr, "{}: {}\n", app.get_name(), message);
  return 2;
}

int parse(CLI::App& app, int argc, char** argv, int rank) {
  if (app.get_footer().empty())
    app.footer(
        std::string("Under mpiexec every process is a rank; --transport threads --ranks P runs P ranks in one process.\n") +
        environment_help);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) return usage_error(app, error.what(), rank);
    return rank == 0 ? app.exit(error) : 0;  // --help
  }
  return -1;
}

int finish(const CLI::App& app, const Transport& transport, const std::function<int()>& f) {
  // Reads ahead that nobody needs any more must end before the process takes HDF5 down.
  struct Drain {
    ~Drain() {
      IoThread::instance().run([] {});
    }
  } drain;
  try {
    return f();
  } catch (const UsageError& error) {
    return usage_error(app, error.what(), transport.rank());
  } catch (const SharedError& error) {
    if (transport.rank() == 0) fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}

std::string to_text(const nlohmann::ordered_json& document) {
  return document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace mpigrad::tool
