#pragma once
// Losses of statistics of the whole batch: D x D matrices. Each rank sums the terms of its D / P rows, which it gets by a
// reduce-scatter. No embedding is gathered. Conventions as in models/losses/contrastive/pairs.h; embeddings are not normalised.

#include "models/losses/contrastive/batch.h"

namespace mpigrad::contrastive {

struct BarlowTwinsAttributes {
  double lambda = 0.0051;
  double epsilon = 1e-5;  // added to the variances
};

// Zbontar et al. 2021. ahat, bhat: a and b: [n, D], each feature standardised over the global batch (biased variance),
// C = 1/N ahat^T bhat: [D, D]:
//
//   L = sum over i of (1 - C_ii)^2 + lambda sum over i != j of C_ij^2
Tensor barlow_twins(const Tensor& a, const Tensor& b, const Communicator& comm, const BarlowTwinsAttributes& attributes = {});

struct VicRegAttributes {
  double invariance = 25, variance = 25, covariance = 1;  // weights
  double deviation = 1;                                   // the least standard deviation of features without a penalty
  double epsilon = 1e-4;
};

// Bardes, Ponce and LeCun 2022; variances and covariances with N - 1, means over samples and features:
//
//   L = 25 mean (a - b)^2 + 25 (v(a) + v(b)) / 2 + c(a) + c(b)
//   v(z) = 1/D sum over d of max(0, 1 - sqrt(Var_d + 1e-4)),   c(z) = 1/D sum over i != j of Cov_ij^2
Tensor vicreg(const Tensor& a, const Tensor& b, const Communicator& comm, const VicRegAttributes& attributes = {});

struct SpectralAttributes {
  bool all_pairs = true;  // whether the second term includes the pairs (a_i, b_i)
};

// HaoChen et al. 2021: L = -2 E[f(x) . f(x+)] + E[(f(x) . f(x'))^2]. The second term, over all pairs of rows of a and b, is
// <a^T a, b^T b> / N^2: O(N D^2) work. Without the N pairs (a_i, b_i), as in the reference code:
// (<a^T a, b^T b> - sum over i of (a_i . b_i)^2) / (N (N - 1)).
Tensor spectral(const Tensor& a, const Tensor& b, const Communicator& comm, const SpectralAttributes& attributes = {});

}  // namespace mpigrad::contrastive
