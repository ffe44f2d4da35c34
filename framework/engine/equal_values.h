#ifndef MPIGRAD_FRAMEWORK_ENGINE_EQUAL_VALUES_H
#define MPIGRAD_FRAMEWORK_ENGINE_EQUAL_VALUES_H
// Detects an objective that every rank passes although it is one value: computed from results of plain allreduces only and equal
// on all ranks.
//
// Follows sums, differences, products and elementwise functions of such results, reshape, and numbers and constants whose
// elements are all equal, since they contain no data of one rank. Any other op ends the search, as does a factor that may be one
// over the number of ranks: an objective multiplied by that is correct. Only rank 1 of an allreduce follows values:
// rank 0 may be the one that passes an objective for all.

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>

#include "framework/tensor/tensor.h"

namespace mpigrad::detail {

class EqualValues {
 public:
  // Notes an op that ran. `equal_on`: for an allreduce the number of ranks on which its output is equal, else 0. `divisor`: the
  // number by which the op divides, 1 if it only adds a number or changes the sign, infinity if it multiplies, 0 for all other
  // ops.
  void note(std::string_view op, int equal_on, double divisor, std::span<const Tensor> inputs, std::span<const Tensor> outputs);
  // Warns, once per program, if the objective is such a value.
  void warn_of(const Tensor& objective) const;

 private:
  struct Value {
    int ranks = 0;
    bool scaled = false;
    double summed = 1;  // each element sums this many: dividing by it gives a mean, not a share of one
  };
  std::unordered_map<std::uint64_t, Value> values_;
};

}  // namespace mpigrad::detail

#endif
