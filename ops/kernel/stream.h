#pragma once
// What kernels of a GPU get besides shapes and pointers.

namespace mpigrad::cuda {

using Stream = void*;
struct Fault;

}  // namespace mpigrad::cuda
