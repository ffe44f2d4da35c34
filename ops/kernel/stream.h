#pragma once
// Stream and fault arguments of GPU kernels.

namespace mpigrad::cuda {

using Stream = void*;
struct Fault;

}  // namespace mpigrad::cuda
