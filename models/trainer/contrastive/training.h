#pragma once
// Epochs of contrastive training.

#include <limits>
#include <optional>

#include "models/trainer/contrastive/objective.h"
#include "framework/optim/loss_scale.h"
#include "framework/optim/schedule.h"
#include "models/losses/contrastive/batch.h"
#include "models/train/training.h"

namespace mpigrad::contrast {

// A score that some samples do not have, such as zero vectors, is not a number. Collective where `score` is.
template <class Score>
double score_or_nan(const Score& score) {
  try {
    return score();
  } catch (const contrastive::SampleError&) {
    return std::numeric_limits<double>::quiet_NaN();
  }
}

// What an epoch was like.
struct Epoch {
  EpochReport report;                                           // steps: left out ones count
  double retrieval = std::numeric_limits<double>::quiet_NaN();  // of the last batch: how often a view's nearest is its pair
  std::int64_t bad_batches = 0;                                 // in this epoch
};

// One pass over the loader's batches, of which options.begin has some behind it. Collective. A batch with a sample that is not
// finite is an Error on all ranks before anything has changed, or with schedule.skip_bad a line and nothing else. None where
// options.interrupt has ended it. Errors: as the losses say; a loss that is not finite.
class Trainer {
 public:
  Trainer(const TrainOptions& options, Network& net, Objective& objective, Optimizer& optimizer, LossScale* loss_scale,
          const data::Source& source, const data::ViewLoader& loader, const Communicator& world, const Schedule& learning_rate);
  std::optional<Epoch> run(std::int64_t epoch, const FitOptions& options);

 private:
  // Whether the batch can be used.
  bool usable(const data::ViewBatch& batch, Progress& progress) const;
  struct Taken {
    Objective::Step result;
    double loss = 0;
  };
  // Of the epoch's batch in that place.
  Taken step(const data::ViewBatch& batch, std::int64_t epoch, std::int64_t place);
  Objective::Step differentiate(const data::ViewBatch& batch, std::int64_t step, Gradients& gradients);
  // Says it of the sample in the data instead of its place in the batch.
  [[noreturn]] void fail_for(const contrastive::SampleError& error, const data::ViewBatch& batch) const;
  Objective::Step differentiate_in_parts(const Tensors& x, const data::ViewBatch& batch, Gradients& gradients);

  const TrainOptions& o_;
  Network& net_;
  Objective& objective_;
  Optimizer& optimizer_;
  LossScale* loss_scale_;
  const data::Source& source_;
  const data::ViewLoader& loader_;
  Communicator world_;
  Schedule learning_rate_;
  std::int64_t parts_ = 1, call_ = 0;  // of a batch that is encoded in parts: how many, and encoded so far
};

}  // namespace mpigrad::contrast
