#include "models/trainer/recipe/keys.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "comm/transport/environment.h"
#include "framework/base/error.h"
#include "framework/base/joined.h"
#include "framework/base/printable.h"
#include "models/trainer/tool/together.h"

namespace mpigrad::trainer {

namespace recipe_detail {

template <>
std::string to_text(const bool& x) {
  return x ? "true" : "false";
}
template <>
bool from_text(const std::string& text) {
  return text == "true";
}
template <>
std::string to_text(const std::string& x) {
  return x;
}
template <>
std::string from_text(const std::string& text) {
  return text;
}
template <>
std::string to_text(const std::filesystem::path& x) {
  return x.string();
}
template <>
std::filesystem::path from_text(const std::string& text) {
  return text;
}
template <>
std::string to_text(const double& x) {
  return fmt::format("{}", x);
}
template <>
double from_text(const std::string& text) {
  return std::strtod(text.c_str(), nullptr);
}
#define MPIGRAD_WHOLE(T)                                            \
  template <>                                                       \
  std::string to_text(const T& x) {                                 \
    return fmt::format("{}", x);                                    \
  }                                                                 \
  template <>                                                       \
  T from_text(const std::string& text) {                            \
    return static_cast<T>(std::strtoll(text.c_str(), nullptr, 10)); \
  }
MPIGRAD_WHOLE(int)
MPIGRAD_WHOLE(std::int64_t)
MPIGRAD_WHOLE(std::uint64_t)
#undef MPIGRAD_WHOLE

}  // namespace recipe_detail

namespace {

Rule number(const std::string& text, double low, double high, bool open = false) {
  const auto problem = [text, low, high, open](const std::string& value) {
    char* end = nullptr;
    const double x = std::strtod(value.c_str(), &end);
    if (value.empty() || *end != '\0') return fmt::format("'{}' is not a number", printable(value));
    if (std::isfinite(x) && (open ? x > low : x >= low) && x <= high) return std::string();
    return fmt::format("a finite number{}{} is needed, not {}", text.empty() ? "" : " ", text, value);
  };
  return {.text = text, .choices = {}, .problem = problem, .low = low, .high = high};
}

std::string last_word(const std::string& name) { return name.substr(name.rfind('.') + 1); }

bool is_text(KeyType type) { return type == KeyType::text || type == KeyType::texts; }

// True if the key's value can be written as text; defaults such as "the network's own" cannot.
bool has_value(const Key& key) {
  const auto values = key.get();
  if (values.empty()) return false;
  return !(key.type == KeyType::text && values.front().empty()) && key.check(values).empty();
}

// TOML's basic string.
std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\', result += c;
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) result += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    else result += c;
  }
  return result + '"';
}

std::string literal(const Key& key, const std::string& value) {
  if (is_text(key.type)) return quoted(value);
  const bool plain = value.find_first_not_of("-0123456789") == std::string::npos;
  const bool floating = key.type == KeyType::number || key.type == KeyType::numbers;
  return floating && plain ? value + ".0" : value;
}

std::string literals(const Key& key) {
  const auto values = key.get();
  if (!is_list(key.type)) return literal(key, values.front());
  std::vector<std::string> parts;
  for (const auto& value : values) parts.push_back(literal(key, value));
  return "[" + joined(parts, ", ") + "]";
}

std::string range_of(const Key& key) { return key.rule.choices.empty() ? key.rule.text : joined(key.rule.choices, " | "); }

}  // namespace

Rule any_number() {
  constexpr double infinite = std::numeric_limits<double>::infinity();
  return number("", -infinite, infinite);
}
Rule above(double low) { return number(fmt::format("above {}", low), low, std::numeric_limits<double>::infinity(), true); }
Rule from(double low) { return number(fmt::format("of {} or more", low), low, std::numeric_limits<double>::infinity()); }
Rule between(double low, double high) { return number(fmt::format("from {} to {}", low, high), low, high); }

