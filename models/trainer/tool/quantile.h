#pragma once
// Medians and other quantiles of measurements.

#include <vector>

namespace mpigrad::tool {

// The value below which the fraction q in [0, 1] of the values lies, with linear interpolation; values may be infinite. NaN:
// there are none, or one is NaN. Error: q outside [0, 1].
double quantile(std::vector<double> values, double q);
double median(std::vector<double> values);

}  // namespace mpigrad::tool
