#pragma once
// Which of cuDNN's engines compute convolutions wrongly: every plan of small random problems beside the plain kernels in double.

#include <cstdint>

namespace mpigrad::bench {

// `problems` for each precision. Prints a table in Markdown: engines, how many of their plans were right and wrong with equal and
// with unequal padding, and calls that came out wrong.
void check_engines(std::int64_t problems);

}  // namespace mpigrad::bench
