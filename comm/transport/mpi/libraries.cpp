// The shared libraries of MPI in this process, which must be one.

#include <dlfcn.h>

#include <string>

#include "comm/transport/mpi/call.h"

namespace mpigrad::mpi {
namespace {

std::string file_of(const void* address) {
  Dl_info info{};
  return address && dladdr(address, &info) != 0 && info.dli_fname ? info.dli_fname : "";
}

// The MPI library among the libraries with which the object at this address (a program, a shared library) was linked; empty if
// there is none. PMPI: tools have functions of MPI, too, which call those of the library.
std::string mpi_of(const void* address) {
  void* object = dlopen(file_of(address).c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (!object) return {};
  auto found = file_of(dlsym(object, "PMPI_Get_library_version"));
  dlclose(object);
  return found;
}

}  // namespace

std::string second_library() {
  const auto called = file_of(dlsym(RTLD_DEFAULT, "PMPI_Get_library_version"));
  const auto differs = [&](std::string_view who, const void* address) -> std::string {
    const auto linked = mpi_of(address);
    if (called.empty() || linked.empty() || linked == called) return {};
    return fmt::format(
        "[mpi] this program has two MPI libraries, which do not know each other's communicators: it calls {}, but {} was built "
        "with {}",
        called, who, linked);
  };
  if (auto problem = differs("libmpigrad", reinterpret_cast<const void*>(&second_library)); !problem.empty()) return problem;
  return differs("HDF5", dlsym(RTLD_DEFAULT, "H5open"));
}

}  // namespace mpigrad::mpi
