// Replaces machine_file.cpp in builds without toml++.

#include "examples/studies/plan/planner/machine/machine.h"
#include "framework/base/error.h"

namespace mpigrad::planner {
namespace {

[[noreturn]] void refuse() { fail("[planner] this build reads no machine files: install libtomlplusplus-dev"); }

}  // namespace

Machine read_machine(const std::filesystem::path&) { refuse(); }
Machine parse_machine(const std::string&, const std::string&) { refuse(); }

}  // namespace mpigrad::planner
