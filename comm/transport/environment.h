#pragma once
// The environment variables of ranks that are processes, and which of them must be the same on all ranks.

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/transport/transport.h"
#include "framework/base/error.h"

namespace mpigrad {

// Ranks have different settings: they would make different calls, and wait for each other for ever.
class SettingsError : public Error {
 public:
  using Error::Error;
};

// Variables that decide which calls ranks make, or which data travel: they must be the same on all ranks. `trace` of
// MPIGRAD_CHECKS only prints and may differ between ranks.
inline constexpr std::array<std::string_view, 4> shared_variables = {"MPIGRAD_CHECKS", "MPIGRAD_REDUCTIONS",
                                                                     "MPIGRAD_CUDA_AWARE_MPI", "MPIGRAD_MPI_WAITS"};
// Variables that only launch() reads. It compares the resulting settings together with the options of the same names.
inline constexpr std::array<std::string_view, 3> launch_variables = {"MPIGRAD_TRANSPORT", "MPIGRAD_RANKS", "MPIGRAD_DEVICE"};
// Variables that may differ between ranks, because no data that travel depend on them: nodes may have different numbers of cores,
// and one rank may fill its GPU memory with a pattern, or use other kernels.
inline constexpr std::array<std::string_view, 6> own_variables = {"MPIGRAD_THREADS",        "MPIGRAD_GPU_POISON",
                                                                  "MPIGRAD_TUNING_FILE",    "MPIGRAD_CUDNN_DEFECTS",
                                                                  "MPIGRAD_ONEDNN_DEFECTS", "MPIGRAD_ALLOW_SINGLETONS"};

// The value of the variable; none if it is not set, or empty.
std::optional<std::string> environment_variable(const char* name);
// The text as a whole number of 0 or more; none if it is anything else.
std::optional<int> parse_whole_number(std::string_view text);

struct Setting {
  std::string name;
  std::string compared;  // what must be the same
  std::string shown;     // as the user wrote it
};

// Throws a SettingsError on all ranks, in one line with the first setting that differs, its values and their ranks. Collective,
// by calls that do not depend on any setting: `transport` must not be watched yet. All ranks pass the same names.
void require_same_settings(Transport& transport, std::span<const Setting> mine);
// The same for shared_variables. mpi_transport calls it, so that every world of processes is checked.
void require_same_environment(Transport& transport);

// A warning for each variable whose name is almost that of one of ours: it is never read, and the checks or the order of sums
// that the user asked for would silently be missing.
std::vector<std::string> mistyped_variables();
// Letters to insert, to delete or to replace until one word is the other (Levenshtein 1966); for messages on mistyped names.
std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace mpigrad
