#pragma once
// The first step of all contrastive losses: exchanges how many samples each rank has and checks that they are valid. Every rank
// finds the same mistakes and throws the same Error, before anything else is sent, so no weight changes.

#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/collectives/collectives.h"

namespace mpigrad::contrastive {

// The ranks among which the samples of a distributed tensor are split: the communicator for its loss. Errors: no layout; a sample
// that is split over ranks.
Communicator sample_group(const Tensor& z);

// Error about an invalid sample, thrown on all ranks with its place, so that the caller can name the sample better.
class SampleError : public Error {
 public:
  struct Place {
    int rank = 0;           // of the communicator
    std::int64_t row = 0;   // of that rank's embeddings
    std::string flaw = "";  // "is zero and has no direction"
  };
  SampleError(const std::string& text, Place place) : Error(text), place_(std::move(place)) {}
  const Place& place() const { return place_; }

 private:
  Place place_;
};

// score(), or NaN where some samples have none, such as zero vectors. Collective where `score` is.
template <class Score>
double score_or_nan(const Score& score) {
  try {
    return score();
  } catch (const SampleError&) {
    return std::numeric_limits<double>::quiet_NaN();
  }
}

struct BatchRules {
  std::int64_t smallest = 2;  // samples of all ranks together
  bool refuse_zeros = true;   // rows whose norm is below 1e-12
  double temperature = 1;     // positive, the same on all ranks
  double learned = 0;         // value of a learned scale; finite
  bool labels_fit = true;     // further condition on this rank: a label for each row
};

struct Batch {
  Communicator comm;
  Rows rows;                                  // number of samples of every rank
  std::int64_t first = 0, here = 0, all = 0;  // this rank's first sample, number of its samples, number of all samples
  std::int64_t width = 0;
  Tensors views;  // without layout, float32 or float64: 16-bit embeddings are converted to float32
  LayoutPtr layout;

  // A share of the loss, with a layout if the embeddings have one.
  Tensor share(const Tensor& loss) const { return layout ? loss.with_layout(layout) : loss; }
};

// Views of the same samples, [n, D] each, on every rank of `comm`; n may differ from rank to rank and be 0. A distributed view is
// split over exactly these ranks. Collective; one allgather of 72 bytes per rank.
//
// Errors, on all ranks alike: a view that is not a matrix of floating-point numbers; views of different shapes; widths, types or
// temperatures that differ between ranks; fewer samples than `smallest`; a temperature that is not positive, a learned scale that
// is not finite; a number of labels that is not one per row; a SampleError with the global index for a sample that is not finite,
// or zero.
Batch inspect(std::string_view loss, const Tensors& views, const Communicator& comm, const BatchRules& rules = {});

// z / max(|z|, 1e-12), row by row: [n, D] -> [n, D]
Tensor unit_rows(const Tensor& z);
// Boolean [rows, columns]: true at (i, first + i).
Tensor diagonal(std::int64_t rows, std::int64_t columns, std::int64_t first, DeviceKind device);
// condition ? value : x, elementwise; value is a number
Tensor masked(const Tensor& x, const Tensor& condition, double value);
// Sums the D x D matrices `local` over ranks; returns this rank's rows of the sum and the index of the first one.
struct MatrixRows {
  Tensor values;
  std::int64_t first = 0;
};
MatrixRows matrix_rows(const Tensor& local, const Communicator& comm);

}  // namespace mpigrad::contrastive