Rule whole(std::int64_t low, std::int64_t high) {
  const bool bounded = high != std::numeric_limits<std::int64_t>::max();
  const auto problem = [low, high, bounded](const std::string& value) {
    std::int64_t x = 0;
    const auto* end = value.data() + value.size();
    const auto [stop, error] = std::from_chars(value.data(), end, x);
    const auto digits = value.find_first_not_of('-');
    const bool plain = digits != std::string::npos && (value[digits] != '0' || digits + 1 == value.size());
    if (error == std::errc() && stop == end && plain && x >= low && x <= high) return std::string();
    return bounded ? fmt::format("a whole number from {} to {} is needed, not '{}'", low, high, printable(value))
                   : fmt::format("a whole number of {} or more, below 2^63, is needed, not '{}'", low, printable(value));
  };
  return {.text = bounded ? fmt::format("from {} to {}", low, high) : fmt::format("of {} or more", low),
          .choices = {},
          .problem = problem,
          .low = static_cast<double>(low),
          .high = bounded ? static_cast<double>(high) : std::numeric_limits<double>::infinity()};
}

Rule one_of(std::vector<std::string> choices) {
  const auto problem = [choices](const std::string& value) {
    if (std::find(choices.begin(), choices.end(), value) != choices.end()) return std::string();
    return fmt::format("'{}' is not one of {}", printable(value), joined(choices, ", "));
  };
  return {.text = {}, .choices = choices, .problem = problem};
}

bool is_list(KeyType type) { return type == KeyType::wholes || type == KeyType::numbers || type == KeyType::texts; }

const char* describe(KeyType type) {
  switch (type) {
    case KeyType::flag: return "true or false";
    case KeyType::whole: return "a whole number";
    case KeyType::number: return "a number";
    case KeyType::text: return "a text";
    case KeyType::wholes: return "a list of whole numbers";
    case KeyType::numbers: return "a list of numbers";
    case KeyType::texts: return "a list of texts";
  }
  return "";
}

std::string Key::section() const {
  const auto dot = name.find('.');
  return dot == std::string::npos ? std::string() : name.substr(0, dot);
}

std::string Key::check(const std::vector<std::string>& values) const {
  if (!is_list(type) && values.size() != 1) return fmt::format("{} is needed, not a list", describe(type));
  const auto any = type == KeyType::whole || type == KeyType::wholes     ? whole(std::numeric_limits<std::int64_t>::min())
                   : type == KeyType::number || type == KeyType::numbers ? any_number()
                   : type == KeyType::flag                               ? one_of({"true", "false"})
                                                                         : Rule{};
  for (const auto& value : values)
    for (const auto* each : {&rule, &any})
      if (each->problem)
        if (auto problem = each->problem(value); !problem.empty()) return problem;
  return {};
}

bool Key::is_default(const std::vector<std::string>& values) const {
  const auto now = get();
  const bool numbers = type == KeyType::number || type == KeyType::numbers;
  return std::equal(now.begin(), now.end(), values.begin(), values.end(), [&](const std::string& a, const std::string& b) {
    return a == b || (numbers && std::strtod(a.c_str(), nullptr) == std::strtod(b.c_str(), nullptr));
  });
}

std::vector<std::string> Key::parse(const std::string& text) const {
  if (is_list(type) && text.empty()) return {};
  if (type != KeyType::wholes && type != KeyType::numbers) return {text};
  std::vector<std::string> values;
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find(',', begin), text.size());
    values.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return values;
}

Key& Key::with_unit(std::string text) {
  unit = std::move(text);
  return *this;
}
Key& Key::with_flag(std::string text) {
  flag = std::move(text);
  return *this;
}
Key& Key::instead_of(std::string text) {
  old_flag = std::move(text);
  return *this;
}
Key& Key::for_one_start() {
  momentary = true;
  return *this;
}
Key& Key::with_default(std::string text) {
  default_text = std::move(text);
  return *this;
}

Key& Keys::add_key(Key key) {
  require(find(key.name) == nullptr, "[trainer] the key '{}' is declared twice", key.name);
  keys_.push_back(std::move(key));
  return keys_.back();
}

void Keys::remove(const std::string& name) {
  (void)(*this)[name];
  std::erase_if(keys_, [&](const Key& key) { return key.name == name; });
}

Key* Keys::find(const std::string& name) {
  const auto found = std::find_if(keys_.begin(), keys_.end(), [&](const Key& key) { return key.name == name; });
  return found == keys_.end() ? nullptr : &*found;
}

Key& Keys::operator[](const std::string& name) {
  auto* key = find(name);
  require(key != nullptr, "[trainer] there is no key '{}'", name);
  return *key;
}

