#pragma once
// Loops that threads share where they are long enough.

#include <omp.h>

#include <cstdint>

namespace mpigrad::cpu {

// Calls part(begin, end) for consecutive parts of [0, n): one part for each thread if `parallel`, else one part in all. The `if`
// of an OpenMP region is no substitute: a region of one thread still makes a team and wakes others, which takes 0.5 us.
template <class Part>
void for_parts(std::int64_t n, bool parallel, const Part& part) {
  if (!parallel) return part(std::int64_t{0}, n);
#pragma omp parallel
  {
    const std::int64_t thread = omp_get_thread_num(), threads = omp_get_num_threads();
    const std::int64_t most = (n + threads - 1) / threads, begin = thread * most;
    if (begin < n) part(begin, begin + most < n ? begin + most : n);
  }
}

}  // namespace mpigrad::cpu
