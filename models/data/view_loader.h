#pragma once
// Batches of several random views of every sample, for contrastive training.
//
//   auto source = data::open_source("omniglot-images-idx3-ubyte.gz");
//   auto recipe = augment::handwriting({1, 32, 32});
//   data::ViewLoader train(source, {.grid = grid, .batch = 256, .seed = 1, .views = {{recipe, 2}}});
//   for (const auto& batch : train.epoch(0)) ... batch.x[0], batch.x[1] ...
//
// A view depends only on (seed, epoch, the sample's index in the source, number of the view): the same pairs, bit for bit, on
// every grid, number of ranks and number of threads. Multi-crop (SwAV): {{large, 2}, {small, 6}}; recipes may differ in extents.
//
// Where a sample is split over ranks, each of these ranks reads and augments the whole sample and keeps its own block. This is
// exact for every step and needs no communication; it repeats the work on every rank of the spatial group and needs memory for
// one whole sample, before and after each step, per thread. For volumes too large for that use data::Loader, whose flips, shifts
// and transpositions read only blocks.

#include "comm/distributed/grid.h"
#include "models/data/augment/recipe.h"
#include "models/data/data_batches.h"
#include "models/data/source.h"

namespace mpigrad::data {

struct View {
  augment::Recipe recipe{};
  int count = 1;
};

struct ViewOptions {
  GridPtr grid{};          // none: plain local tensors
  std::int64_t batch = 1;  // samples of all ranks together; need not be a multiple of the number of ranks
  std::uint64_t seed = 0;
  bool shuffle = true;  // another order each epoch
  std::vector<View> views{};
  Transform transform = Transform::of_source;
  std::vector<std::int64_t> samples{};  // indices of the samples to use; empty: all
  bool drop_last = true;                // leave out a last, smaller batch
  int workers = 1;                      // threads that prepare samples; 0: the thread that asks for the batch
  int ahead = 2;                        // batches that are prepared while one is used
  std::int64_t cache_bytes = -1;        // as in LoaderOptions
  // Where the batches are. Batches are copied to a GPU when they are asked for, without waiting on the host.
  DeviceKind device = current_device();
};

struct ViewBatch {
  std::vector<Tensor> x;  // views, in order: float32 [N, D, H, W, C] of the view's extents, constant, with their layouts
  // One tensor for each label of the source, int64 [N]; none if its targets are not classes, or are per cell.
  std::vector<Tensor> labels;
  Tensor indices;  // indices of the samples in the source, int64 [N]
  // The index of the first of this rank's samples with stored values that are not finite, or -1, and its file. See
  // require_finite().
  std::int64_t bad_sample = -1;
  std::string bad_name{};
};

// Cost of preparing batches, on this rank since the loader was made.
struct Throughput {
  std::int64_t samples = 0;  // delivered
  double waited = 0;         // seconds in which the program waited for batches
  double worked = 0;         // seconds of all workers together
};

class ViewLoader {
 public:
  // Errors: no views, a subset with samples that do not exist, not even one batch, a recipe that does not fit the samples, more
  // ranks along a spatial axis than planes.
  ViewLoader(SourcePtr source, ViewOptions options);

  const Source& source() const;
  const ViewOptions& options() const;
  std::int64_t samples() const;  // per epoch
  std::int64_t steps() const;    // batches per epoch
  int views() const;             // per sample
  const augment::Recipe& recipe(int view) const;
  Shape shape(int view) const;       // global [batch, D, H, W, C]
  LayoutPtr layout(int view) const;  // of a full batch; none without a grid
  std::string text() const;          // descriptions of all recipes: for notes
  Throughput throughput() const;

  std::vector<std::int64_t> samples_of(std::int64_t epoch, std::int64_t step) const;
  // One batch, without preparing others.
  ViewBatch batch(std::int64_t epoch, std::int64_t step) const;
  // The batches of an epoch, in order, for one pass; the next ones are prepared meanwhile. Skips the `first` ones, which a
  // resumed training has already used. Not collective, but every rank gets the same number of batches. A read error is thrown
  // where its batch is asked for.
  Batches<ViewBatch> epoch(std::int64_t epoch, std::int64_t first = 0) const;

  struct State;
  struct Fetch;  // a batch that is being prepared

 private:
  std::shared_ptr<State> state_;
};

// Throws on all ranks if some rank has a sample that is not finite; the message gives its index and file. Call it before a step,
// so that no weight changes. Collective over `comm`; 8 bytes per rank.
void require_finite(const ViewBatch& batch, const Communicator& comm);

}  // namespace mpigrad::data
