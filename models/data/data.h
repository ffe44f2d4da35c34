#pragma once
// Batches for training (models/data/loader/loader.h), and splits into training and test samples.

#include <cstdint>
#include <vector>

#include "models/data/loader/loader.h"

namespace mpigrad::data {

// Splits the indices 0 ... n - 1 at random into two lists, each sorted; the same for the same arguments. The test list has
// round(fraction n) indices; both lists have at least one.
struct Split {
  std::vector<std::int64_t> train, test;
};
Split split_train_test(std::int64_t n, double fraction, std::uint64_t seed);

}  // namespace mpigrad::data
