#pragma once
// What all contrastive losses begin with: how many samples each rank has, and whether they can be used at all. Every rank finds
// the same mistakes and throws the same Error, before anything else is sent, so that no weight changes.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/collectives/collectives.h"

namespace mpigrad::contrastive {

// The ranks among which a distributed tensor's samples are split: the communicator for its loss. Errors: no layout, a sample that
// is not whole on its rank.
Communicator sample_group(const Tensor& z);

// A sample that cannot be used, on all ranks alike: the caller may know it by a better name.
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

struct BatchRules {
  std::int64_t smallest = 2;  // samples of all ranks together
  bool refuse_zeros = true;   // rows whose norm is below 1e-12
  double temperature = 1;     // positive, the same on all ranks
  double learned = 0;         // a learned scale's value; finite
  bool labels_fit = true;     // what else the loss needs of this rank: a label for each row
};

struct Batch {
  Communicator comm;
  Rows rows;                                  // samples of every rank
  std::int64_t first = 0, here = 0, all = 0;  // of this rank's samples the first, their number; that of all ranks together
  std::int64_t width = 0;
  Tensors views;  // plain, float32 or float64: 16-bit embeddings are computed with in float32
  LayoutPtr layout;

  // A share of the loss, with the layout that it has if the embeddings have one.
  Tensor share(const Tensor& loss) const { return layout ? loss.with_layout(layout) : loss; }
};

// Views of the same samples, [n, D] each, on every rank of `comm`; n may differ from rank to rank and be 0. A distributed view is
// split over exactly these ranks. Collective; one allgather of 72 bytes per rank.
//
// Errors, on all ranks alike: what is no matrix of floating-point numbers; views of different shapes; widths, types or
// temperatures that differ between ranks; fewer samples than `smallest`; a temperature or learned scale that is none; labels that
// are not one for each row; a SampleError for one that is not finite, or zero, by its global index.
Batch inspect(std::string_view loss, const Tensors& views, const Communicator& comm, const BatchRules& rules = {});

// z / max(|z|, 1e-12), row by row: [n, D] -> [n, D]
Tensor unit_rows(const Tensor& z);
// Boolean [rows, columns]: true at (i, first + i).
Tensor diagonal(std::int64_t rows, std::int64_t columns, std::int64_t first, DeviceKind device);
// condition ? value : x, for a number
Tensor masked(const Tensor& x, const Tensor& condition, double value);
// This rank's rows of the D x D matrices whose sum over ranks `local` is part of, and where they begin.
struct MatrixRows {
  Tensor values;
  std::int64_t first = 0;
};
MatrixRows matrix_rows(const Tensor& local, const Communicator& comm);

}  // namespace mpigrad::contrastive
