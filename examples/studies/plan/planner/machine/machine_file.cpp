// Reads machines from TOML files. The reader is strict, because a typing error in a file of numbers would give a wrong
// prediction.

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>
#include <string_view>

#include "examples/studies/plan/planner/machine/machine.h"
#include "framework/base/error.h"
#include "framework/base/text_bounds.h"

namespace mpigrad::planner {
namespace {

using Keys = std::vector<std::string_view>;

// The state of the reader in addition to values: the file's name for errors, and the numbers that need a source.
class File {
 public:
  explicit File(std::string name) : name_(std::move(name)) {}

  template <class... Arguments>
  [[noreturn]] void refuse(std::size_t line, fmt::format_string<Arguments...> format, const Arguments&... arguments) const {
    auto text = fmt::vformat(format, fmt::make_format_args(arguments...));
    // One line, even if a key or the parser's text has more.
    for (char& c : text)
      if (static_cast<unsigned char>(c) < 0x20) c = ' ';
    // A table without a header has no line number.
    fail("[planner] {}:{}: {}", name_, std::max<std::size_t>(line, 1), text);
  }

  // A number at `path`, which belongs to `table`: a source for either is enough.
  void number_at(const std::string& path, const std::string& table, std::size_t line) {
    numbers_.push_back({path, table, line});
    paths_.insert(path), paths_.insert(table);
  }

  std::map<std::string, std::string> read_sources(const toml::table& top) const;

 private:
  struct Number {
    std::string path, table;
    std::size_t line;
  };
  std::string name_;
  std::vector<Number> numbers_{};
  std::set<std::string> paths_{};
};

std::size_t line_of(const toml::node& node) { return node.source().begin.line; }

std::string type_of(const toml::node& node) {
  std::ostringstream text;
  text << node.type();
  return text.str();
}

// Valid values: above `low`, or from `low`, to `high`.
struct Range {
  double low = 0;
  bool with_low = false;
  double high = std::numeric_limits<double>::infinity();
};
constexpr Range positive{}, from_zero{.low = 0, .with_low = true}, from_one{.low = 1, .with_low = true}, share{.high = 1};

// A table. All its keys must be known.
class Section {
 public:
  // `title` is for errors, `path` for [sources].
  Section(File& file, const toml::table& table, std::string title, std::string path, const Keys& keys)
      : file_(file), table_(table), title_(std::move(title)), path_(std::move(path)) {
    for (const auto& [key, value] : table)
      if (std::find(keys.begin(), keys.end(), key.str()) == keys.end())
        file_.refuse(key.source().begin.line, "{} has no key \"{}\", but {}", title_, key.str(),
                     fmt::format("{}", fmt::join(keys, ", ")));
  }
  void rename(std::string title, std::string path) { title_ = std::move(title), path_ = std::move(path); }
  const std::string& path() const { return path_; }
  bool has(std::string_view key) const { return table_.contains(key); }

  const toml::node& node(std::string_view key) const {
    const auto* found = table_.get(key);
    if (!found) file_.refuse(line_of(table_), "{} lacks \"{}\"", title_, key);
    return *found;
  }
  std::string text(std::string_view key) const {
    const auto& value = node(key);
    if (!value.is_string()) wrong_type(key, value, "text");
    return value.as_string()->get();
  }
  std::string filled_text(std::string_view key) const {
    auto result = text(key);
    if (result.empty()) file_.refuse(line_of(node(key)), "{} of {} is empty", key, title_);
    return result;
  }
  bool flag(std::string_view key) const {
    const auto& value = node(key);
    if (!value.is_boolean()) wrong_type(key, value, "true or false");
    return value.as_boolean()->get();
  }
  const toml::table& table(std::string_view key) const {
    const auto& value = node(key);
    if (!value.is_table()) wrong_type(key, value, "table");
    return *value.as_table();
  }
  // An array of tables: [[key]], or in brackets.
  const toml::array& tables(std::string_view key) const {
    const auto& value = node(key);
    if (!value.is_array()) wrong_type(key, value, "array of tables");
    for (const auto& element : *value.as_array())
      if (!element.is_table())
        file_.refuse(line_of(element), "{} of {} holds {} where a table is needed", key, title_, type_of(element));
    return *value.as_array();
  }
  double number(std::string_view key, const Range& range) const { return sourced(key, value_of(key, range)); }
  double number_or(std::string_view key, const Range& range, double otherwise) const {
    return has(key) ? number(key, range) : otherwise;
  }
  int count(std::string_view key, int least) const { return static_cast<int>(sourced(key, count_of(key, least))); }

