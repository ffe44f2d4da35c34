#include "framework/cuda/cuda.h"
#include "framework/error.h"

namespace mpigrad::cuda {

bool available() { return false; }
void* allocate(std::int64_t bytes) {
  fail("[cuda] this build has no CUDA backend, so {} bytes cannot be allocated there", bytes);
}
void release(void*) {}

}  // namespace mpigrad::cuda
