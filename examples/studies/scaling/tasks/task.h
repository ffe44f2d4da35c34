#pragma once
// A task in a study of learning speed-up: data, a small network, a loss, and the error that must fall.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/data/source.h"
#include "models/nn/module.h"
#include "models/train/training.h"

namespace mpigrad::scaling {

struct TaskOptions {
  std::uint64_t seed = 1;     // of the data; weights and orders have other seeds
  std::int64_t training = 0;  // samples; 0: the task's default
  std::int64_t test = 0;
  std::string folder{};  // of images
};

struct Task {
  std::string name{};
  std::string error_name{};  // name of what `error` sums, such as "misclassified"
  data::SourcePtr training{}, test{};
  // A new network, not built. Norms are over a worker's own samples, even if steps are simulated on a grid of ranks.
  std::function<std::unique_ptr<nn::Module>()> make{};
  LossFunction loss{};  // mean over the samples of a batch, of one worker
  // The sum over the samples of a batch; ranks share the test set. The mean over the samples is reported; it must fall.
  std::function<double(const Tensor& prediction, const Tensor& target)> error{};
  // True if the loss of a batch is the mean of losses of its samples. Otherwise a gradient noise scale is not defined.
  bool separable = true;
  // Defaults of a study.
  double goal = 0;                       // the error to reach
  std::vector<double> learning_rates{};  // to choose from, ascending
  double momentum = 0;
  std::int64_t batch = 4;   // samples of one worker in a step
  std::int64_t budget = 0;  // samples after which a run has not reached the goal, for up to 64 workers
  std::int64_t every = 0;   // samples between two evaluations
  // The rate for W workers if it is a law of the task instead of tuned: (workers, batch of one worker) -> rate.
  std::function<double(int workers, std::int64_t batch)> rate_law{};
};

// All tasks, by name, with a sentence for help.
const std::map<std::string, std::string>& task_names();
// Errors: an unknown name, options that the task does not have, a folder without images.
Task make_task(const std::string& name, const TaskOptions& options);

// Each is in a file of its own.
Task quadratic(const TaskOptions& options);
Task lattice(const TaskOptions& options);
Task lattice_norm(const TaskOptions& options);  // the same with batch norm
Task folding(const TaskOptions& options);
Task contact_maps(const TaskOptions& options);
Task lattice_27(const TaskOptions& options);
Task images(const TaskOptions& options);
Task contrastive(const TaskOptions& options);

}  // namespace mpigrad::scaling
