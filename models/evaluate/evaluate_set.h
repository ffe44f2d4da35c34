#pragma once
// What evaluations begin with: embeddings that can be used, and the labels of the whole set. Used inside this folder only.

#include <string_view>
#include <vector>

#include "models/losses/contrastive/batch.h"

namespace mpigrad::contrastive {

// Of all ranks, in order. Errors, on all ranks alike: a rank without one label, int64, for each of its samples.
std::vector<std::int64_t> gathered_labels(std::string_view what, const Tensor& labels, const Batch& batch);
// Sums over ranks, in place and the same on all of them to the last bit.
void sum_over_ranks(std::vector<double>& values, const Communicator& comm);
double sum_over_ranks(double value, const Communicator& comm);

}  // namespace mpigrad::contrastive
