#pragma once
// Measures of the quality of embeddings, without further training of the encoder.
//
// Embeddings: [n, D], this rank's rows of a set that is split over the ranks of `comm`, n may differ and be 0; bfloat16 and
// float16 are converted to float32. For a set that every rank stores completely, `comm` is a communicator of one rank. Results
// are those of the whole set and the same on all ranks, unless stated otherwise. Collective, and outside the tape. Embeddings are
// passed around a ring, block by block, and similarities are computed tile by tile, so the memory needed is two blocks and a
// tile; labels, eight bytes per sample, are gathered. Errors are the same on all ranks: invalid embeddings
// (models/losses/contrastive/batch.h); missing labels or a wrong number of labels.

#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "framework/tensor/tensor.h"

namespace mpigrad::contrastive {

// A set of samples: embeddings [n, D] and labels, int64 [n].
struct Labelled {
  Tensor embeddings, labels;
};

// ---- neighbours

struct Nearest {
  std::int64_t count = 0;               // neighbours per query
  std::vector<double> similarity;       // [queries of this rank, count], cosines, the largest first
  std::vector<std::int64_t> neighbour;  // indices in the whole bank; for equal similarity the smaller index first
};
struct NearestAttributes {
  std::int64_t count = 20;  // at most as many as the bank has
  bool skip_own = false;    // queries and bank are one set: a sample is not its own neighbour
  std::int64_t tile = 1024;
};
// Nearest neighbours by cosine, for this rank's queries.
Nearest nearest(const Tensor& queries, const Tensor& bank, const Communicator& comm, const NearestAttributes& attributes = {});

struct NeighbourVoteAttributes {
  std::int64_t neighbours = 20;
  double temperature = 0.07;
  std::int64_t tile = 1024;
};
// Fraction of queries whose label wins the vote of their neighbours in the bank, with weights exp(cosine / temperature) (Wu et
// al. 2018); for equal votes the smaller label wins.
double neighbour_accuracy(const Labelled& queries, const Labelled& bank, const Communicator& comm,
                          const NeighbourVoteAttributes& attributes = {});

// ---- retrieval: recall at each of `k`

// Fraction of rows of a whose partner, the same row of b, is among the k rows of b with the largest cosine. A row with the same
// cosine as the partner counts as half a row before it, so identical embeddings find nothing.
std::vector<double> paired_recall(const Tensor& a, const Tensor& b, const Communicator& comm, const std::vector<std::int64_t>& k,
                                  std::int64_t tile = 1024);
// Fraction of samples with a sample of the same label among the k nearest other samples.
std::vector<double> label_recall(const Labelled& samples, const Communicator& comm, const std::vector<std::int64_t>& k,
                                 std::int64_t tile = 1024);

// ---- geometry (Wang and Isola 2020), of embeddings normalised to unit length

// Mean of |a_i - b_i|^power over pairs of views; smaller is better.
double alignment(const Tensor& a, const Tensor& b, const Communicator& comm, double power = 2);
// log of the mean of exp(-t |z_i - z_j|^2) over all i != j; smaller is better, and 0 means collapse to one point.
double uniformity(const Tensor& z, const Communicator& comm, double t = 2, std::int64_t tile = 1024);

// Whether embeddings have collapsed, to a point or to a few dimensions.
struct Collapse {
  std::vector<double> deviation;  // of each dimension of the embeddings normalised to unit length
  double mean_deviation = 0;      // times sqrt(D): 1 on average for uniform directions, 0 for one point
  double effective_rank = 0;      // exp of the entropy of the singular values of the centred embeddings (Roy and Vetterli 2007)
};
// The effective rank costs min(n, D)^3 operations on every rank; it is NaN if min(n, D) is above `most`.
Collapse collapse(const Tensor& z, const Communicator& comm, std::int64_t most = 4096);
// Eigenvalues of a symmetric matrix, row-major, in ascending order.
std::vector<double> symmetric_eigenvalues(std::vector<double> matrix, std::int64_t n);

// ---- linear probe: multinomial logistic regression on frozen embeddings

struct ProbeAttributes {
  std::int64_t classes = 0;  // labels are 0 ... classes - 1; 0: the largest label decides
  double decay = 1e-4;       // the penalty is decay / 2 times the squared weights without biases
  int iterations = 200;      // at most
  double tolerance = 1e-5;   // of the gradient's norm, relative to 1 + the norm of the weights
  std::int64_t tile = 4096;  // rows computed at a time
};
struct Probe {
  std::int64_t classes = 0, width = 0;
  std::vector<double> mean, scale;  // [width], to standardise inputs
  std::vector<double> weights;      // [classes, width + 1], the bias last
  double loss = 0;                  // mean over the training set, decay included
  int iterations = 0;

  // Scores of this rank's rows: [n, classes], row-major, without softmax. Local.
  std::vector<double> scores(const Tensor& embeddings) const;
};
// Minimises the mean cross entropy by L-BFGS in float64, from zeros: no random numbers. The convex problem has one minimum.
Probe train_probe(const Labelled& samples, const Communicator& comm, const ProbeAttributes& attributes = {});
double probe_accuracy(const Probe& probe, const Labelled& samples, const Communicator& comm);
// Area under the ROC curve of a probe of two classes.
double probe_auc(const Probe& probe, const Labelled& samples, const Communicator& comm);

// ---- classification from few examples

struct FewShotAttributes {
  std::int64_t ways = 20, shots = 1, queries = 1;  // classes per episode, support and query samples per class
  std::int64_t episodes = 400;
  std::uint64_t seed = 0;
  std::int64_t block = 4096;  // embeddings of other ranks held at a time
};
struct FewShot {
  double accuracy = 0, standard_error = 0;  // mean over episodes
};
// An episode draws one group, `ways` of its classes, and for each class distinct support and query samples; a query gets the
// class with the largest cosine to the mean of the support's unit vectors. labels: classes; groups: int64 [n], such as the
// alphabet of a character; without groups all classes are one group. The samples of an episode depend on the seed and on the
// order of the whole set, not on the ranks. Errors: no group has enough classes with enough samples; a class in two groups.
FewShot few_shot(const Labelled& samples, const Tensor& groups, const Communicator& comm,
                 const FewShotAttributes& attributes = {});

}  // namespace mpigrad::contrastive
