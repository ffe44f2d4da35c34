#include "models/trainer/recipe/recipe.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>

#include "comm/together.h"
#include "framework/base/printable.h"
#include "framework/base/text_bounds.h"

namespace mpigrad::trainer {
namespace {

using tool::UsageError;
using Json = nlohmann::ordered_json;

// Reads files on one rank into a list of {name, type, values, where}; later entries override earlier ones.
class Reader {
 public:
  Json read(const std::filesystem::path& path) {
    file(path, {});
    return std::move(entries_);
  }

 private:
  [[noreturn]] static void refuse(const std::filesystem::path& path, std::size_t line, std::string text) {
    for (char& c : text)
      if (static_cast<unsigned char>(c) < 0x20) c = ' ';
    throw UsageError(fmt::format("{}:{}: {}", path.string(), std::max<std::size_t>(line, 1), text));
  }

  void file(const std::filesystem::path& path, std::vector<std::filesystem::path> including) {
    std::error_code error;
    auto whole = std::filesystem::weakly_canonical(path, error);
    if (error) whole = path;  // a pipe of the shell
    if (std::find(including.begin(), including.end(), whole) != including.end())
      throw UsageError(fmt::format("{} includes itself", path.string()));
    including.push_back(whole);
    if (++files_ > most_files)
      throw UsageError(fmt::format("{}: a recipe includes more than {} files", path.string(), most_files));
    if (!std::filesystem::exists(path, error)) throw UsageError(fmt::format("there is no recipe {}", path.string()));
    if (std::filesystem::is_directory(path, error))
      throw UsageError(fmt::format("{} is a folder; a recipe is a file", path.string()));
    std::ifstream stream(path, std::ios::binary);
    std::stringstream text;
    text << stream.rdbuf();
    if (!stream || text.str().size() > (std::size_t{1} << 20))
      throw UsageError(fmt::format("{} cannot be read as a recipe of at most 1 MiB", path.string()));
    toml::table top;
    try {
      top = toml::parse(text.str(), path.string());
    } catch (const toml::parse_error& error) {
      refuse(path, error.source().begin.line, std::string(error.description()));
    }
    if (const auto* node = top.get("include")) {
      const auto base = [&](const toml::node& each) {
        const auto* name = each.as_string();
        if (name == nullptr) refuse(path, each.source().begin.line, "include is the name of a file, or a list of names");
        file(path.parent_path() / name->get(), including);
      };
      if (const auto* list = node->as_array())
        for (const auto& each : *list) base(each);
      else base(*node);
      top.erase("include");
    }
    table(path, top, "");
  }

  void table(const std::filesystem::path& path, const toml::table& table_here, const std::string& prefix) {
    for (const auto& [key, node] : table_here) {
      const auto name = prefix + std::string(key.str());
      const auto line = node.source().begin.line;
      if (key.str().find('.') != std::string_view::npos)
        refuse(path, line,
               fmt::format("the key \"{}\" is in quotes; keys are written without them", printable(std::string(key.str()))));
      if (const auto* inner = node.as_table()) {
        if (prefix.size() > most_prefix) refuse(path, line, "tables in tables in tables");
        if (inner->empty())
          entries_.push_back({{"name", name},
                              {"type", "section"},
                              {"values", Json::array()},
                              {"where", fmt::format("{}:{}: ", path.string(), std::max<std::size_t>(line, 1))}});
        table(path, *inner, name + ".");
        continue;
      }
      Json values = Json::array();
      std::string type;
      if (const auto* list = node.as_array()) {
        for (const auto& each : *list) values.push_back(value(path, each, name, type));
        type = "list of " + (list->empty() ? std::string("any") : type);
      } else {
        values.push_back(value(path, node, name, type));
      }
      entries_.push_back(
          {{"name", name}, {"type", type}, {"values", values}, {"where", fmt::format("{}:{}: ", path.string(), line)}});
    }
  }

  static std::string value(const std::filesystem::path& path, const toml::node& node, const std::string& name,
                           std::string& type) {
    std::string kind, text;
    if (const auto* x = node.as_string()) kind = "text", text = x->get();
    else if (const auto* i = node.as_integer()) kind = "whole number", text = fmt::format("{}", i->get());
    else if (const auto* f = node.as_floating_point()) kind = "number", text = fmt::format("{}", f->get());
    else if (const auto* b = node.as_boolean()) kind = "flag", text = b->get() ? "true" : "false";
    else refuse(path, node.source().begin.line, fmt::format("{} is a date, a time or a table in a list", name));
    if (!type.empty() && type != kind && !(type.ends_with("number") && kind.ends_with("number")))
      refuse(path, node.source().begin.line, fmt::format("the elements of {} differ in type", name));
    if (type.empty() || kind == "number") type = kind;
    return text;
  }