  // The same for tables of measurements, which have one source together.
  double value_of(std::string_view key, const Range& range) const { return checked(key, node(key), range); }
  int count_of(std::string_view key, int least) const {
    const auto& value = node(key);
    if (!value.is_integer()) wrong_type(key, value, "whole number");
    const auto result = value.as_integer()->get();
    if (result < least || result > std::numeric_limits<int>::max())
      file_.refuse(line_of(value), "{} of {} is {}, but has to be from {} to {}", key, title_, result, least,
                   std::numeric_limits<int>::max());
    return static_cast<int>(result);
  }
  // [[bytes, seconds], ...]
  std::vector<std::pair<double, double>> points(std::string_view key) const {
    const auto& value = node(key);
    if (!value.is_array()) wrong_type(key, value, "array of [bytes, seconds]");
    std::vector<std::pair<double, double>> result;
    for (const auto& element : *value.as_array()) {
      const auto* pair = element.as_array();
      if (!pair || pair->size() != 2) wrong_type(key, element, "[bytes, seconds]");
      result.emplace_back(checked(key, *pair->get(0), from_zero), checked(key, *pair->get(1), from_zero));
      if (result.size() > 1 && result.back().first <= result[result.size() - 2].first)
        wrong(key, "are not in the order of their bytes");
    }
    if (result.size() < 2) wrong(key, "are fewer than two: nothing lies between them");
    return result;
  }
  [[noreturn]] void wrong(std::string_view key, const std::string& what) const {
    file_.refuse(line_of(node(key)), "{} of {} {}", key, title_, what);
  }

 private:
  [[noreturn]] void wrong_type(std::string_view key, const toml::node& value, std::string_view needed) const {
    file_.refuse(line_of(value), "{} of {} is of type {}, but has to be: {}", key, title_, type_of(value), needed);
  }
  double checked(std::string_view key, const toml::node& value, const Range& range) const {
    if (!value.is_number()) wrong_type(key, value, "number");
    const double result = value.is_integer() ? static_cast<double>(value.as_integer()->get()) : value.as_floating_point()->get();
    if (!std::isfinite(result) || result < range.low || (result == range.low && !range.with_low) || result > range.high)
      file_.refuse(line_of(value), "{} of {} is {}, but has to be {} {}{}", key, title_, result,
                   range.with_low ? "at least" : "above", range.low,
                   std::isinf(range.high) ? std::string(" and finite") : fmt::format(" and at most {}", range.high));
    return result;
  }
  double sourced(std::string_view key, double value) const {
    file_.number_at(fmt::format("{}.{}", path_, key), path_, line_of(node(key)));
    return value;
  }

