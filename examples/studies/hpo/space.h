#pragma once
// A search space: a program, its options and their values, and the metric by which trials are compared. As TOML:
//
//   program = ["build/examples/classify", "train", "--data", "{data}"]
//   metric = "validation_loss"        # a column of metrics.csv
//   [variables]
//   data = ""                         # --set data=FILE
//   [parameters]
//   optimizer = ["adam", "sgd"]                                  # --optimizer
//   "optimizer.weight_decay" = {from = 1e-6, to = 1e-2, scale = "log", points = 3}  # --set optimizer.weight_decay=VALUE

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace mpigrad::hpo {

struct Parameter {
  std::string name{};                 // an option without its dashes, or with a dot: a recipe's key
  bool flag = false;                  // "true": the option without a value; "false": no option
  bool numeric = false;               // all values are numbers
  std::vector<std::string> values{};  // the list; empty: a range
  double from = 0, to = 0;
  bool log = false, integer = false;
  int points = 0;  // of a range in a grid; 0: not given
  bool is_range() const { return values.empty(); }
};

// True if a parameter is a key of a trainer's recipe, set with --set.
inline bool is_key(const std::string& name) { return name.find('.') != std::string::npos; }

struct Space {
  std::string name{};                  // name of the file
  std::vector<std::string> program{};  // words, with variables replaced
  std::string out = "--out";           // the option for a trial's folder
  std::string metrics = "metrics.csv", metric{};
  bool minimize = true;
  bool best_row = false;              // true: the best row counts; false: the last one
  bool help = true;                   // the program has --help, which lists its options
  std::vector<std::string> resume{};  // arguments that resume the program in its folder; empty: it cannot
  std::string resource{};             // option without its dashes for the amount of training; empty: none
  int most = 0;                       // largest value of `resource`
  std::vector<Parameter> parameters{};
};

// `settings`: values of variables that replace those in the file. UsageError, with file and line: everything that is not valid.
using Settings = std::map<std::string, std::string>;
Space parse_space(const std::string& text, const std::string& name, const Settings& settings = {});
Space read_space(const std::filesystem::path& path, const Settings& settings = {});

}  // namespace mpigrad::hpo
