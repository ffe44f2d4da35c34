#include "models/losses/contrastive/statistics.h"

#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"

namespace mpigrad::contrastive {
namespace {

Tensor product(const Tensor& a, const Tensor& b) { return matmul(a, b, {.transpose_a = true}); }

// x minus its mean over the samples of all ranks. A plain allreduce: each rank uses the mean for its own samples.
Tensor centred(const Tensor& x, const Batch& batch) {
  return x - allreduce(sum(x, {0}), batch.comm) * (1 / static_cast<double>(batch.all));
}

// The two D x D matrices side by side, and this rank's rows of both.
struct TwoMatrices {
  Tensor first, second;
  std::int64_t row = 0;
};
TwoMatrices rows_of(const Tensor& first, const Tensor& second, const Communicator& comm) {
  const auto width = first.dim(1);
  const auto mine = matrix_rows(concatenate({first, second}, 1), comm);
  return {slice(mine.values, 1, 0, width), slice(mine.values, 1, width, 2 * width), mine.first};
}

}  // namespace

Tensor barlow_twins(const Tensor& a, const Tensor& b, const Communicator& comm, const BarlowTwinsAttributes& at) {
  const auto batch = inspect("barlow_twins", {a, b}, comm, {.refuse_zeros = false});
  const double scale = 1 / static_cast<double>(batch.all);
  const auto d = batch.width;
  const auto z = centred(concatenate(batch.views, 1), batch);
  const auto standard = z / sqrt(allreduce(sum(square(z), {0}), comm) * scale + at.epsilon);
  const auto mine = matrix_rows(product(slice(standard, 1, 0, d), slice(standard, 1, d, 2 * d)) * scale, comm);
  const auto& c = mine.values;
  const auto terms = where(diagonal(c.dim(0), d, mine.first, c.device()), square(1 - c), square(c) * at.lambda);
  return batch.share(sum(terms));
}

Tensor vicreg(const Tensor& a, const Tensor& b, const Communicator& comm, const VicRegAttributes& at) {
  const auto batch = inspect("vicreg", {a, b}, comm, {.refuse_zeros = false});
  const auto n = static_cast<double>(batch.all), width = static_cast<double>(batch.width);
  const auto z = centred(concatenate(batch.views, 1), batch);
  const auto x = slice(z, 1, 0, batch.width), y = slice(z, 1, batch.width, 2 * batch.width);
  const auto mine = rows_of(product(x, x) * (1 / (n - 1)), product(y, y) * (1 / (n - 1)), comm);
  const auto eye = diagonal(mine.first.dim(0), batch.width, mine.row, z.device());
  Tensor share = sum(square(batch.views[0] - batch.views[1])) * (at.invariance / (n * width));
  for (const auto& covariance : {mine.first, mine.second}) {
    const auto variance = sum(masked(covariance, constant(logical_not(eye)), 0), {1});
    share = share + sum(relu(at.deviation - sqrt(variance + at.epsilon))) * (at.variance / (2 * width)) +
            sum(square(masked(covariance, eye, 0))) * (at.covariance / width);
  }
  return batch.share(share);
}

Tensor spectral(const Tensor& a, const Tensor& b, const Communicator& comm, const SpectralAttributes& at) {
  const auto batch = inspect("spectral", {a, b}, comm, {.smallest = at.all_pairs ? 1 : 2, .refuse_zeros = false});
  const auto n = static_cast<double>(batch.all);
  const auto &x = batch.views[0], &y = batch.views[1];
  // Divides early: sums of squares of a large batch are large.
  const auto mine = rows_of(product(x, x) * (1 / n), product(y, y) * (1 / n), comm);
  const auto pairs = sum(x * y, {1});
  const auto positive = sum(pairs) * (-2 / n), all = sum(mine.first * mine.second);
  if (at.all_pairs) return batch.share(positive + all);
  return batch.share(positive + all * (n / (n - 1)) - sum(square(pairs)) * (1 / (n * (n - 1))));
}

}  // namespace mpigrad::contrastive
