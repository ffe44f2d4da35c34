#ifndef MPIGRAD_FRAMEWORK_OPTIM_OPTIMIZER_H
#define MPIGRAD_FRAMEWORK_OPTIM_OPTIMIZER_H
// Optimizers: one fused pass per step over the arenas of parameters and state, parallel across the borders of parameters.
// Update formulas follow PyTorch's conventions. A step changes the parameters in place, so it comes after the tape is done.
//
//   Adam adam(parameters, {.learning_rate = 1e-3});
//   const auto gradients = tape.gradient(loss);
//   adam.step(gradients, {.max_norm = 1.0});

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/engine/parameter.h"
#include "framework/engine/step_scalars.h"
#include "framework/optim/update.h"

namespace mpigrad {

// Parameters that are treated differently. The first group that contains a parameter counts; without one, the factor is 1 and
// weight decay applies to parameters whose `decay` is true.
struct ParameterGroup {
  std::function<bool(const Parameter&)> contains{};
  double learning_rate_factor = 1;
  std::optional<double> weight_decay{};  // for all of the group, whatever their `decay` says
};

struct StepOptions {
  double scale = 1;  // of the gradients: clipping, loss scaling
  // Scaled gradients whose global norm is larger are scaled down to it, as clip_global_norm() says; 0: no limit. On a GPU the
  // host does not wait for the norm.
  double max_norm = 0;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // One gradient for each parameter, of its type.
  void step(const Gradients& gradients, const StepOptions& options = {});

  double learning_rate() const { return learning_rate_; }
  void set_learning_rate(double rate);
  std::int64_t steps() const { return steps_; }

  // For steps that a GPU repeats without this object (framework/cuda/graph.h): counts one, or sets the count back; the numbers of
  // the step that was counted last, and none of the module's.
  void count_steps(std::int64_t steps) {
    parameters_.set_step(parameters_.step() + steps - steps_);
    steps_ = steps;
  }
  StepScalars scalars() const;

  // For checkpoints: "momentum/PARAMETER" and so on. The tensors share the optimizer's memory and change with the next step.
  std::vector<NamedTensor> state() const;
  // Copies what state() of an equal optimizer returned, in any order.
  void load_state(const std::vector<NamedTensor>& state, std::int64_t steps);

 protected:
  static constexpr std::size_t max_slots = 2;
  // Consecutive elements of one parameter, its gradient and its state.
  struct Piece {
    DType dtype = DType::float32;
    std::byte* value = nullptr;
    const std::byte* gradient = nullptr;
    std::array<std::byte*, max_slots> state{};
    std::int64_t count = 0;
    double learning_rate = 0, weight_decay = 0, scale = 1;
    double trust = 1;  // of the whole parameter; what prepare() makes it
  };

  // Some consecutive elements of a piece.
  static Piece part_of(Piece piece, std::int64_t begin, std::int64_t count);

  // `slots` names the state arrays; each has one element for each of the parameters'.
  Optimizer(Parameters& parameters, double learning_rate, double weight_decay, const std::vector<ParameterGroup>& groups,
            std::vector<std::string> slots);
  // Before the updates of a step, with each parameter as one piece: for numbers that need all of its elements.
  virtual void prepare(std::span<Piece>) {}
  const Parameters& parameters() const { return parameters_; }
  // steps() already counts the step that runs. Called by several threads at once.
  virtual void update(const Piece& piece) const = 0;
  // Whole parameters of one element type on a GPU, and their places in the list.
  struct GpuGroup {
    DType dtype = DType::float32;
    std::vector<UpdateSegment> segments{};
    std::vector<std::size_t> places{};
  };
  // 1 - beta^t of both moments, t = steps(); 1 without.
  virtual std::array<double, 2> corrections() const { return {1, 1}; }
  // update() on a GPU, of all parameters. Refused unless overridden.
  virtual void update_on_gpu(std::span<const GpuGroup> groups, const GradientScale& scale) const;

