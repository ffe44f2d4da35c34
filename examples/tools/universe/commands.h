#pragma once
// The sub-commands of the program `universe`. Each is collective over the transport and returns the exit code.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "examples/tools/universe/simulation.h"
#include "models/trainer/tool/command_line.h"

namespace mpigrad::universe {

using tool::UsageError;

struct GenerateOptions {
  std::string out;
  std::int64_t universes = 1, first = 0;
  std::string power = "eh";
  Simulation simulation;
  bool spread = false, overwrite = false, json = false;
};
int generate(const std::shared_ptr<Transport>& transport, GenerateOptions options);

struct PowerOptions {
  Cosmology cosmology;
  std::string power = "eh";
  double temperature = 0;  // 0: the spectrum's default
  std::vector<double> redshifts{0};
  double k_min = 1e-3, k_max = 10;
  int points = 41;
  std::vector<double> k;  // instead of the three above
  bool json = false;
};
int print_power(const std::shared_ptr<Transport>& transport, const PowerOptions& options);

struct DisplaceOptions {
  std::string delta;  // FILE:DATASET
  double box = 0;     // Mpc/h
  int order = 1;
  std::string out;
  bool overwrite = false, json = false;
};
int displace(const std::shared_ptr<Transport>& transport, const DisplaceOptions& options);

}  // namespace mpigrad::universe
