// Without CUDA no tensor is on a GPU, so none of these is reached.

#include "framework/cuda/boxes.h"
#include "framework/cuda/cuda.h"
#include "framework/error.h"

namespace mpigrad::cuda {

void pack_box(void*, const void*, const BoxRows&, std::int64_t) { fail("[cuda] no box can be packed: {}", unavailable()); }
void unpack_box(void*, const void*, const BoxRows&, std::int64_t) { fail("[cuda] no box can be unpacked: {}", unavailable()); }
void add_box(void*, const void*, const BoxRows&, std::int64_t, Addends) { fail("[cuda] no box can be added: {}", unavailable()); }

}  // namespace mpigrad::cuda
