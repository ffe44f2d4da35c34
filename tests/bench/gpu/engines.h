#pragma once
// Finds cuDNN's engines with wrong results: compares every plan of small random problems with the plain kernels in double.

#include <cstdint>

namespace mpigrad::bench {

// `problems` for each precision. Prints a Markdown table: engines, numbers of their right and wrong plans with equal and with
// unequal padding, and calls with wrong results.
void check_engines(std::int64_t problems);

}  // namespace mpigrad::bench
