#pragma once
// Settings of a program, and the problem that its network is made for.

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "framework/base/error.h"
#include "framework/tensor/shape.h"
#include "models/nn/layers.h"
#include "models/trainer/recipe/rule.h"

namespace mpigrad::trainer {

using Value = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>>;
using Values = std::map<std::string, Value>;  // values of settings, by name

// A key of the program, which `train` accepts; weights remember its value. Designated initializers begin with name and value.
struct Setting {
  std::string name;  // "width" is the key network.width; a name with a dot is the key itself
  Value value;       // the default; its type is the key's
  std::string help{};
  Rule rule{};                 // accepted values: whole(1, 4096), one_of({"small", "large"}), ...
  std::string unit{};          // "voxels"
  std::string default_text{};  // text for a default that the rule does not accept: "as wide as the data"
  bool has_flag = true;        // the key also has the flag --width
};

// The problem that a network is made for. Weights remember it, so that `evaluate` and `predict` make the same network.
struct Problem {
  Shape extents{1, 1, 1};  // [D, H, W] of the samples of the training
  std::int64_t channels = 1;
  std::int64_t outputs = 1;                   // numbers in a target, or classes
  bool classes = false;                       // targets are integers: labels [N] from 0 on
  std::vector<std::string> targets{};         // names of the numbers or of the labels
  std::vector<std::string> class_names{};     // none: classes are identified by their numbers
  std::vector<double> means{}, deviations{};  // for Program::standardise, one for each number; else empty
  Values values{};                            // values of the settings
  // Only in a training, for the network's norms and dropout: the keys network.norm_momentum, network.statistics and network.keep
  // (negative: the network's default). Weights do not remember them.
  nn::BatchNormAttributes norm{};
  double keep = -1;

  // Errors: no setting has this name; its type is not T.
  template <class T>
  const T& get(const std::string& name) const {
    const auto* found = std::get_if<T>(&value_of(name));
    if (found == nullptr) fail("[trainer] the setting '{}' has another type", name);
    return *found;
  }
  std::string class_name(std::int64_t label) const;

 private:
  const Value& value_of(const std::string& name) const;
};

}  // namespace mpigrad::trainer
