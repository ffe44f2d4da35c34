#pragma once
// What is searched: a program, its options and their values, and the number that tells how good a trial is. From TOML:
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
  std::string name{};                 // of an option, without its dashes, or with a dot of a key of a recipe
  bool flag = false;                  // "true": the option without a value; "false": not at all
  bool numeric = false;               // all values are numbers
  std::vector<std::string> values{};  // of a list; empty: a range
  double from = 0, to = 0;
  bool log = false, integer = false;
  int points = 0;  // of a range in a grid; 0: not said
  bool is_range() const { return values.empty(); }
};

// Whether a parameter is a key of a trainer's recipe, which --set sets.
inline bool is_key(const std::string& name) { return name.find('.') != std::string::npos; }

struct Space {
  std::string name{};                  // of the file
  std::vector<std::string> program{};  // words, variables filled in
  std::string out = "--out";           // the option for the folder that a trial writes
  std::string metrics = "metrics.csv", metric{};
  bool minimize = true;
  bool best_row = false;              // the best row counts, else the last one
  bool help = true;                   // the program has --help, which names its options
  std::vector<std::string> resume{};  // words with which the program goes on in its folder; empty: it cannot
  std::string resource{};             // option without its dashes: what a trial is given more of; empty: nothing
  int most = 0;                       // of it
  std::vector<Parameter> parameters{};
};

// `settings` are variables' values in place of those in the file. UsageError, with file and line: everything that is not meant
// so.
using Settings = std::map<std::string, std::string>;
Space parse_space(const std::string& text, const std::string& name, const Settings& settings = {});
Space read_space(const std::filesystem::path& path, const Settings& settings = {});

}  // namespace mpigrad::hpo
