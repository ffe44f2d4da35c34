#include "examples/studies/hpo/space.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>
#include <string_view>
#include <tuple>

#include <toml++/toml.h>

#include "framework/base/joined.h"
#include "framework/base/printable.h"
#include "framework/base/text_bounds.h"
#include "models/trainer/tool/together.h"

namespace mpigrad::hpo {
namespace {

using tool::UsageError;
using Keys = std::vector<std::string_view>;

std::size_t line_of(const toml::node& node) { return node.source().begin.line; }
std::string type_of(const toml::node& node) {
  std::ostringstream text;
  text << node.type();
  return text.str();
}

// A table of the file. All its keys must be known.
class Section {
 public:
  Section(const std::string& file, const toml::table& table, std::string title, const Keys& keys)
      : file_(file), table_(table), title_(std::move(title)) {
    for (const auto& [key, value] : table)
      if (std::find(keys.begin(), keys.end(), key.str()) == keys.end())
        refuse(key.source().begin.line,
               fmt::format("{} has no key \"{}\", but {}", title_, printable(std::string(key.str())), joined(keys, ", ")));
  }
  [[noreturn]] void refuse(std::size_t line, const std::string& what) const {
    throw UsageError(fmt::format("{}:{}: {}", file_, std::max<std::size_t>(line, 1), what));
  }
  [[noreturn]] void refuse(std::string_view key, const std::string& what) const {
    refuse(line_of(node(key)), fmt::format("{} of {} {}", key, title_, what));
  }
  bool has(std::string_view key) const { return table_.contains(key); }
  const toml::node& node(std::string_view key) const {
    const auto* found = table_.get(key);
    if (!found) refuse(line_of(table_), fmt::format("{} lacks \"{}\"", title_, key));
    return *found;
  }
  std::string text(std::string_view key) const {
    const auto value = node(key).value_exact<std::string>();
    if (!value) wrong_type(key, "text");
    if (value->empty()) refuse(key, "is empty");
    return *value;
  }
  bool flag(std::string_view key) const {
    const auto value = node(key).value_exact<bool>();
    if (!value) wrong_type(key, "true or false");
    return *value;
  }
  double number(std::string_view key) const {
    const auto& value = node(key);
    if (!value.is_number()) wrong_type(key, "number");
    // The nearest double, also for integers beyond 2^53, for which value.value<double>() returns none.
    const double result = value.is_integer() ? static_cast<double>(value.as_integer()->get()) : value.as_floating_point()->get();
    if (!std::isfinite(result)) refuse(key, "is not finite");
    return result;
  }
  int count(std::string_view key, int least) const {
    const auto value = node(key).value_exact<std::int64_t>();
    if (!value) wrong_type(key, "whole number");
    if (*value < least || *value > 1'000'000'000)
      refuse(key, fmt::format("is {}, but has to be from {} to 1000000000", *value, least));
    return static_cast<int>(*value);
  }
  std::vector<std::string> words(std::string_view key) const {
    const auto* array = node(key).as_array();
    if (!array) wrong_type(key, "list of words");
    if (array->empty()) refuse(key, "is empty");
    std::vector<std::string> result;
    for (const auto& each : *array) {
      const auto word = each.value_exact<std::string>();
      if (!word) refuse(line_of(each), fmt::format("{} of {} holds {} where a word is needed", key, title_, type_of(each)));
      result.push_back(*word);
    }
    return result;
  }
  const toml::table& table(std::string_view key) const {
    if (!node(key).is_table()) wrong_type(key, "table");
    return *node(key).as_table();
  }
  [[noreturn]] void wrong_type(std::string_view key, std::string_view needed) const {
    refuse(key, fmt::format("is of type {}, but has to be: {}", type_of(node(key)), needed));
  }

 private:
  const std::string& file_;
  const toml::table& table_;
  std::string title_;
};

// Replaces variables, as in "{data}/train", and records which were used.
std::string filled(const Section& top, std::string_view key, const std::string& word, const Settings& variables,
                   std::set<std::string>& used) {
  std::string result;
  for (std::size_t i = 0; i < word.size();) {
    const auto end = word[i] == '{' ? word.find('}', i) : std::string::npos;
    if (end == std::string::npos) {
      result += word[i++];
      continue;
    }
    const auto name = word.substr(i + 1, end - i - 1);
    const auto found = variables.find(name);
    if (found == variables.end()) top.refuse(key, fmt::format("has {{{}}}, which [variables] does not name", printable(name)));
    if (found->second.empty())
      throw UsageError(fmt::format("{{{}}} of {} has no value: --set {}=VALUE gives it one", name, key, name));
    used.insert(name);
    result += found->second, i = end + 1;
  }
  return result;
}

std::string text_of(const toml::node& value) {
  if (value.is_string()) return value.as_string()->get();
  if (value.is_boolean()) return value.as_boolean()->get() ? "true" : "false";
  return value.is_integer() ? fmt::format("{}", value.as_integer()->get()) : fmt::format("{}", value.as_floating_point()->get());
}

Parameter read_list(const Section& section, const std::string& name, const toml::array& array) {
  if (array.empty()) section.refuse(name, "is empty");
  Parameter result{.name = name, .flag = array[0].is_boolean(), .numeric = array[0].is_number()};
  for (const auto& each : array) {
    const bool alike = result.flag ? each.is_boolean() : result.numeric ? each.is_number() : each.is_string();
    const auto* known = result.flag ? "true or false" : result.numeric ? "numbers" : "texts";
    if (!each.is_string() && !each.is_number() && !each.is_boolean())
      section.refuse(line_of(each), fmt::format("{} holds {} where a value is needed", name, type_of(each)));
    if (!alike) section.refuse(line_of(each), fmt::format("{} holds {} among {}", name, type_of(each), known));
    if (each.is_floating_point() && !std::isfinite(each.as_floating_point()->get()))
      section.refuse(line_of(each), fmt::format("{} holds a number that is not finite", name));
    const auto text = text_of(each);
    if (std::find(result.values.begin(), result.values.end(), text) != result.values.end())
      section.refuse(line_of(each), fmt::format("{} holds {} twice", name, printable(text)));
    result.values.push_back(text);
  }
  return result;
}

Parameter read_range(const std::string& file, const std::string& name, const toml::table& table) {
  const Section range(file, table, fmt::format("the range {}", name), {"from", "to", "scale", "integer", "points"});
  Parameter result{.name = name, .numeric = true, .from = range.number("from"), .to = range.number("to")};
  if (range.has("scale")) {
    const auto scale = range.text("scale");
    if (scale != "log" && scale != "linear") range.refuse("scale", fmt::format("is \"{}\", but has to be linear or log", scale));
    result.log = scale == "log";
  }
  result.integer = range.has("integer") && range.flag("integer");
  if (result.from >= result.to) range.refuse("from", fmt::format("is {}, which is not below to = {}", result.from, result.to));
  if (result.log && result.from <= 0)
    range.refuse("from", fmt::format("is {}, where a log scale needs more than 0", result.from));
  for (const auto* end : {"from", "to"})
    if (result.integer && (range.number(end) != std::floor(range.number(end)) || std::abs(range.number(end)) > 1e15))
      range.refuse(end, fmt::format("is {}, which is not a whole number of magnitude 1e15 or less", range.number(end)));
  if (range.has("points")) result.points = range.count("points", 2);
  return result;
}

std::vector<Parameter> read_parameters(const std::string& file, const toml::table& table) {
  // The parser sorts keys by name; the file's order is kept instead.
  std::vector<std::tuple<std::size_t, std::size_t, std::string>> order;
  Keys keys;
  for (const auto& [key, value] : table) {
    keys.push_back(key.str());
    order.emplace_back(key.source().begin.line, key.source().begin.column, std::string(key.str()));
  }
  std::sort(order.begin(), order.end());
  const Section section(file, table, "[parameters]", keys);
  if (order.empty()) section.refuse(line_of(table), "[parameters] is empty: there is nothing to search");
  std::vector<Parameter> result;
  for (const auto& [line, column, name] : order) {
    if (name.empty() || name.starts_with('-') || name.find_first_of(" \t\n=") != std::string::npos)
      section.refuse(line, fmt::format("\"{}\" is no option without its dashes", printable(name)));
    const auto& value = section.node(name);
    if (const auto* array = value.as_array()) result.push_back(read_list(section, name, *array));
    else if (const auto* range = value.as_table()) result.push_back(read_range(file, name, *range));
    else section.wrong_type(name, "list of values, or {from = , to = }");
  }
  return result;
}

Settings read_variables(const std::string& file, const Section& top, const Settings& settings) {
  Settings result;
  if (top.has("variables"))
    for (const auto& [key, value] : top.table("variables")) {
      if (!value.is_string() && !value.is_number())
        top.refuse(line_of(value),
                   fmt::format("the variable {} is of type {}, but has to be: text or number", key.str(), type_of(value)));
      result[std::string(key.str())] = text_of(value);
    }
  for (const auto& [name, value] : settings) {
    if (!result.contains(name))
      throw UsageError(fmt::format("--set {}: [variables] of {} does not name it", printable(name), file));
    result[name] = value;
  }
  return result;
}

// True if a word of the list sets the option, as "--name" or "--name=value".
bool gives(const std::vector<std::string>& words, const std::string& option) {
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& word) { return word == option || word.starts_with(option + "="); });
}

}  // namespace

