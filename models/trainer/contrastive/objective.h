#pragma once
// The loss of a step, of any kind, and the state that some losses keep between steps: queues, a slow copy of the encoder.

#include <map>
#include <memory>
#include <optional>

#include "models/data/view_loader.h"
#include "models/losses/contrastive/moco.h"
#include "models/losses/contrastive/swav.h"
#include "models/trainer/contrastive/network.h"

namespace mpigrad::contrast {

class Objective {
 public:
  // `net` must be built. `norm` is the network's, for the slow copy of the encoder.
  Objective(const TrainOptions& options, const NetworkConfig& config, Network& net, const nn::BatchNormAttributes& norm,
            const LayoutPtr& layout, std::size_t label);

  struct Step {
    Tensor share;   // this rank's partial sum of the loss
    Tensors views;  // the embeddings that the loss compares: [n, width] each
  };
  // Runs under a tape. x: the views of a batch, of the network's dtype and on its device.
  Step operator()(const Tensors& x, const data::ViewBatch& batch, std::int64_t step);
  // The loss of embeddings that are computed already, in the step of the network (Module::step()).
  Tensor loss(const Tensors& z, const data::ViewBatch& batch, const Communicator& comm);
  // Called after the optimizer's step, also if that step was skipped.
  void finish(const Step& step);

  // The loss and its settings, for --explain: "moco: temperature 0.07, 4096 keys, ..."
  std::string text() const;

  // Copies the network, whose weights have been loaded, into the slow copy of the encoder.
  void begin();
  // publish(): the state becomes buffers of the network that share its memory, for checkpoints; restore() reads numbers from
  // them.
  void publish();
  void restore();
  // Removes these buffers, so that the network has only its weights.
  void withdraw();

 private:
  Tensor key_of(const Tensor& x, std::int64_t step);
  Tensor main_loss(const Tensors& z, const data::ViewBatch& batch, const Communicator& comm);  // without the KoLeo term
  Tensor dino_loss(const Tensors& z, const Communicator& comm);

  const TrainOptions& o_;
  Network& net_;
  std::size_t label_;
  std::unique_ptr<Network> key_net_;
  std::optional<contrastive::KeyQueue> queue_;
  std::optional<contrastive::SwavQueue> swav_queue_;
  Tensors keys_;        // of this step: of moco's second view, of both views for dino's teacher
  Tensor centre_;       // of dino
  Tensors prototypes_;  // none or one
};

// The training step of a batch, to describe its costs: `x` is the first view, the others are empty like it. Options, network and
// the other arguments must outlive it.
class DryStep {
 public:
  DryStep(const TrainOptions& options, const NetworkConfig& config, Network& net, const nn::BatchNormAttributes& norm)
      : o_(options), config_(config), net_(net), norm_(norm) {}
  Tensor operator()(const Tensor& x);

 private:
  const TrainOptions& o_;
  const NetworkConfig& config_;
  Network& net_;
  const nn::BatchNormAttributes& norm_;
  std::unique_ptr<Objective> objective_;
};

// Prefix of the names of the buffers that publish() makes.
inline constexpr const char* state_prefix = "state/";

// x, [N, ...], on the device and in the type of the network.
Tensor input_of(const Tensor& x, const nn::Module& net);

}  // namespace mpigrad::contrast
