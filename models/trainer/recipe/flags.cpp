#include "models/trainer/recipe/flags.h"

#include <CLI/CLI.hpp>

#include <cctype>

#include "framework/base/joined.h"
#include "models/trainer/tool/together.h"

namespace mpigrad::trainer {
namespace {

std::string group_of(const Key& key) {
  auto section = key.section();
  if (section.empty()) return "Options";
  section.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(section.front())));
  return section;
}

std::string value_of(const Key& key) {
  if (!key.default_text.empty()) return key.default_text;
  const auto values = key.get();
  return values.empty() ? std::string() : values.front();
}

// What a value is called in the help.
std::string name_of_value(const Key& key) {
  if (!key.rule.choices.empty()) return "{" + joined(key.rule.choices, ",") + "}";
  switch (key.type) {
    case KeyType::whole: return "N";
    case KeyType::number: return "NUMBER";
    case KeyType::wholes: return "N,N,...";
    case KeyType::numbers: return "NUMBER,...";
    default: return "TEXT";
  }
}

}  // namespace

void KeyFlags::add_to(CLI::App& app, bool all) {
  for (const auto& key : keys_.all()) {
    const auto& flag = key.flag.empty() && all ? key.old_flag : key.flag;
    if (!flag.empty()) {
      const auto take = [this, &key, flag](const std::vector<std::string>& values) {
        if (const auto problem = key.check(values); !problem.empty()) throw CLI::ValidationError(flag, problem);
        values_.emplace_back(key.name, values);
      };
      auto help = key.help + (key.unit.empty() ? "" : fmt::format(" [{}]", key.unit));
      if (!key.rule.text.empty()) help += fmt::format(" ({})", key.rule.text);
      if (key.type == KeyType::flag) {
        app.add_flag_function(
               flag, [take](std::int64_t) { take({"true"}); }, help)
            ->group(group_of(key));
      } else {
        const auto& choices = key.rule.choices;
        CLI::Option* option = nullptr;
        if (key.type == KeyType::texts) {  // the flag may be given several times
          option = app.add_option_function<std::vector<std::string>>(flag, take, help)->allow_extra_args(false);
          if (!choices.empty()) option->delimiter(',');
        } else {
          option = app.add_option_function<std::string>(
              flag, [take, &key](const std::string& text) { take(key.parse(text)); }, help);
        }
        option->group(group_of(key))->type_name(name_of_value(key));
        if (const auto value = value_of(key); !value.empty()) option->default_str(value);
      }
    }
    if (!key.old_flag.empty() && key.old_flag != flag) {
      const auto instead = key.flag.empty() ? fmt::format("--set {}{}", key.name, key.type == KeyType::flag ? "" : "=VALUE")
                                            : fmt::format("{} VALUE", key.flag);
      const auto text = fmt::format("the flag is replaced by the key {}: {}", key.name, instead);
      app.add_option_function<std::vector<std::string>>(
             key.old_flag, [old = key.old_flag, text](const std::vector<std::string>&) { throw CLI::ValidationError(old, text); })
          ->expected(0, 1)
          ->group("");
    }
  }
}

void KeyFlags::apply(const std::set<std::string>& taken) {
  for (const auto& [name, values] : values_) {
    if (taken.contains(name)) throw tool::UsageError(fmt::format("{} is given by --set and by {}", name, keys_[name].flag));
    keys_.set(name, values, "");
  }
}

}  // namespace mpigrad::trainer