  static constexpr int most_files = 100;
  static constexpr std::size_t most_prefix = 200;  // bytes of names of sections
  Json entries_ = Json::array();
  int files_ = 0;
};

// True if a TOML value of that type can be the value of such a key.
bool fits(const std::string& type, KeyType key) {
  const bool list = type.starts_with("list of ");
  const auto element = list ? type.substr(8) : type;
  if (list != is_list(key)) return false;
  switch (key) {
    case KeyType::flag: return element == "flag";
    case KeyType::whole:
    case KeyType::wholes: return element == "whole number" || element == "any";
    case KeyType::number:
    case KeyType::numbers: return element.ends_with("number") || element == "any";
    case KeyType::text:
    case KeyType::texts: return element == "text" || element == "any";
  }
  return false;
}

// Tables of NAME = VALUE in place of a list of texts: each becomes the list of its "NAME=VALUE".
Json with_lists(const Json& entries, Keys& keys) {
  const auto texts = [&](const std::string& name) {
    const auto* key = keys.find(name);
    return key != nullptr && key->type == KeyType::texts;
  };
  const auto file_of = [](const Json& entry) {
    const auto where = entry.at("where").get<std::string>();
    return where.substr(0, where.rfind(':', where.size() - 3));
  };
  Json result = Json::array();
  for (const auto& entry : entries) {
    const auto name = entry.at("name").get<std::string>();
    const auto dot = std::min(name.rfind('.'), name.size());
    const auto list = name.substr(0, dot);
    if (entry.at("type") == "section" && texts(name)) {
      result.push_back(entry);
      result.back()["type"] = "list of any";
    } else if (keys.find(name) == nullptr && dot < name.size() && texts(list) && entry.at("values").size() == 1) {
      const auto text = name.substr(dot + 1) + "=" + entry.at("values").front().get<std::string>();
      const bool first = result.empty() || result.back().at("name") != list || file_of(result.back()) != file_of(entry);
      if (first)
        result.push_back({{"name", list}, {"type", "list of text"}, {"values", Json::array()}, {"where", entry.at("where")}});
      result.back()["values"].push_back(text);
    } else {
      result.push_back(entry);
    }
  }
  return result;
}

}  // namespace

std::optional<std::string> value_in_recipe(const std::filesystem::path& path, const std::string& key) {
  std::optional<std::string> found;
  for (const auto& entry : Reader().read(path))
    if (entry.at("name") == key && !entry.at("values").empty()) found = entry.at("values").front().get<std::string>();
  return found;
}

Origin read_recipe(Transport& transport, const std::filesystem::path& path, const std::string& program,
                   const std::string& command, Keys& keys) {
  std::string text;
  tool::together(transport, [&] {
    if (transport.rank() == 0) text = Reader().read(path).dump(-1, ' ', false, Json::error_handler_t::replace);
  });
  const auto entries = with_lists(Json::parse(text_of_rank(transport, text)), keys);
  // A run's recipe has all keys. Those that were not given to that run count as given now only if they were edited since.
  std::optional<std::set<std::string>> given;
  for (const auto& entry : entries)
    if (entry.at("name") == "origin.given") given = entry.at("values").get<std::set<std::string>>();
  for (const auto& entry : entries) {
    const auto name = entry.at("name").get<std::string>(), where = entry.at("where").get<std::string>();
    if (name != "program" && name != "command") continue;
    const auto values = entry.at("values").get<std::vector<std::string>>();
    const auto& here = name == "program" ? program : command;
    if (values != std::vector{here})
      throw UsageError(fmt::format("{}the recipe is for the {} '{}'; this is '{}'", where, name,
                                   printable(values.empty() ? "" : values.front()), here));
  }
  Origin origin;
  for (const auto& entry : entries) {
    const auto name = entry.at("name").get<std::string>(), where = entry.at("where").get<std::string>();
    const auto type = entry.at("type").get<std::string>();
    const auto values = entry.at("values").get<std::vector<std::string>>();
    if (name == "program" || name == "command") continue;
    if (type == "section") {
      keys.require_section(name, where);
      continue;
    }
    if (name.starts_with("origin.")) {
      origin[name.substr(7)] = values.empty() ? "" : values.front();
      continue;
    }
    const auto* key = keys.find(name);
    if (key != nullptr && !fits(type, key->type))
      throw UsageError(fmt::format("{}{} is {}, not a {}", where, name, describe(key->type), type == "flag" ? "flag" : type));
    if (key != nullptr && given && !given->contains(name) && key->is_default(values)) continue;
    keys.set(name, values, where);
  }
  return origin;
}

}  // namespace mpigrad::trainer
