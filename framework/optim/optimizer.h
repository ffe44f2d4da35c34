#ifndef MPIGRAD_FRAMEWORK_OPTIM_OPTIMIZER_H
#define MPIGRAD_FRAMEWORK_OPTIM_OPTIMIZER_H
// Optimizers: one fused pass per step over the arenas of parameters and state, parallel across parameter boundaries. Update
// formulas (rules/) follow PyTorch's conventions. A step changes the parameters in place, so it comes after the tape is done.
//
//   Adam adam(parameters, {.learning_rate = 1e-3});
//   const auto gradients = tape.gradient(loss);
//   adam.step(gradients, {.max_norm = 1.0});

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "framework/engine/parameter.h"
#include "framework/engine/step_scalars.h"
#include "framework/optim/rules/rules.h"

namespace mpigrad {

struct StepOptions {
  double scale = 1;  // factor of the gradients: clipping, loss scaling
  // Gradients whose global norm (after `scale`) is larger are scaled down to it, like clip_global_norm(); 0: no limit. On a GPU
  // the host does not wait for the norm.
  double max_norm = 0;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Makes a step. `gradients`: one for each parameter, of its type.
  void step(const Gradients& gradients, const StepOptions& options = {});

  // How the work is divided, in a few words: "each of 4 ranks updates a part of the weights and has the state of that part".
  const std::string& work() const { return work_; }
  std::int64_t own_elements() const;  // elements of parameters that this rank updates

  double learning_rate() const { return learning_rate_; }
  void set_learning_rate(double rate);
  std::int64_t steps() const { return steps_; }

  // For steps that a GPU repeats without this object (framework/cuda/graph.h): count_steps() sets the number of steps, scalars()
  // returns the numbers of the step counted last, without those of the module.
  void count_steps(std::int64_t steps) {
    parameters_.set_step(parameters_.step() + steps - steps_);
    steps_ = steps;
  }
  StepScalars scalars() const;

  // For checkpoints: "momentum/PARAMETER" and so on. The tensors share the optimizer's memory and change with the next step. Of a
  // divided parameter it is this rank's rows, with their layout.
  std::vector<NamedTensor> state() const;
  // Copies the result of state() of an equal optimizer, in any order; whole tensors, too, where this one has rows.
  void load_state(const std::vector<NamedTensor>& state, std::int64_t steps);

 protected:
  static constexpr std::size_t max_slots = 2;
  // `slots` names the state arrays; each has one element for each element of the parameters. `replicated`: see OptimizerOptions.
  Optimizer(Parameters& parameters, double learning_rate, double weight_decay, const std::vector<ParameterGroup>& groups,
            std::vector<std::string> slots, bool replicated);
  // Called before the updates of a step on the CPU, with the elements of each parameter that this rank updates as one segment:
  // for numbers that need all elements of a parameter. Not called if needs_norms() is false.
  virtual void prepare(std::span<UpdateSegment>, const GradientScale&) {}
  virtual bool needs_norms() const { return false; }
  const Parameters& parameters() const { return parameters_; }
  // steps() already includes the current step. Called by several threads at once.
  virtual void update(DType dtype, const UpdateSegment& part, const GradientScale& scale) const = 0;
  // Whole parameters of one element type on a GPU, and their places in the list.
  struct GpuGroup {
    DType dtype = DType::float32;
    std::vector<UpdateSegment> segments{};
    std::vector<std::size_t> places{};
  };
  // 1 - beta^t of both moments, t = steps(); 1 without moments.
  virtual std::array<double, 2> corrections() const { return {1, 1}; }
  // update() on a GPU, for all parameters.
  virtual void update_on_gpu(std::span<const GpuGroup> groups, const GradientScale& scale) const = 0;

  // For trust ratios: the squares of whole parameters, two numbers for each. `measure` is called by several threads at once.
  using Measure = std::function<SquaredNorms(DType dtype, const UpdateSegment& part)>;
  std::vector<double> sum_squares(std::span<const UpdateSegment> segments, const Measure& measure,
                                  const NormReduction& reduce) const;
  // Reduces the squares on the GPU, a tensor for each group. The host waits only if norms are reduced over ranks.
  void reduce_squares(std::span<const GpuGroup> groups, std::span<const Tensor> squares, const NormReduction& reduce) const;

