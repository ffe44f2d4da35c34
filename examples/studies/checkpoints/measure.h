#pragma once
// Measures the costs of saving and loading a network's state, in several ways.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace mpigrad::study {

struct Options {
  std::vector<std::string> networks{"cosmoflow", "unet3d", "resnet50"};
  std::vector<int> ranks{1, 2};
  int rounds = 3;
  bool tiny = false;  // networks of a few hundred kilobytes
  std::filesystem::path folder{};
};

// Medians over the rounds, of the slowest rank. NaN: not applicable.
struct Row {
  std::string network, way;
  int ranks = 1;
  bool oversubscribed = false;  // more ranks than cores: concurrent work is serialised
  bool simulated = false;       // computed, not run
  double bytes = 0;             // on the disk, in all files together
  double save = 0;              // seconds until everything is on the disk
  double still = 0;             // seconds of these in which training stops
  double load = 0;              // seconds
  std::string same_bits{};      // of `restart`: yes or no
};

// Names of ways that several sources use.
inline constexpr const char *rank_0_writes = "rank 0 writes", *training_goes_on = "rank 0 writes, training goes on",
                            *local_copies = "local copy and a partner's", *file_per_rank = "weights: a file per rank",
                            *every_rank_its_part = "one file, every rank its part", *restart = "restart: a new process, one step";

// Builds a network, loads its state from a file, takes one step; on rank 0 a hash of the weights as text. Collective.
std::string restart_from(const std::filesystem::path& file, const std::string& network, const Communicator& world, bool tiny);

// Measures all ways on the ranks of this communicator; the rows are on rank 0. Restarts are new processes with as many threads as
// ranks, which call restart_from(); ranks that are processes have no such row. Collective.
std::vector<Row> measure(const Communicator& world, const Options& options, int cores);

}  // namespace mpigrad::study