 private:
  void step_on_gpu(const Gradients& gradients, const StepOptions& options);
  // The factor that clips scaled gradients.
  double clip_of(const Gradients& gradients, double scale, double max_norm) const;
  struct Segment {
    double learning_rate_factor = 1, weight_decay = 0;
    std::array<Tensor, max_slots> state{};
    std::int64_t first = 0;  // place of its first element among those of all parameters
  };

  Parameters& parameters_;
  double learning_rate_;
  std::int64_t steps_ = 0, elements_ = 0;
  std::vector<std::string> slots_;
  std::vector<Segment> segments_;
};

struct SGDAttributes {
  double learning_rate = 1e-2, momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;
  std::vector<ParameterGroup> groups{};
};

// g <- g + weight_decay p;  v <- momentum v + g;  p <- p - rate v, with Nesterov's rule p - rate (g + momentum v)
class SGD : public Optimizer {
 public:
  explicit SGD(Parameters& parameters, const SGDAttributes& attributes = {});

 private:
  void update(const Piece& piece) const override;
  void update_on_gpu(std::span<const GpuGroup> groups, const GradientScale& scale) const override;
  SGDRule rule(const GradientScale& scale) const;
  SGDAttributes attributes_;
};

struct AdamAttributes {
  double learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  std::vector<ParameterGroup> groups{};
};

// g <- g + weight_decay p;  m <- beta1 m + (1 - beta1) g;  v <- beta2 v + (1 - beta2) g^2;
// p <- p - rate (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon),  t = 1, 2, ...
class Adam : public Optimizer {
 public:
  explicit Adam(Parameters& parameters, const AdamAttributes& attributes = {}) : Adam(parameters, attributes, false) {}

 protected:
  Adam(Parameters& parameters, const AdamAttributes& attributes, bool decoupled);

 private:
  std::array<double, 2> corrections() const override;
  void update(const Piece& piece) const override;
  void update_on_gpu(std::span<const GpuGroup> groups, const GradientScale& scale) const override;
  AdamRule rule(const GradientScale& scale) const;
  AdamAttributes attributes_;
  bool decoupled_;
};

struct AdamWAttributes {
  double learning_rate = 1e-3, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 1e-2;
  std::vector<ParameterGroup> groups{};
};

// Adam whose decay is decoupled: p <- (1 - rate weight_decay) p, and g stays as it is.
class AdamW : public Adam {
 public:
  explicit AdamW(Parameters& parameters, const AdamWAttributes& a = {})
      : Adam(parameters, {a.learning_rate, a.beta1, a.beta2, a.epsilon, a.weight_decay, a.groups}, true) {}
};

// Sum of squares of all elements, in double; the same for any number of threads. Of gradients in blocks, by their layouts, the
// blocks of all ranks count, and each once: collective where there are any. What ranks cut among them without a layout the caller
// adds up.
double squared_norm(const Gradients& gradients);

struct Clipping {
  double norm = 0, scale = 1;
};
// min(1, max_norm / (norm + 1e-6))
double clip_scale(double norm, double max_norm);
// The norm and its clip_scale, to be given to step(); for the norm of a GPU's gradients the host waits, unlike for max_norm
// there.
Clipping clip_global_norm(const Gradients& gradients, double max_norm);

struct AveragedWeightsAttributes {
  double decay = 0.999;
};

// Exponential moving average of the parameters, a <- decay a + (1 - decay) p; the first update copies.
class AveragedWeights {
 public:
  explicit AveragedWeights(Parameters& parameters, const AveragedWeightsAttributes& attributes = {});
  void update();
  // Exchanges the averages and the parameters' values; a second call undoes the first. No update in between.
  void swap();
  bool swapped() const { return swapped_; }
  std::int64_t updates() const { return updates_; }

  // For checkpoints: "average/PARAMETER", in the memory of the averages.
  std::vector<NamedTensor> state() const;
  void load_state(const std::vector<NamedTensor>& state, std::int64_t updates);

 private:
  Parameters& parameters_;
  AveragedWeightsAttributes attributes_;
  std::vector<Tensor> averages_;
  std::int64_t updates_ = 0;
  bool swapped_ = false;
};

}  // namespace mpigrad

#endif