 private:
  // The elements of parameter `i` that this rank updates, and of its gradient, for whose sum it waits.
  Tensor own(std::size_t i) const;
  Tensor own(std::size_t i, const Tensor& gradient) const;
  std::vector<Tensor> own_values() const;
  // The segment of parameter `i`, with `rate` times the factor of its group.
  UpdateSegment segment_of(std::size_t i, const Gradients& gradients, double rate) const;
  // Updates these parameters, whose segments are at their places in `segments`.
  void update(std::span<const std::size_t> members, std::span<const UpdateSegment> segments, const GradientScale& scale) const;
  void divide(bool replicated);
  void step_without_elements(const Gradients& gradients) const;
  void step_on_gpu(const Gradients& gradients, const StepOptions& options);
  // The factor that clips scaled gradients.
  double clip_of(const Gradients& gradients, double scale, double max_norm) const;
  struct Segment {
    double learning_rate_factor = 1, weight_decay = 0;
    std::array<Tensor, max_slots> state{};
  };

  Parameters& parameters_;
  double learning_rate_;
  std::int64_t steps_ = 0;
  std::vector<std::string> slots_;
  std::vector<Segment> segments_;
  std::shared_ptr<const Division> division_;  // null: every rank makes all updates
  std::string work_;
  std::vector<std::size_t> whole_;  // the parameters that are not divided
};

// The optimizer of a rule. SGD, Adam and the others are such classes (in the folder rules, with their attributes).
template <class Rule>
class RuleOptimizer : public Optimizer {
 public:
  // Errors: attributes that the rule refuses.
  explicit RuleOptimizer(Parameters& parameters, const typename Rule::Attributes& attributes = {});

 private:
  std::array<double, 2> corrections() const override;
  void prepare(std::span<UpdateSegment> segments, const GradientScale& scale) override;
  bool needs_norms() const override { return HasTrustRatio<Rule>; }
  void update(DType dtype, const UpdateSegment& part, const GradientScale& scale) const override;
  void update_on_gpu(std::span<const GpuGroup> groups, const GradientScale& scale) const override;
  RuleOfStep<Rule> of_step(const GradientScale& scale) const;
  Rule rule_;
  NormReduction reduce_norms_{};
};
#define MPIGRAD_DECLARE_OPTIMIZER(Rule) extern template class RuleOptimizer<Rule>;
MPIGRAD_OPTIMIZER_RULES(MPIGRAD_DECLARE_OPTIMIZER)
#undef MPIGRAD_DECLARE_OPTIMIZER

// Options of command lines.
struct OptimizerOptions {
  double learning_rate = 1e-3, momentum = 0, weight_decay = 0;  // momentum: only for optimizers_with_momentum()
  // Several ranks that hold the same parameters divide the updates and the state among them, from 1 MiB of state on
  // (framework/optim/division.h). The first read of a gradient then gathers all of them, so either all ranks read gradients or
  // none. With `replicated` every rank makes all updates and has all state, and whole gradients.
  bool replicated = false;
};
std::vector<std::string> optimizer_names();
std::vector<std::string> optimizers_with_momentum();
// The optimizer of that name, with defaults for all other attributes. Error: unknown name.
std::unique_ptr<Optimizer> make_optimizer(const std::string& name, Parameters& parameters, const OptimizerOptions& options);

// Sum of squares of all elements, in double; the same for any number of threads. For gradients in blocks (by their layouts), and
// for those of which each rank has summed its rows, it includes the blocks of all ranks, each once, and is collective if there
// are any. For tensors cut over ranks without a layout the caller sums over the ranks.
double squared_norm(const Gradients& gradients);

struct Clipping {
  double norm = 0, scale = 1;
};
// min(1, max_norm / (norm + 1e-6))
double clip_scale(double norm, double max_norm);
// The norm and its clip_scale, to be passed to step(). On a GPU the host waits for the norm, which it does not with
// StepOptions::max_norm.
Clipping clip_global_norm(const Gradients& gradients, double max_norm);

struct AveragedWeightsAttributes {
  double decay = 0.999;
};

// Exponential moving average of the parameters, a <- decay a + (1 - decay) p; the first update copies.
class AveragedWeights {
 public:
  explicit AveragedWeights(Parameters& parameters, const AveragedWeightsAttributes& attributes = {});
  void update();
  // Exchanges the averages and the values of the parameters; a second call undoes the first. update() must not be called in
  // between.
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
