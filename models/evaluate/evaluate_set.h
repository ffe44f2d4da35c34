#pragma once
// Common parts of evaluations: gathers the labels of the whole set, and sums over ranks. Used inside this folder only.

#include <string_view>
#include <vector>

#include "models/losses/contrastive/batch.h"

namespace mpigrad::contrastive {

// The labels of all ranks, in order. Error, on all ranks alike: a rank without one int64 label for each of its samples.
std::vector<std::int64_t> gathered_labels(std::string_view what, const Tensor& labels, const Batch& batch);
// Sums over ranks, in place; bitwise equal on all ranks.
void sum_over_ranks(std::vector<double>& values, const Communicator& comm);
double sum_over_ranks(double value, const Communicator& comm);

}  // namespace mpigrad::contrastive
