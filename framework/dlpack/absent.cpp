// The functions of dlpack.h in a build without DLPack's header.

#include "framework/dlpack/dlpack.h"

namespace mpigrad {

namespace {
[[noreturn]] void refuse(const char* function) {
  fail("[{}] this build has no DLPack: install libdlpack-dev and configure it again", function);
}
}  // namespace

bool dlpack_available() { return false; }
DLManagedTensor* to_dlpack(const Tensor&) { refuse("to_dlpack"); }
Tensor from_dlpack(DLManagedTensor*) { refuse("from_dlpack"); }

}  // namespace mpigrad
