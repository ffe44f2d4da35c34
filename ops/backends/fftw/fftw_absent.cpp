// Without FFTW: refuses.

#include "framework/base/error.h"
#include "ops/backends/fftw/fftw.h"

namespace mpigrad::cpu {

template <class T>
const LineTransform<T>& line_transform(ops::Lines, std::int64_t) {
  fail("[fft] this build has no FFTW for Fourier transforms on CPUs: install libfftw3-dev and configure again");
}
template const LineTransform<float>& line_transform(ops::Lines, std::int64_t);
template const LineTransform<double>& line_transform(ops::Lines, std::int64_t);

}  // namespace mpigrad::cpu