void Keys::refuse_name(const std::string& name, const std::string& where) const {
  const Key* nearest = nullptr;
  std::size_t least = 0;
  for (const auto& key : keys_) {
    const auto steps = std::min(edit_distance(name, key.name), edit_distance(last_word(name), last_word(key.name)) + 1);
    if (nearest == nullptr || steps < least) nearest = &key, least = steps;
  }
  const bool close = nearest != nullptr && least <= std::max<std::size_t>(2, last_word(name).size() / 2);
  throw tool::UsageError(fmt::format("{}there is no key '{}'{}", where, printable(name),
                                     close ? fmt::format("; did you mean '{}'?", nearest->name) : "; --keys lists them"));
}

void Keys::require_section(const std::string& name, const std::string& where) const {
  if (name == "origin") return;
  for (const auto& key : keys_)
    if (key.section() == name) return;
  throw tool::UsageError(fmt::format("{}there is no section '{}'", where, printable(name)));
}

void Keys::set(const std::string& name, const std::vector<std::string>& values, const std::string& where) {
  auto* key = find(name);
  if (key == nullptr) refuse_name(name, where);
  if (const auto problem = key->check(values); !problem.empty())
    throw tool::UsageError(fmt::format("{}{}: {}", where, name, problem));
  key->set(values);
  given_.insert(name);
}

void Keys::set_text(const std::string& assignment) {
  const auto equals = assignment.find('=');
  const auto name = assignment.substr(0, equals);
  auto* key = find(name);
  if (key == nullptr) refuse_name(name, "--set: ");
  if (equals == std::string::npos && key->type != KeyType::flag)
    throw tool::UsageError(fmt::format("--set {}: {} is needed, as {}=VALUE", name, describe(key->type), name));
  auto values = key->parse(equals == std::string::npos ? "true" : assignment.substr(equals + 1));
  if (key->type == KeyType::texts && !appended_.insert(name).second) {
    auto before = key->get();
    before.insert(before.end(), values.begin(), values.end());
    values = std::move(before);
  }
  set(name, values, "--set ");
}

std::string Keys::table() const {
  std::string text, section = "?";
  for (const auto& key : keys_) {
    if (key.section() != section) {
      section = key.section();
      text += fmt::format("{}{}\n", text.empty() ? "" : "\n", section.empty() ? "(top level)" : "[" + section + "]");
    }
    const auto range = range_of(key);
    std::string value = has_value(key) ? literals(key) : key.default_text.empty() ? "none" : key.default_text;
    text += fmt::format("  {}: {}{}{}; default {}{}\n      {}\n", key.name, describe(key.type), range.empty() ? "" : ", " + range,
                        key.unit.empty() ? "" : fmt::format(" [{}]", key.unit), value,
                        key.flag.empty() ? "" : fmt::format("; flag {}", key.flag), key.help);
  }
  return text;
}

nlohmann::ordered_json Keys::json() const {
  auto result = nlohmann::ordered_json::array();
  for (const auto& key : keys_) {
    nlohmann::ordered_json entry{{"key", key.name}, {"type", describe(key.type)}, {"help", key.help}};
    if (has_value(key)) {
      if (is_list(key.type)) entry["default"] = key.get();
      else entry["default"] = key.get().front();
    } else {
      entry["default"] = nullptr;
    }
    if (!key.default_text.empty()) entry["default_text"] = key.default_text;
    if (!key.rule.choices.empty()) entry["choices"] = key.rule.choices;
    if (std::isfinite(key.rule.low)) entry["low"] = key.rule.low;
    if (std::isfinite(key.rule.high)) entry["high"] = key.rule.high;
    if (!key.rule.text.empty()) entry["range"] = key.rule.text;
    if (!key.unit.empty()) entry["unit"] = key.unit;
    if (!key.flag.empty()) entry["flag"] = key.flag;
    result.push_back(std::move(entry));
  }
  return result;
}

std::string Keys::value(const std::string& name) { return literals((*this)[name]); }

std::string Keys::toml() const {
  std::string top, rest, section;
  for (const auto& key : keys_)
    if (key.section().empty() && has_value(key)) top += fmt::format("{} = {}\n", key.name, literals(key));
  std::vector<std::string> sections;
  for (const auto& key : keys_)
    if (!key.section().empty() && std::find(sections.begin(), sections.end(), key.section()) == sections.end())
      sections.push_back(key.section());
  for (const auto& each : sections) {
    std::string lines;
    for (const auto& key : keys_)
      if (key.section() == each && !key.momentary && has_value(key))
        lines += fmt::format("{} = {}\n", last_word(key.name), literals(key));
    if (!lines.empty()) rest += fmt::format("\n[{}]\n{}", each, lines);
  }
  return top + rest;
}

}  // namespace mpigrad::trainer
