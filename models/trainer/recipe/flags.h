#pragma once
// Flags of the command line that set keys.

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/trainer/recipe/keys.h"

namespace CLI {
class App;
}

namespace mpigrad::trainer {

class KeyFlags {
 public:
  explicit KeyFlags(Keys& keys) : keys_(keys) {}
  // Adds a flag for each key that has one, in groups by section; a key's old flag is refused with the key's name. With `all` old
  // flags are accepted, too: for commands with few keys.
  void add_to(CLI::App& app, bool all = false);
  // Sets the keys whose flags were given; call it after parsing. UsageError: a key is also in `taken`, the keys of --set.
  void apply(const std::set<std::string>& taken = {});

 private:
  Keys& keys_;
  std::vector<std::pair<std::string, std::vector<std::string>>> values_{};  // keys and their values
};

}  // namespace mpigrad::trainer
