#pragma once
// How good embeddings are, without training the encoder any further.
//
// Embeddings: [n, D], this rank's rows of a set that is split over the ranks of `comm`, n may differ and be 0; bfloat16 and
// float16 are computed with in float32. Of a set that every rank has whole, `comm` is a communicator of one rank. Results are
// those of the whole set and the same on all ranks, unless said. Collective, and outside the tape. Embeddings travel round a
// ring, block by block, and similarities are computed tile by tile, so that memory is that of two blocks and a tile; labels,
// eight bytes a sample, are gathered. Errors are the same on all ranks: embeddings that cannot be used
// (models/losses/contrastive/batch.h); labels that are missing or of another number.

#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "framework/tensor/tensor.h"

namespace mpigrad::contrastive {

// A set of samples: embeddings [n, D] and what they are, int64 [n].
struct Labelled {
  Tensor embeddings, labels;
};

// ---- neighbours

struct Nearest {
  std::int64_t count = 0;               // of each query
  std::vector<double> similarity;       // [queries of this rank, count], cosines, the largest first
  std::vector<std::int64_t> neighbour;  // their places in the whole bank; of equal similarity the first place first
};
struct NearestAttributes {
  std::int64_t count = 20;  // at most as many as the bank has
  bool skip_own = false;    // queries and bank are one set: a sample is no neighbour of its own
  std::int64_t tile = 1024;
};
// By cosine, for this rank's queries.
Nearest nearest(const Tensor& queries, const Tensor& bank, const Communicator& comm, const NearestAttributes& attributes = {});

struct NeighbourVoteAttributes {
  std::int64_t neighbours = 20;
  double temperature = 0.07;
  std::int64_t tile = 1024;
};
// Share of queries whose label wins among their neighbours in the bank, each with the weight exp(cosine / temperature) (Wu et al.
// 2018); of equal votes the smaller label wins.
double neighbour_accuracy(const Labelled& queries, const Labelled& bank, const Communicator& comm,
                          const NeighbourVoteAttributes& attributes = {});

// ---- retrieval: recall at each of `k`

// Share of rows of a whose partner, the same row of b, is among the k rows of b of the largest cosine. A row of the same cosine
// as the partner counts as half a row before it, so that embeddings that are all the same find nothing.
std::vector<double> paired_recall(const Tensor& a, const Tensor& b, const Communicator& comm, const std::vector<std::int64_t>& k,
                                  std::int64_t tile = 1024);
// Share of samples with one of their label among the k nearest others.
std::vector<double> label_recall(const Labelled& samples, const Communicator& comm, const std::vector<std::int64_t>& k,
                                 std::int64_t tile = 1024);

// ---- geometry (Wang and Isola 2020), of embeddings brought to unit length

// Mean of |a_i - b_i|^power over pairs of views; smaller is better.
double alignment(const Tensor& a, const Tensor& b, const Communicator& comm, double power = 2);
// log of the mean of exp(-t |z_i - z_j|^2) over all i != j; smaller is better, and 0 is a collapse to one point.
double uniformity(const Tensor& z, const Communicator& comm, double t = 2, std::int64_t tile = 1024);

// Whether embeddings have collapsed, to a point or to a few dimensions.
struct Collapse {
  std::vector<double> deviation;  // of each dimension of the embeddings brought to unit length
  double mean_deviation = 0;      // times sqrt(D): 1 on average for directions that are uniform, 0 for one point
  double effective_rank = 0;      // exp of the entropy of the singular values of the centred embeddings (Roy and Vetterli 2007)
};
// The effective rank takes min(n, D)^3 operations on every rank; where that extent is above `most`, it is NaN.
Collapse collapse(const Tensor& z, const Communicator& comm, std::int64_t most = 4096);
// Eigenvalues of a symmetric matrix, row-major, in ascending order.
std::vector<double> symmetric_eigenvalues(std::vector<double> matrix, std::int64_t n);

// ---- linear probe: multinomial logistic regression on frozen embeddings

struct ProbeAttributes {
  std::int64_t classes = 0;  // labels are 0 ... classes - 1; 0: the largest label decides
  double decay = 1e-4;       // of the squared weights, halved; the biases are free
  int iterations = 200;      // at most
  double tolerance = 1e-5;   // of the gradient's norm, relative to 1 + that of the weights
  std::int64_t tile = 4096;  // rows that are worked on at once
};
struct Probe {
  std::int64_t classes = 0, width = 0;
  std::vector<double> mean, scale;  // [width], that inputs are standardised with
  std::vector<double> weights;      // [classes, width + 1], the bias last
  double loss = 0;                  // mean over the training set, decay included
  int iterations = 0;

  // Of this rank's rows: [n, classes], row-major, without softmax. Local.
  std::vector<double> scores(const Tensor& embeddings) const;
};
// Minimises the mean cross entropy by L-BFGS in float64, from zeros: no random numbers. The convex problem has one minimum.
Probe train_probe(const Labelled& samples, const Communicator& comm, const ProbeAttributes& attributes = {});
double probe_accuracy(const Probe& probe, const Labelled& samples, const Communicator& comm);
// Area under the curve of a probe of two classes.
double probe_auc(const Probe& probe, const Labelled& samples, const Communicator& comm);

// ---- classification from few examples

struct FewShotAttributes {
  std::int64_t ways = 20, shots = 1, queries = 1;  // classes of an episode, support and query samples of each
  std::int64_t episodes = 400;
  std::uint64_t seed = 0;
  std::int64_t block = 4096;  // embeddings that a rank has of others at once
};
struct FewShot {
  double accuracy = 0, standard_error = 0;  // mean over episodes
};
// An episode takes one group at random, `ways` of its classes, and of each class support and query samples, none twice; a query
// is given the class of the largest cosine with the mean of the support's unit vectors. labels: classes; groups: int64 [n], such
// as the alphabet of a character; without it all classes are one group. Which samples an episode takes depends on the seed and on
// the order of the whole set, not on the ranks. Errors: no group has enough classes with enough samples; a class in two groups.
FewShot few_shot(const Labelled& samples, const Tensor& groups, const Communicator& comm,
                 const FewShotAttributes& attributes = {});

}  // namespace mpigrad::contrastive
