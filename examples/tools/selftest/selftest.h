#pragma once
// The parts of mpigrad-selftest: items that pass or fail on the ranks that run them, and rates next to those of a machine file.

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace mpigrad::selftest {

// A check. `run` is collective, and an Error on any rank means that the item has failed.
struct Item {
  std::string name;
  std::function<void()> run;
};

// Results of calls between ranks, compared with those that each rank computes from the numbers of all ranks. (A call and its
// adjoint may be wrong in the same way, so that call_items() does not notice.)
std::vector<Item> value_items(const Communicator& world);
// Adjoints of every kind of call between ranks, by adjoint_check (comm/check/adjoint_check.h).
std::vector<Item> call_items(const Communicator& world);
// Convolutions and pooling of a volume that is split over all ranks, compared with the whole volume on each rank.
std::vector<Item> halo_items(const Communicator& world);
// Losses of a training on a grid compared with those of one rank.
std::vector<Item> training_items(const Communicator& world);
// HDF5 files that all ranks write and read, and a checkpoint from which a training resumes. `folder` is an existing folder that
// all ranks see; files are written to it and remain there.
std::vector<Item> file_items(const Communicator& world, const std::filesystem::path& folder);

// A measured rate, and the one that a machine file expects; 0: it expects none.
struct Rate {
  std::string name;
  double bytes = 0;  // of a message or of each rank's part; 0: none
  double measured = 0, expected = 0;
  std::string unit;
};
// UsageError on all ranks: not a machine file, or a machine of fewer ranks. Collective.
void require_machine(const Communicator& world, const std::filesystem::path& machine);
// Rates of a rank's processor, of messages, allreduces and halo exchanges. Collective; on rank 0 only. `machine` is a machine
// file, or empty.
std::vector<Rate> measure_rates(const Communicator& world, const std::filesystem::path& machine);

// Versions, processor, devices and hosts, on all ranks the same. Collective.
nlohmann::ordered_json describe_environment(const Communicator& world);
// Its lines for people.
std::string to_text(const nlohmann::ordered_json& environment);

}  // namespace mpigrad::selftest
