#pragma once
// What saving and loading a network's state costs, in several ways.

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

// Medians of the rounds; of the rank that takes longest. NaN: there is no such thing.
struct Row {
  std::string network, way;
  int ranks = 1;
  bool oversubscribed = false;  // more ranks than cores: what they do at the same time they do one after the other
  bool simulated = false;       // nothing of it has run
  double bytes = 0;             // on the disk, of all files together
  double save = 0;              // seconds until all is on the disk
  double still = 0;             // of these, in which training stands still
  double load = 0;              // seconds
};

// Ways that are met in more than one place.
inline constexpr const char *rank_0_writes = "rank 0 writes", *training_goes_on = "rank 0 writes, training goes on",
                            *local_copies = "local copy and a partner's", *file_per_rank = "weights: a file per rank",
                            *every_rank_its_part = "one file, every rank its part", *restart = "restart: build, load, one step";

// All ways on the ranks of this communicator, on rank 0. Collective.
std::vector<Row> measure(const Communicator& world, const Options& options, int cores);

}  // namespace mpigrad::study
