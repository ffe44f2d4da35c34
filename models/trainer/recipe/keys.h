#pragma once
// Keys of a recipe: a table of a command's settings, each with type, default, range, unit and a sentence. The recipe's reader,
// the flags of the command line, `--keys`, the reference pages and messages are made from this table.

#include <cstdint>
#include <deque>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "models/trainer/recipe/rule.h"

namespace mpigrad::trainer {

enum class KeyType : std::uint8_t { flag, whole, number, text, wholes, numbers, texts };
bool is_list(KeyType type);
// "true or false", "a whole number", "a list of numbers", ...
const char* describe(KeyType type);

// A setting. Its value is a list of texts, as given in a recipe or on the command line; only lists have more than one text.
struct Key {
  std::string name{}, help{};  // "optimizer.learning_rate", and one sentence
  KeyType type = KeyType::text;
  Rule rule{};
  std::string unit{}, flag{}, old_flag{}, default_text{};
  bool momentary = false;  // concerns one start of a run only; not part of its recipe
  std::function<std::vector<std::string>()> get{};
  std::function<void(const std::vector<std::string>& values)> set{};  // called with values that check() accepts

  std::string section() const;  // "optimizer"; "" for a key on the top level
  // Returns what is wrong with these values, "" if nothing.
  std::string check(const std::vector<std::string>& values) const;
  // True if the field has these values now; numbers are compared as numbers.
  bool is_default(const std::vector<std::string>& values) const;
  // Splits one text of --set KEY=TEXT or of a flag. Numbers of a list are separated by commas; a text is one element of a list.
  std::vector<std::string> parse(const std::string& text) const;

  Key& with_unit(std::string text);
  Key& with_flag(std::string text);   // "--epochs": for keys in daily use
  Key& instead_of(std::string text);  // "--warm-up": a flag of an earlier version, which is refused with this key's name
  Key& for_one_start();
  Key& with_default(std::string text);  // text for a default that no value expresses: "the network's own"
};

// The table of a command. Fields are bound by reference and must outlive it.
class Keys {
 public:
  // Declares a key whose default is the field's value. T: bool, an integer, double, std::string, a path, or a vector of integers,
  // doubles or strings. Error: the name exists already.
  template <class T>
  Key& add(const std::string& name, T& field, Rule rule, const std::string& help);
  template <class T>
  Key& add(const std::string& name, T& field, const std::string& help) {
    return add(name, field, Rule{}, help);
  }
  void remove(const std::string& name);  // for a key that a program does not have
  // Error: no such key.
  Key& operator[](const std::string& name);
  Key* find(const std::string& name);
  const std::deque<Key>& all() const { return keys_; }

  // UsageError, which begins with `where`: no key is in the section.
  void require_section(const std::string& name, const std::string& where) const;
  // Sets a key. UsageError, which begins with `where`: no such key (the message suggests the nearest one), another type, a value
  // out of range.
  void set(const std::string& name, const std::vector<std::string>& values, const std::string& where);
  // "KEY=TEXT", or "KEY" for a Boolean key; repeated texts for a list of texts are appended.
  void set_text(const std::string& assignment);
  // Names of the keys that were set.
  const std::set<std::string>& given() const { return given_; }

  // The table as text and as JSON: name, type, default, range, unit, flag, help.
  std::string table() const;
  nlohmann::ordered_json json() const;
  // The value of a key as TOML. Error: no such key.
  std::string value(const std::string& name);
  // All values as TOML, with a section for each group. Keys whose default no value expresses are left out.
  std::string toml() const;

 private:
  Key& add_key(Key key);
  [[noreturn]] void refuse_name(const std::string& name, const std::string& where) const;
  std::deque<Key> keys_{};
  std::set<std::string> given_{}, appended_{};
};

namespace recipe_detail {
template <class T>
std::string to_text(const T& x);
template <class T>
T from_text(const std::string& text);
template <class T>
struct Element {
  using type = T;
  static constexpr bool list = false;
};
template <class T>
struct Element<std::vector<T>> {
  using type = T;
  static constexpr bool list = true;
};
template <class T>
constexpr KeyType type_of() {
  using E = typename Element<T>::type;
  constexpr bool list = Element<T>::list;
  if constexpr (std::is_same_v<E, bool>) return KeyType::flag;
  else if constexpr (std::is_integral_v<E>) return list ? KeyType::wholes : KeyType::whole;
  else if constexpr (std::is_floating_point_v<E>) return list ? KeyType::numbers : KeyType::number;
  else return list ? KeyType::texts : KeyType::text;
}
}  // namespace recipe_detail

template <class T>
Key& Keys::add(const std::string& name, T& field, Rule rule, const std::string& help) {
  using E = typename recipe_detail::Element<T>::type;
  Key key{.name = name, .help = help, .type = recipe_detail::type_of<T>(), .rule = std::move(rule)};
  key.get = [&field] {
    std::vector<std::string> values;
    if constexpr (recipe_detail::Element<T>::list)
      for (const auto& x : field) values.push_back(recipe_detail::to_text<E>(x));
    else values.push_back(recipe_detail::to_text<E>(field));
    return values;
  };
  key.set = [&field](const std::vector<std::string>& values) {
    if constexpr (recipe_detail::Element<T>::list) {
      field.clear();
      for (const auto& text : values) field.push_back(recipe_detail::from_text<E>(text));
    } else {
      field = recipe_detail::from_text<E>(values.front());
    }
  };
  return add_key(std::move(key));
}

}  // namespace mpigrad::trainer
