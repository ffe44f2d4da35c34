#pragma once
// Statistics, as NumPy and the Python array API name them. Lists of dimensions are as in ops/reduce/reduce.h: negative ones count
// from the end, and the functions without a list take all. A dimension that is split over ranks is refused, unless said
// otherwise; redistribute() makes it whole.

#include <initializer_list>
#include <vector>

#include "framework/tensor/tensor.h"

namespace mpigrad {

// Sum of (x - mean)^2 over the number of elements less `correction`: 0 of the data themselves, 1 (Bessel's) of what they are a
// sample of. The derivative of the deviation is 0 where it is 0. Dimensions may be split: the result is replicated.
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
// Products; of integers int64, modulo 2^64. Derivatives are right where elements are 0, too.
Tensor prod(const Tensor& x, const std::vector<int>& axes, bool keep = false);
Tensor prod(const Tensor& x);
// y[i] is the sum (the product) of x[0] to x[i] along a dimension; of integers int64. In log2(n) passes over x.
Tensor cumulative_sum(const Tensor& x, int axis);
Tensor cumulative_prod(const Tensor& x, int axis);
// y[i] = x[i + 1] - x[i], `times` times.
Tensor diff(const Tensor& x, int axis = -1, int times = 1);
// The number of elements that are not 0, int64; of split dimensions a partial sum.
Tensor count_nonzero(const Tensor& x, const std::vector<int>& axes, bool keep = false);
Tensor count_nonzero(const Tensor& x);
// (sum |x|^order)^(1/order); infinity: the largest |x|, -infinity: the smallest, 0: how many are not 0. Its derivative at the
// zero vector is 0 for orders of at least 1. Of a finite order dimensions may be split: the result is replicated.
Tensor vector_norm(const Tensor& x, const std::vector<int>& axes, double order = 2, bool keep = false);
Tensor vector_norm(const Tensor& x, double order = 2);
inline Tensor vector_norm(const Tensor& x, std::initializer_list<int> axes, double order = 2, bool keep = false) {
  return vector_norm(x, std::vector(axes), order, keep);
}
// How many elements are in each of `bins` equal intervals of [low, high], int64 [bins]; the last one has its end, too. Elements
// outside and NaN are in none.
Tensor histogram(const Tensor& x, std::int64_t bins, double low, double high);

}  // namespace mpigrad
