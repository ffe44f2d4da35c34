#pragma once
// Ridge regression (Hoerl and Kennard 1970), with a separate penalty for each target, chosen by leave-one-out cross-validation.

#include <cstdint>
#include <span>
#include <vector>

namespace mpigrad {

// prediction[t] = offset[t] + sum_j weight[t, j] (x[j] - mean[j]) / scale[j]
struct Ridge {
  std::vector<double> mean, scale;      // of the features; scale: standard deviation, 1 for a constant feature
  std::vector<double> offset, penalty;  // of each target
  std::vector<double> weight;           // [targets, features]
  // Predictions for x: the features of one or more samples, one after the other.
  std::vector<double> operator()(std::span<const double> x) const;
};

// Minimises sum_i (y_i - prediction_i)^2 + penalty |weight|^2 over the samples of x [samples, features] and y [samples, targets].
// The penalty is the one of 1e-5, 1e-4, ..., 1e5 with the least leave-one-out error, the sum of (r_i / (1 - h_ii))^2 with the
// fit's residuals r and hat matrix h (Allen 1974). Errors: fewer than two samples, numbers that are not finite, inconsistent
// sizes.
Ridge fit_ridge(std::span<const double> x, std::span<const double> y, std::int64_t samples);

}  // namespace mpigrad
