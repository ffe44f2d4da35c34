#pragma once
// What ranks that are processes take from the environment, and which of it must be the same on all of them.

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/transport/transport.h"
#include "framework/base/error.h"

namespace mpigrad {

// Ranks were given different settings: they would make different calls, and wait for each other for ever.
class SettingsError : public Error {
 public:
  using Error::Error;
};

// Decide which calls ranks make, or what travels: all ranks have the same. `trace` of MPIGRAD_CHECKS, which only prints, may be
// one rank's own.
inline constexpr std::array<std::string_view, 4> shared_variables = {"MPIGRAD_CHECKS", "MPIGRAD_REDUCTIONS",
                                                                     "MPIGRAD_CUDA_AWARE_MPI", "MPIGRAD_MPI_WAITS"};
// Read by launch() alone, which compares what comes of them and of the options of these names.
inline constexpr std::array<std::string_view, 3> launch_variables = {"MPIGRAD_TRANSPORT", "MPIGRAD_RANKS", "MPIGRAD_DEVICE"};
// A rank's own, because nothing that travels depends on them: nodes may have different numbers of cores, and one rank's GPU
// memory may be filled with a pattern, or have kernels of its own.
inline constexpr std::array<std::string_view, 5> own_variables = {"MPIGRAD_THREADS", "MPIGRAD_GPU_POISON", "MPIGRAD_TUNING_FILE",
                                                                  "MPIGRAD_CUDNN_DEFECTS", "MPIGRAD_ONEDNN_DEFECTS"};

// The variable's value; none: it is not set, or empty.
std::optional<std::string> environment_variable(const char* name);
// A whole number of 0 or more; none: the text is anything else.
std::optional<int> parse_whole_number(std::string_view text);

struct Setting {
  std::string name;
  std::string compared;  // what must be the same
  std::string shown;     // as people have written it
};

// A SettingsError on all ranks, in one line with the first setting that differs, its values and their ranks. Collective, by calls
// that do not depend on any setting: `transport` is one that nothing watches yet. All ranks name the same settings.
void require_same_settings(Transport& transport, std::span<const Setting> mine);
// Of shared_variables. mpi_transport calls it, so that no world of processes is made without.
void require_same_environment(Transport& transport);

// A warning for each variable whose name is all but that of one that is read: nobody reads it, and the checks or the order of
// sums that were asked for would silently not be.
std::vector<std::string> mistyped_variables();

}  // namespace mpigrad
