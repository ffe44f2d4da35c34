#pragma once
// Losses that spread embeddings: without them, views of a sample could agree by all being the same point. Conventions as in
// models/losses/contrastive/pairs.h.

#include "framework/tensor/random.h"
#include "models/losses/contrastive/batch.h"

namespace mpigrad::contrastive {

struct SigRegAttributes {
  std::int64_t slices = 256;  // random directions
  int points = 17;            // of the quadrature, odd, from -range to range
  double range = 5;
};

// SIGReg of LeJEPA (Balestriero and LeCun 2025, arXiv 2511.08544, algorithm 1): how far the projections of the embeddings z [n,
// D] on random unit directions a are from a standard normal distribution, by the Epps-Pulley statistic. With phi(t) = exp(-t^2 /
// 2) and N samples on all ranks:
//
//   L = mean over a of N integral |1/N sum over n of exp(i t a . z_n) - phi(t)|^2 phi(t) dt    (trapezoidal rule)
//
// `random`: of the directions; the same on all ranks, another one for each step. Ranks sum [slices, points - 1] numbers by one
// reduce-scatter; each then has a part of the slices.
Tensor sigreg(const Tensor& z, const Communicator& comm, const Philox& random, const SigRegAttributes& attributes = {});

struct LeJepaAttributes {
  double lambda = 0.05;  // weight of SIGReg
  SigRegAttributes sigreg{};
  int global_views = 2;  // the first views, of full size, whose mean all views predict
};

// LeJEPA: views z_v [n, D] of the same samples, V in all, and their mean mu over the global views:
//
//   L = (1 - lambda) mean over v, n, d of (z_v - mu)^2 + lambda mean over v of SIGReg(z_v)
Tensor lejepa(const Tensors& views, const Communicator& comm, const Philox& random, const LeJepaAttributes& attributes = {});

struct KoLeoAttributes {
  double epsilon = 1e-8;  // added to the distances
  bool refuse_zeros = true;
};

// The differential entropy's estimate by nearest neighbours (Sablayrolles et al. 2019; weight 0.1 in DINOv2). z [n, D], with unit
// rows u on all ranks:
//
//   L = -1/N sum over n of log( min over m != n of |u_n - u_m| + epsilon )
//
// Distances below 1e-12 count as 1e-12, with derivative 0. Each rank's rows against the gathered ones.
Tensor koleo(const Tensor& z, const Communicator& comm, const KoLeoAttributes& attributes = {});

}  // namespace mpigrad::contrastive
