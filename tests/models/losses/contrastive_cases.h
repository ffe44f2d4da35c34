#pragma once
// Every contrastive loss at a small size: as the library computes it on any number of ranks, and as plain loops.

#include <functional>
#include <string>
#include <vector>

#include "comm/collectives/collectives.h"
#include "comm/communicator.h"
#include "framework/engine/op.h"

namespace mpigrad::testing::contrastive {

constexpr std::int64_t samples = 7, features = 3, width = 5;

// This rank's samples of the batch.
struct Part {
  Communicator comm;
  Rows rows;
  std::int64_t first = 0, here = 0;
  Tensor of(const Tensor& global) const;  // these rows
};
Rows balanced(int ranks);
// Extremely uneven rows: none on the first rank, most on the second.
Rows lopsided(int ranks);
Part part_of(const Communicator& comm, const Rows& rows);

using Matrix = std::vector<std::vector<double>>;
Matrix matrix_of(const Tensor& x);

struct LossCase {
  std::string name;
  int views = 2;
  std::function<Tensors(DType)> learned{};  // initial values of the loss's own parameters
  // This rank's share of the loss, from its rows of the views.
  std::function<Tensor(const Tensors& views, const Tensors& learned, const Part& part)> share;
  std::function<double(const std::vector<Matrix>& views, const Tensors& learned)> formula;
  bool second_order = true;
};

const std::vector<LossCase>& cases();
// Losses as many code bases compute them: the value is the same, or nearly, but the gradient differs.
const std::vector<LossCase>& wrong_cases();
const LossCase& case_named(const std::string& name);

// Global, replicated: inputs [samples, features] of a view and weights [width, features].
Tensor inputs_of(int view, DType dtype);
Tensor weights(DType dtype);
Tensor class_labels();
Tensors learned_of(const LossCase& loss, DType dtype);
// Views computed by a network with replicated weights, plus `noise`: this rank's rows.
Tensors embed(const LossCase& loss, const Tensor& w, const Tensors& noise, const Part& part);

// Value and gradients of one batch, with respect to the embeddings (this rank's rows), the weights and the loss's own parameters.
struct Gradient {
  double value = 0;
  Tensors embeddings, same;
};
Gradient gradient_of(const LossCase& loss, const Part& part, DType dtype);
// |g - expected| / |expected| over the whole gradient, including the embeddings of all ranks; replicated.
double relative_difference(const Gradient& g, const Gradient& expected_whole, const Part& part);

}  // namespace mpigrad::testing::contrastive
