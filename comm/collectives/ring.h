#pragma once
// Log-sum-exps of a matrix of inner products without storing the matrix: blocks of columns travel round a ring of ranks. The next
// block arrives while the present one is processed tile by tile. Memory grows linearly with the number of rows and columns. (For
// contrastive losses of large batches. The tiles on one device are those of Dao et al. 2022, the ring is that of Liu et al.
// 2023.)

#include "comm/collectives/collectives.h"

namespace mpigrad {

struct RingAttributes {
  Rows rows{};            // of k on every rank; left out, the ranks exchange them
  bool skip_own = false;  // row i of q and row i of k, on the same rank, are one sample: their product is left out
  // Rows i of q and of k, on the same rank, have labels[i]: products of equal labels are left out, including the own one. int64
  // [n], constant; they travel with the columns. For ring_logsumexp only.
  Tensor labels{};
  std::int64_t tile = 0;  // rows and columns of a tile; 0: ring_tile()
};

// 1024; on a GPU 4096, because smaller tiles do not fill it.
inline std::int64_t ring_tile(DeviceKind device) { return device == DeviceKind::cuda ? 4096 : 1024; }

// y_i = log sum over j of exp(q_i . k_j), over the k of all ranks; -infinity for a sum of nothing.
//
//   q: [n, D], this rank's rows, n may differ and be 0;  k: [m, D], this rank's block of columns;  float32 or float64
//   y: [n]
//
// The adjoint, to every order: p_ij = exp(q_i . k_j - y_i) is computed again tile by tile,
//   qbar_i = ybar_i sum_j p_ij k_j,  kbar_j = sum_i ybar_i p_ij q_i,
// and kbar travels round the ring with its block, back at its rank after as many steps as there are ranks. A second derivative
// records these steps and therefore stores all tiles.
Tensor ring_logsumexp(const Tensor& q, const Tensor& k, const Communicator& comm, const RingAttributes& attributes = {});

// Log-sum-exps of the rows and of the columns of one matrix, at the cost of one of them: rows as above,
// columns_j = log sum over i of exp(q_i . k_j), over the q of all ranks: [m].
struct RingLogSumExps {
  Tensor rows, columns;
};
RingLogSumExps ring_logsumexps(const Tensor& q, const Tensor& k, const Communicator& comm, const RingAttributes& attributes = {});

namespace ops {

struct RingLogSumExp {
  Communicator comm;
  RingAttributes a;
  bool columns = false;
  static constexpr OpTraits traits() {
    return {.name = "ring_logsumexp", .keeps_inputs = 3, .keeps_outputs = 3, .communicates = true};
  }
  Types infer(Inputs in) const;
  Cost cost(Inputs in, Outputs out) const;
  void run(Inputs in, Outputs out) const;
  Tensors vjp(const Replay& at, Inputs g) const;
};

}  // namespace ops
}  // namespace mpigrad
