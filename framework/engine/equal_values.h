#ifndef MPIGRAD_FRAMEWORK_ENGINE_EQUAL_VALUES_H
#define MPIGRAD_FRAMEWORK_ENGINE_EQUAL_VALUES_H
// Finds an objective that every rank passes: one computed from results of plain allreduces only, with the same on all ranks.
//
// Followed are sums, differences, products and elementwise functions of such results, reshape, and numbers and constants whose
// elements are all equal, which are no data of one rank. Everything else ends it, as does a factor that may be one over the
// number of ranks: multiplied by that, an objective is right. Only rank 1 of an allreduce follows:
// rank 0 may be the one that passes an objective for all.

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>

#include "framework/tensor/tensor.h"

namespace mpigrad::detail {

class EqualValues {
 public:
  // What ran. `equal_on`: of an allreduce, the ranks on which its output is equal, else 0. `divisor`: the number by which the op
  // divides, 1 if it only adds one or changes the sign, infinity if it multiplies, 0 if it does none of these.
  void note(std::string_view op, int equal_on, double divisor, std::span<const Tensor> inputs, std::span<const Tensor> outputs);
  // Once per program, for an objective that is such a value.
  void warn_of(const Tensor& objective) const;

 private:
  struct Value {
    int ranks = 0;
    bool scaled = false;
    double summed = 1;  // elements of which each one is a sum: dividing by as many makes a mean, and no share
  };
  std::unordered_map<std::uint64_t, Value> values_;
};

}  // namespace mpigrad::detail

#endif
