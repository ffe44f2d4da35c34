#pragma once
// Plans of FFTW for one line at a time.

#include <cstdint>

#include "ops/fft/lines.h"

namespace mpigrad::cpu {

// A transform of n numbers (real ones, of real transforms) between two arrays with unit stride that begin at multiples of 64
// bytes and do not overlap; half_to_real overwrites its input. The plan is FFTW's ESTIMATE, so that it is the same in every
// process. Made once for each kind and n, and kept; any thread may call it. Error: the build has no FFTW.
template <class T>
class LineTransform {
 public:
  virtual ~LineTransform() = default;
  virtual void run(T* in, T* out) const = 0;
};
template <class T>
const LineTransform<T>& line_transform(ops::Lines kind, std::int64_t n);

}  // namespace mpigrad::cpu
