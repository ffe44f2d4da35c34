#pragma once
// Losses that compare samples with each other: local rows of the similarity matrix against the columns of all ranks.
//
// Every function returns this rank's share, a scalar: the sum over ranks is the loss of the global batch, and so is the objective
// of gradient(), for any numbers of samples per rank; some may be 0. `comm` holds the ranks among which the samples are split.
// Embeddings: [n, D], n may differ between ranks; bfloat16 and float16 are converted to float32. Embeddings may be distributed,
// with `comm` = sample_group(z); ranks that share their samples all return the same value. An invalid batch is the same Error on
// all ranks; see models/losses/contrastive/batch.h.

#include "models/losses/contrastive/batch.h"

namespace mpigrad::contrastive {

// How the N x N similarities are computed. `direct` gathers the columns and stores this rank's rows; `ring` stores only a tile
// (comm/collectives/ring.h), but computes the similarities again in the backward pass.
enum class Form : std::uint8_t { direct, ring };

struct NtXentAttributes {
  double temperature = 0.1;
  bool normalise = true;     // rows to unit norm, max(|z|, 1e-12)
  bool refuse_zeros = true;  // see inspect()
  Form form = Form::direct;
  std::int64_t tile = 0;  // rows of a tile of the ring; 0: ring_tile() of comm/collectives/ring.h
};

// SimCLR (Chen et al. 2020). a, b: two views of the same samples. With the 2N rows z of both views on all ranks and s_ij = z_i .
// z_j:
//
//   L = 1/2N sum over i of -log( exp(s_i,pair(i) / T) / sum over k != i of exp(s_ik / T) )
Tensor nt_xent(const Tensor& a, const Tensor& b, const Communicator& comm, const NtXentAttributes& attributes = {});

struct SupConAttributes {
  double temperature = 0.1;
  bool normalise = true, refuse_zeros = true;
  // Whether the denominator of a positive also contains the other positives, as in the paper's L_out. Otherwise it has the
  // positive's own term and the negatives (optax's ntxent).
  bool positives_in_denominator = true;
  // Mean over samples of the mean over their positives; otherwise the mean over all positive pairs.
  bool mean_over_samples = true;
  Form form = Form::direct;  // `ring` passes labels around with the embeddings
  std::int64_t tile = 0;
};

// Supervised contrastive (Khosla et al. 2020, L_out). z: [n, D], all views one after the other; labels: integers [n]. P(i) are
// the other rows with the label of i, M is the number of rows on all ranks; a row without a positive contributes 0:
//
//   L = 1/M sum over i of -1/|P(i)| sum over p in P(i) of log( exp(s_ip / T) / sum over k != i of exp(s_ik / T) )
Tensor sup_con(const Tensor& z, const Tensor& labels, const Communicator& comm, const SupConAttributes& attributes = {});

struct ClipAttributes {
  bool normalise = true, refuse_zeros = true;
  Form form = Form::direct;
  std::int64_t tile = 0;
};

// InfoNCE of two towers (van den Oord et al. 2018; CLIP, Radford et al. 2021): row i of a and row i of b are a pair; all other
// combinations are negatives. log_scale: one element, the learned t of the scale e^t, log(1 / 0.07) at the start and at most
// log(100) (limit_log_scale); the same on all ranks. CE is the mean cross entropy:
//
//   L = 1/2 ( CE(e^t a b^T, diagonal) + CE(e^t b a^T, diagonal) )
Tensor clip(const Tensor& a, const Tensor& b, const Tensor& log_scale, const Communicator& comm,
            const ClipAttributes& attributes = {});
// t <- min(t, largest), in place: after a step, outside the tape. The default is log(100).
void limit_log_scale(Tensor log_scale, double largest = 4.605170185988092);

struct SiglipAttributes {
  bool normalise = true, refuse_zeros = true;
  std::int64_t tile = 0;
};

// SigLIP (Zhai et al. 2023). log_scale, bias: one element each, learned, log(10) and -10 at the start. y_ij = 1 for i = j, else
// -1:
//
//   L = -1/N sum over i, j of log sigmoid( y_ij (e^t a_i . b_j + bias) )
//
// A sum of terms, so blocks of b are passed around the ring; nothing is gathered, and the backward pass computes tiles again.
Tensor siglip(const Tensor& a, const Tensor& b, const Tensor& log_scale, const Tensor& bias, const Communicator& comm,
              const SiglipAttributes& attributes = {});

}  // namespace mpigrad::contrastive
