// Builds without toml++.

#include "framework/base/error.h"
#include "models/planner/machine/machine.h"

namespace mpigrad::planner {
namespace {

[[noreturn]] void refuse() { fail("[planner] this build reads no machine files: install libtomlplusplus-dev"); }

}  // namespace

Machine read_machine(const std::filesystem::path&) { refuse(); }
Machine parse_machine(const std::string&, const std::string&) { refuse(); }

}  // namespace mpigrad::planner
