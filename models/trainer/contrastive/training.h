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
  EpochReport report;                                           // steps: left out ones count
  double retrieval = std::numeric_limits<double>::quiet_NaN();  // of the last batch: how often a view's nearest is its pair
  std::int64_t bad_batches = 0;                                 // in this epoch
};

// Epochs over the loader's batches of views, as TrainerHooks::epoch. Collective. A batch with a sample that is not finite is an
// Error on all ranks before anything has changed, or with schedule.skip_bad a line and nothing else. Errors: as the losses say; a
// loss that is not finite.
class ViewTraining {
 public:
  ViewTraining(const TrainOptions& options, Network& net, Objective& objective, const data::ViewLoader& loader,
               const Communicator& world);
  std::optional<Epoch> run(std::int64_t epoch, const FitOptions& options, Optimizer& optimizer);
  // Parts of --explain: batches and views; the loss.
  std::vector<trainer::Explained> explained() const;

 private:
  // Whether the batch can be used.
  bool usable(const data::ViewBatch& batch, Progress& progress) const;
  struct Taken {
    Objective::Step result;
    double loss = 0;
  };
  // Of the epoch's batch in that place.
  Taken step(const data::ViewBatch& batch, std::int64_t epoch, std::int64_t place, const FitOptions& options,
             Optimizer& optimizer);
  Objective::Step differentiate(const data::ViewBatch& batch, std::int64_t step, const LossScale* scale, Gradients& gradients);
  // Says it of the sample in the data instead of its place in the batch.
  [[noreturn]] void fail_for(const contrastive::SampleError& error, const data::ViewBatch& batch) const;
  Objective::Step differentiate_in_parts(const Tensors& x, const data::ViewBatch& batch, double factor, Gradients& gradients);

  const TrainOptions& o_;
  Network& net_;
  Objective& objective_;
  const data::ViewLoader& loader_;
  Communicator world_;
  std::int64_t parts_ = 1, call_ = 0;  // of a batch that is encoded in parts: how many, and encoded so far
};

}  // namespace mpigrad::contrast
