#pragma once
// The CUDA device: memory and queries. cuda.cpp implements it where the toolkit is found, absent.cpp elsewhere.

#include <cstdint>

namespace mpigrad::cuda {

bool available();
void* allocate(std::int64_t bytes);
void release(void* memory);

}  // namespace mpigrad::cuda