  File& file_;
  const toml::table& table_;
  std::string title_, path_;
};

std::map<std::string, std::string> File::read_sources(const toml::table& top) const {
  std::map<std::string, std::string> sources;
  if (const auto* node = top.get("sources")) {
    if (!node->is_table()) refuse(line_of(*node), "sources is of type {}, but has to be: table", type_of(*node));
    for (const auto& [key, value] : *node->as_table()) {
      const auto line = key.source().begin.line;
      if (value.is_table())
        refuse(line, "[sources] has a table \"{}\": a path is one key, in quotes, \"device.memory\"", key.str());
      if (!value.is_string()) refuse(line, "[sources] \"{}\" is of type {}, but has to be: text", key.str(), type_of(value));
      const auto& source = value.as_string()->get();
      if (source.find_first_not_of(" \t\n") == std::string::npos) refuse(line, "[sources] \"{}\" is empty", key.str());
      if (!paths_.contains(std::string(key.str()))) refuse(line, "[sources] \"{}\" names no number of this file", key.str());
      sources[std::string(key.str())] = source;
    }
  }
  for (const auto& number : numbers_)
    if (!sources.contains(number.path) && !sources.contains(number.table))
      refuse(number.line, "{} has no source: say in [sources] where the number comes from, \"{}\" = \"...\"", number.path,
             number.path);
  return sources;
}

const Keys flop_types{"float32", "tf32", "bfloat16", "float16", "float64"};
// Efficiencies of kinds, and of products of a type if they reach less or more of their peak.
const Keys efficiencies{"conv",         "linear",       "other",       "memory",          "conv_tf32",      "conv_bfloat16",
                        "conv_float16", "conv_float64", "linear_tf32", "linear_bfloat16", "linear_float16", "linear_float64"};

Device read_device(File& file, const Section& top) {
  const Section section(file, top.table("device"), "[device]", "device",
                        {"name", "memory", "memory_bandwidth", "launch", "gpu", "flops", "efficiency"});
  Device device{.name = section.filled_text("name"),
                .memory = section.number("memory", positive),
                .memory_bandwidth = section.number("memory_bandwidth", positive),
                .launch = section.number("launch", from_zero),
                .gpu = section.has("gpu") && section.flag("gpu")};
  const Section flops(file, section.table("flops"), "[device.flops]", "device.flops", flop_types);
  flops.node("float32");
  for (const auto type : flop_types)
    if (flops.has(type)) device.flops[std::string(type)] = flops.number(type, positive);
  if (section.has("efficiency")) {
    const Section efficiency(file, section.table("efficiency"), "[device.efficiency]", "device.efficiency", efficiencies);
    for (const auto kind : efficiencies)
      if (efficiency.has(kind)) device.efficiency[std::string(kind)] = efficiency.number(kind, share);
  }
  return device;
}

std::vector<Level> read_levels(File& file, const Section& top) {
  std::vector<Level> levels;
  for (const auto& element : top.tables("level")) {
    Section section(file, *element.as_table(), "[[level]]", "level", {"name", "ranks", "latency", "bandwidth", "sharing"});
    const auto name = section.filled_text("name");
    section.rename(fmt::format("[[level]] \"{}\"", name), "level." + name);
    if (std::any_of(levels.begin(), levels.end(), [&](const Level& level) { return level.name == name; }))
      section.wrong("name", "is that of another level: [sources] needs to tell them apart");
    Level level{.name = name,
                .ranks = section.count("ranks", 1),
                .latency = section.number("latency", from_zero),
                .bandwidth = section.number("bandwidth", positive),
                .sharing = section.number_or("sharing", from_one, 1)};
    if (!levels.empty()) {
      const auto& inner = levels.back();
      if (level.ranks <= inner.ranks)
        section.wrong("ranks", fmt::format("is {}, but \"{}\" inside it has {}: levels go from the innermost to the outermost",
                                           level.ranks, inner.name, inner.ranks));
      if (level.ranks % inner.ranks != 0)
        section.wrong("ranks", fmt::format("is {}, which is not a multiple of the {} of \"{}\": units are alike", level.ranks,
                                           inner.ranks, inner.name));
    }
    levels.push_back(std::move(level));
  }
  if (levels.empty()) top.wrong("level", "is empty: a machine has at least one, of all its ranks");
  return levels;
}

Disk read_disk(File& file, const Section& top) {
  if (!top.has("disk")) return {};
  const Section section(file, top.table("disk"), "[disk]", "disk", {"read", "write", "rank_read", "rank_write"});
  return {.read = section.number_or("read", positive, 0),
          .write = section.number_or("write", positive, 0),
          .rank_read = section.number_or("rank_read", positive, 0),
          .rank_write = section.number_or("rank_write", positive, 0)};
}

// "float32[2,8,4] -": a text that signature() writes (examples/studies/plan/planner/machine/op_times.h).
bool is_signature(const std::string& text) {
  std::istringstream words(text);
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  for (std::string word; words >> word;) {
    if (word == "-") continue;
    const auto bracket = word.find('[');
    if (bracket == 0 || bracket == std::string::npos || word.back() != ']') return false;
    int digits = 0;
    for (auto at = bracket + 1; at < word.size(); ++at) {
      const bool end = word[at] == ',' || at + 1 == word.size();
      // Up to 18 digits fit into 64 bits.
      if (end == digit(word[at]) || (end && digits == 0) || digits > 18) return false;
      digits = end ? 0 : digits + 1;
    }
  }
  return true;
}

void read_measured(File& file, const Section& top, Machine& machine) {
  if (!top.has("measured")) return;
  const Section measured(file, top.table("measured"), "[measured]", "measured", {"ops", "calls"});
  if (measured.has("ops")) {
    file.number_at("measured.ops", "measured", line_of(measured.node("ops")));
    for (const auto& element : measured.tables("ops")) {
      const Section section(file, *element.as_table(), "measured.ops", "",
                            {"op", "in", "out", "ranks", "flops", "bytes", "seconds"});
      for (const auto* operands : {"in", "out"})
        if (!is_signature(section.text(operands))) section.wrong(operands, "are no operands such as \"float32[2,8,4] -\"");
      machine.ops.push_back({.op = section.filled_text("op"),
                             .in = section.text("in"),
                             .out = section.text("out"),
                             .ranks = section.count_of("ranks", 1),
                             .flops = section.value_of("flops", from_zero),
                             .bytes = section.value_of("bytes", from_zero),
                             .seconds = section.value_of("seconds", from_zero)});
    }
  }
  if (!measured.has("calls")) return;
  file.number_at("measured.calls", "measured", line_of(measured.node("calls")));
  for (const auto& element : measured.tables("calls")) {
    const Section section(file, *element.as_table(), "measured.calls", "", {"call", "ranks", "points"});
    machine.calls.push_back(
        {.call = section.filled_text("call"), .ranks = section.count_of("ranks", 2), .points = section.points("points")});
  }
}

toml::table parse(const std::string& text, const std::string& name, const File& file) {
  if (const auto excess = excess_of_toml(text); !excess.empty()) file.refuse(1, "the file {}", excess);
  try {
    return toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    file.refuse(error.source().begin.line, "no TOML: {}", std::string(error.description()));
  }
}

}  // namespace

Machine parse_machine(const std::string& text, const std::string& name) {
  File file(name);
  const auto table = parse(text, name, file);
  const Section top(file, table, "the file", "", {"name", "overlaps", "device", "level", "disk", "measured", "sources"});
  Machine machine;
  machine.name = top.filled_text("name");
  machine.overlaps = top.flag("overlaps");
  machine.device = read_device(file, top);
  machine.levels = read_levels(file, top);
  machine.disk = read_disk(file, top);
  read_measured(file, top, machine);
  machine.sources = file.read_sources(table);
  return machine;
}

Machine read_machine(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  require(stream.good() && !std::filesystem::is_directory(path), "[planner] {}: no such machine file", path.string());
  const auto text = read_bounded(stream);
  require(!stream.bad(), "[planner] {}: cannot be read", path.string());
  return parse_machine(text, path.string());
}

}  // namespace mpigrad::planner
