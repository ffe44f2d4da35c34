#pragma once
// The variables MPIGRAD_* of the environment as a whole; what each means stands where it is read.

#include <string>
#include <vector>

namespace mpigrad {

// A warning for each variable whose name is all but that of one that is read: nobody reads it, and the checks or the order of
// sums that were asked for would silently not be.
std::vector<std::string> mistyped_variables();

}  // namespace mpigrad
