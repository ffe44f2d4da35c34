#pragma once
// One step's loss of any kind, and the state that some losses carry from step to step: queues, a slow copy of the encoder.

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
  // Of a network that is built. `norm` is that of the network, for a second encoder.
  Objective(const TrainOptions& options, const NetworkConfig& config, Network& net, const nn::BatchNormAttributes& norm,
            const LayoutPtr& layout, std::size_t label);

  struct Step {
    Tensor share;   // of the loss, this rank's
    Tensors views;  // compared by the loss: [n, width] each
  };
  // Under a tape. x: the views of a batch, of the network's dtype and on its device.
  Step operator()(const Tensors& x, const data::ViewBatch& batch, std::int64_t step);
  // The loss of embeddings that are there already.
  Tensor loss(const Tensors& z, const data::ViewBatch& batch, const Communicator& comm);
  // After the optimizer's step, or in its place where it was left out.
  void finish(const Step& step);

  // The loss and its settings, for --explain: "moco: temperature 0.07, 4096 keys, ..."
  std::string text() const;

  // The slow copy of the encoder becomes the network, whose weights have been loaded.
  void begin();
  // publish(): the state becomes buffers of the network, in the same memory, for checkpoints; restore() reads numbers from them.
  void publish();
  void restore();
  // Takes them away again: weights alone.
  void withdraw();

 private:
  Tensor key_of(const Tensor& x, std::int64_t step);

  const TrainOptions& o_;
  Network& net_;
  std::size_t label_;
  std::unique_ptr<Network> key_net_;
  std::optional<contrastive::KeyQueue> queue_;
  std::optional<contrastive::SwavQueue> swav_queue_;
  Tensor key_;          // of this step
  Tensors prototypes_;  // none or one
  std::int64_t steps_ = 0;
};

// The step of a batch for what describes costs: `x` is its first view, the others are as empty as it is. Options, network and the
// rest must outlive it.
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

// The names of buffers that publish() makes begin so.
inline constexpr const char* state_prefix = "state/";

// [N, ...] on the device and in the type of the network.
Tensor input_of(const Tensor& x, const nn::Module& net);

}  // namespace mpigrad::contrast