Space parse_space(const std::string& text, const std::string& name, const Settings& settings) {
  if (const auto excess = excess_of_toml(text); !excess.empty()) throw UsageError(fmt::format("{}: the file {}", name, excess));
  toml::table table;
  try {
    table = toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    throw UsageError(fmt::format("{}:{}: no TOML: {}", name, std::max<std::size_t>(error.source().begin.line, 1),
                                 printable(std::string(error.description()))));
  }
  const Section top(
      name, table, "the file",
      {"program", "out", "metrics", "metric", "goal", "take", "help", "resume", "variables", "resource", "parameters"});
  Space space{.name = name};
  const auto variables = read_variables(name, top, settings);
  std::set<std::string> used;
  for (const auto& word : top.words("program")) space.program.push_back(filled(top, "program", word, variables, used));
  for (const auto& [variable, value] : variables)
    if (!used.contains(variable))
      top.refuse("variables", fmt::format("has \"{}\", which program does not use", printable(variable)));
  if (space.program[0].empty()) top.refuse("program", "begins with an empty word");
  if (top.has("out")) space.out = top.text("out");
  if (top.has("metrics")) space.metrics = top.text("metrics");
  space.metric = top.text("metric");
  if (top.has("goal")) {
    const auto goal = top.text("goal");
    if (goal != "min" && goal != "max") top.refuse("goal", fmt::format("is \"{}\", but has to be min or max", printable(goal)));
    space.minimize = goal == "min";
  }
  if (top.has("take")) {
    const auto take = top.text("take");
    if (take != "last" && take != "best")
      top.refuse("take", fmt::format("is \"{}\", but has to be last or best", printable(take)));
    space.best_row = take == "best";
  }
  if (top.has("help")) space.help = top.flag("help");
  if (top.has("resume")) space.resume = top.words("resume");
  if (top.has("resource")) {
    const Section resource(name, top.table("resource"), "[resource]", {"option", "most"});
    space.resource = resource.text("option"), space.most = resource.count("most", 1);
  }
  space.parameters = read_parameters(name, top.table("parameters"));
  std::vector<std::string> varied;
  for (const auto& parameter : space.parameters) varied.push_back(parameter.name);
  if (!space.resource.empty()) {
    if (std::find(varied.begin(), varied.end(), space.resource) != varied.end())
      top.refuse("resource", fmt::format("names {}, which is one of [parameters], too", space.resource));
    varied.push_back(space.resource);
  }
  for (const auto& option : varied)
    if (gives(space.program, is_key(option) ? option : "--" + option))
      top.refuse("program", fmt::format("gives {}{}, which is varied", is_key(option) ? "" : "--", option));
  for (const auto& option : varied)
    if ("--" + option == space.out) top.refuse("parameters", fmt::format("vary --{}, the folder of a trial", option));
  if (gives(space.program, space.out)) top.refuse("program", fmt::format("gives {}, which each trial has its own of", space.out));
  return space;
}

Space read_space(const std::filesystem::path& path, const Settings& settings) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream.good() || std::filesystem::is_directory(path))
    throw UsageError(fmt::format("{}: no such space file", path.string()));
  const auto text = read_bounded(stream);
  if (stream.bad()) throw UsageError(fmt::format("{}: cannot be read", path.string()));
  return parse_space(text, path.string(), settings);
}

}  // namespace mpigrad::hpo
