#pragma once
// Statistics with the names of NumPy and the Python array API. Lists of dimensions are as in ops/reduce/reduce.h: negative ones
// count from the end, and functions without a list reduce all dimensions. A dimension that is split over ranks is refused unless
// stated otherwise; redistribute() makes it whole.

#include <initializer_list>
#include <vector>

#include "framework/tensor/tensor.h"

namespace mpigrad {

// Sum of (x - mean)^2 divided by (number of elements - correction); correction is 0 for the variance of the data, 1 (Bessel's) to
// estimate the variance from a sample. The derivative of the standard deviation is 0 where the deviation is 0. Dimensions may be
// split: the result is replicated.
Tensor var(const Tensor& x, const std::vector<int>& axes, double correction = 0, bool keep = false);
Tensor var(const Tensor& x, double correction = 0);
// Here and below: {1} is a list, not a number.
inline Tensor var(const Tensor& x, std::initializer_list<int> axes, double correction = 0, bool keep = false) {
  return var(x, std::vector(axes), correction, keep);
}
Tensor stddev(const Tensor& x, const std::vector<int>& axes, double correction = 0, bool keep = false);
Tensor stddev(const Tensor& x, double correction = 0);
inline Tensor stddev(const Tensor& x, std::initializer_list<int> axes, double correction = 0, bool keep = false) {
  return stddev(x, std::vector(axes), correction, keep);
}
// Products; integers give int64, modulo 2^64. Derivatives are also right where elements are 0.
Tensor prod(const Tensor& x, const std::vector<int>& axes, bool keep = false);
Tensor prod(const Tensor& x);
// y[i] is the sum (the product) of x[0] to x[i] along a dimension; integers give int64. Takes log2(n) passes over x.
Tensor cumulative_sum(const Tensor& x, int axis);
Tensor cumulative_prod(const Tensor& x, int axis);
// y[i] = x[i + 1] - x[i], applied `times` times.
Tensor diff(const Tensor& x, int axis = -1, int times = 1);
// The number of elements that are not 0, int64; a partial sum over split dimensions.
Tensor count_nonzero(const Tensor& x, const std::vector<int>& axes, bool keep = false);
Tensor count_nonzero(const Tensor& x);
// (sum |x|^order)^(1/order); infinity: the largest |x|, -infinity: the smallest, 0: the number of elements that are not 0. The
// derivative at the zero vector is 0 for orders of at least 1. For a finite order dimensions may be split: the result is
// replicated.
Tensor vector_norm(const Tensor& x, const std::vector<int>& axes, double order = 2, bool keep = false);
Tensor vector_norm(const Tensor& x, double order = 2);
inline Tensor vector_norm(const Tensor& x, std::initializer_list<int> axes, double order = 2, bool keep = false) {
  return vector_norm(x, std::vector(axes), order, keep);
}
// The number of elements in each of `bins` equal intervals of [low, high], int64 [bins]; the last interval includes its upper
// end. Elements outside and NaN are not counted.
Tensor histogram(const Tensor& x, std::int64_t bins, double low, double high);

}  // namespace mpigrad
