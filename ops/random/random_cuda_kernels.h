#pragma once
// Random numbers on a GPU, with the arithmetic of the CPU: words, uniform numbers and masks are equal bit for bit; normal numbers
// differ by the rounding of cos and log in the two mathematical libraries, a unit in the last place of a double. They know no
// tensors and no tapes; included inside ops only. T is any floating-point type of the library unless said otherwise; 16-bit types
// are computed in float32 and rounded once. All results are the same in every run: sums have a fixed order and nothing is
// added atomically.

#include <cstdint>

#include "framework/engine/step_scalars.h"
#include "framework/tensor/random.h"
#include "framework/tensor/strided.h"
#include "ops/kernel/stream.h"

namespace mpigrad::cuda {

struct RandomProblem {
  int kind = 0;  // a ops::RandomNumbers::Kind
  Philox random;
  double a = 0, b = 1, limit = 0;
  StridedWalk<1> place;  // positions of local elements in the global array, starting at `first`
  std::int64_t first = 0;
  const StepScalars* live = nullptr;  // on the GPU: use the numbers of random.child(live->step)
};
template <class T>
void random(const RandomProblem& problem, std::int64_t n, T* y, Stream stream);

}  // namespace mpigrad::cuda
