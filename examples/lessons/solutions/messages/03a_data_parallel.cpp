// The solution of exercise 3a, to lesson 3: data parallelism with uneven shards.

#include "judge.h"
using namespace judge;

Tensor share(const Tensor& x, const Tensor& t, const Tensor& w, std::int64_t samples, const Communicator& comm) {
  // ---- your lines
  return sum(square(linear(x, replicate(w, comm)) - t)) / double(samples);
  // ----
}

#include "messages/checks/03a_data_parallel.inc"
