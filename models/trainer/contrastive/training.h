#pragma once
// Epochs of contrastive training.

#include <limits>
#include <optional>

#include "framework/optim/optimizer.h"
#include "models/losses/contrastive/batch.h"
#include "models/train/training.h"
#include "models/trainer/contrastive/objective.h"
#include "models/trainer/recipe/explain.h"

namespace mpigrad::contrast {

struct Epoch {
  EpochReport report;                                           // steps: skipped ones count
  double retrieval = std::numeric_limits<double>::quiet_NaN();  // last batch: fraction whose nearest view is their pair
  std::int64_t bad_batches = 0;                                 // in this epoch
};

// Epochs over the loader's batches of views, as TrainerHooks::epoch. Collective. A batch with a sample that is not finite is an
// Error on all ranks before anything has changed; with schedule.skip_bad it is skipped and reported in a line. Errors: those of
// the losses; a loss that is not finite.
class ViewTraining {
 public:
  ViewTraining(const TrainOptions& options, Network& net, Objective& objective, const data::ViewLoader& loader,
               const Communicator& world);
  std::optional<Epoch> run(std::int64_t epoch, const FitOptions& options, Optimizer& optimizer);
  // Parts of --explain: batches and views; the loss.
  std::vector<trainer::Explained> explained() const;

 private:
  // True if the batch can be used.
  bool usable(const data::ViewBatch& batch, Progress& progress) const;
  struct Taken {
    Objective::Step result;
    double loss = 0;
  };
  // Takes the step of the epoch's batch `place`.
  Taken step(const data::ViewBatch& batch, std::int64_t epoch, std::int64_t place, const FitOptions& options,
             Optimizer& optimizer);
  Objective::Step differentiate(const data::ViewBatch& batch, std::int64_t step, const LossScale* scale, Gradients& gradients);
  // Rethrows the error with the sample's name instead of its place in the batch.
  [[noreturn]] void fail_for(const contrastive::SampleError& error, const data::ViewBatch& batch) const;
  Objective::Step differentiate_in_parts(const Tensors& x, const data::ViewBatch& batch, double factor, Gradients& gradients);

  const TrainOptions& o_;
  Network& net_;
  Objective& objective_;
  const data::ViewLoader& loader_;
  Communicator world_;
  std::int64_t parts_ = 1, call_ = 0;  // number of parts in which a batch is encoded, and of those encoded so far
};

}  // namespace mpigrad::contrast
