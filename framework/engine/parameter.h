#ifndef MPIGRAD_FRAMEWORK_ENGINE_PARAMETER_H
#define MPIGRAD_FRAMEWORK_ENGINE_PARAMETER_H
// Trainable tensors, named by path, in one contiguous arena per element type, and their gradients.

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "framework/engine/tape.h"

namespace mpigrad {

struct Parameter {
  std::string name;
  Tensor value;
  bool decay = true;  // false for biases and norms: weight decay and trust ratios leave them alone
  // Stays as it is: no gradient is computed for it (zeros stand in its place) and optimizers pass it over. The same on all ranks.
  bool frozen = false;
};

// One gradient for each parameter, in the same order, with the layout of its parameter; of a parameter in blocks (a split layout)
// that of the block. A handle: copies share the tensors.
class Gradients {
 public:
  Gradients() = default;
  explicit Gradients(std::vector<Tensor> values) : values_(std::move(values)) {}
  std::size_t size() const { return values_.size(); }
  const Tensor& operator[](std::size_t i) const { return values_[i]; }
  const std::vector<Tensor>& tensors() const { return values_; }

 private:
  std::vector<Tensor> values_;
};

class Parameters {
 public:
  Parameters() = default;
  Parameters(const Parameters&) = delete;
  Parameters& operator=(const Parameters&) = delete;

  // Adds a parameter. pack() copies its value into the arena: read `.value` of the result after that, not before.
  Parameter& add(std::string name, const Tensor& value, bool decay);
  // Lays all values out contiguously, one arena per element type, keeping order and identities.
  void pack();
  bool packed() const { return packed_; }

  std::size_t size() const { return list_.size(); }
  Parameter& operator[](std::size_t i) { return *list_[i]; }
  const Parameter& operator[](std::size_t i) const { return *list_[i]; }
  const Parameter& find(const std::string& name) const;
  std::vector<Tensor> tensors() const;
  std::int64_t elements() const;  // those of other ranks' blocks included
  // Freezes those whose names match a pattern ("encoder.*", as fnmatch(3) has them), or gives them free again; before a graph of
  // a step is captured. How many there are; an Error if there are none. Running statistics of norms are no parameters and go on.
  std::size_t freeze(const std::string& pattern, bool frozen = true);

  // How many steps optimizers have made of them: what random layers of a network draw their numbers for. An optimizer counts its
  // steps here; loops in which a step has several batches, which are to differ, set it for each of them.
  std::int64_t step() const { return step_; }
  void set_step(std::int64_t step) { step_ = step; }

  // Whether micro-batches wait for the last one (GradientOptions::accumulate), and forgetting them.
  bool accumulating() const;
  void drop_accumulated();
  // An Error of `who`, whose sum they would enter.
  void require_nothing_accumulated(std::string_view who) const;

  // Used by Tape::gradient: zeros in the place of a frozen parameter's gradient.
  const Tensor& zeros_for(std::size_t i);
  // Adds a micro-batch's cotangent that is still to be reduced over ranks.
  void defer(std::uint64_t id, const Tensor& cotangent, const StartReduction& reduce);
  // What was deferred for this parameter, or none; it is the caller's to reduce.
  Tensor take_deferred(std::uint64_t id, const StartReduction& reduce);
  // Keeps the gradients for a later call, or adds what earlier calls kept, after reducing what they deferred.
  Gradients collect(std::vector<Tensor> gradients, bool accumulate);

 private:
  struct Deferred {
    Tensor cotangent;
    StartReduction reduce;
  };
  std::vector<std::unique_ptr<Parameter>> list_;
  std::unordered_map<std::uint64_t, Tensor> accumulated_;
  std::unordered_map<std::size_t, Tensor> zeros_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, Deferred> deferred_;  // by tensor and group of ranks
  bool packed_ = false;
  std::int64_t step_ = 0;
};

namespace detail {
// Errors of this thread call this tensor by the full name that a layer knows it by; the last few are remembered.
void name_parameter(const Tensor& parameter, const std::string& name);
// "operand 1 is conv1.weight", for each of the operands that is such a tensor; empty if none is.
std::string names_of(std::span<const Tensor> operands);
// For an error about operands of which some are distributed: what to do if one of them is a parameter of a layer of one's own,
// else `otherwise`.
std::string parameter_hint(std::span<const Tensor> operands, std::string_view otherwise);
}  // namespace detail

struct NamedTensor {
  std::string name;
  Tensor value;
};

}  // namespace mpigrad

#endif
