// Run by meson: exit code 0 if HDF5 was built with the MPI library of this program; else prints the files of both libraries.

#include <dlfcn.h>
#include <hdf5.h>
#include <mpi.h>

#include <cstdio>
#include <cstring>

namespace {

const char* file_of(void* address) {
  Dl_info info{};
  return address && dladdr(address, &info) && info.dli_fname ? info.dli_fname : "";
}

}  // namespace

int main(int argc, char**) {
  if (argc > 1) MPI_Finalize();  // never called: links MPI
  void* hdf5 = dlopen(file_of(reinterpret_cast<void*>(&H5open)), RTLD_LAZY | RTLD_NOLOAD);
  const char* own = file_of(dlsym(RTLD_DEFAULT, "PMPI_Get_library_version"));
  const char* other = hdf5 ? file_of(dlsym(hdf5, "PMPI_Get_library_version")) : own;  // a static HDF5 calls the program's
  if (std::strcmp(own, other) == 0) return 0;
  std::printf("%s, not %s\n", other, own);
  return 1;
}
