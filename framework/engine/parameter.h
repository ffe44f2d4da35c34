#ifndef MPIGRAD_FRAMEWORK_ENGINE_PARAMETER_H
#define MPIGRAD_FRAMEWORK_ENGINE_PARAMETER_H
// Trainable tensors, named by path, in one contiguous arena per element type, and their gradients. Each has its own part of the
// arena as its storage, whose access waits for elements that other ranks update (framework/optim/division.h).

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "framework/engine/tape.h"

namespace mpigrad {

class Division;

struct Parameter {
  std::string name;
  Tensor value;
  bool decay = true;  // false for biases and norms: weight decay and trust ratios do not apply to them
  // Not trained: no gradient is computed for it (zeros stand in its place) and optimizers skip it. The same on all ranks.
  bool frozen = false;
};

// One gradient for each parameter, in the same order, with the layout of its parameter; for a parameter in blocks (a split
// layout) the gradient of the block. A handle: copies share the tensors.
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

  // Adds a parameter. pack() copies its value into the arena: read `.value` of the result only after pack().
  Parameter& add(std::string name, const Tensor& value, bool decay);
  // Lays all values out contiguously, one arena per element type, keeping order and identities.
  void pack();
  bool packed() const { return packed_; }

  std::size_t size() const { return list_.size(); }
  Parameter& operator[](std::size_t i) { return *list_[i]; }
  const Parameter& operator[](std::size_t i) const { return *list_[i]; }
  const Parameter& find(const std::string& name) const;
  std::vector<Tensor> tensors() const;
  std::int64_t elements() const;  // of the global tensors, including blocks of other ranks
  // Freezes the parameters whose names match a pattern of fnmatch(3) ("encoder.*"), or unfreezes them; call it before a graph of
  // a step is captured. Returns how many match; Error: none. Running statistics of norms are not parameters and are still
  // updated.
  std::size_t freeze(const std::string& pattern, bool frozen = true);

  // Number of steps that optimizers have made with these parameters; random layers draw their numbers for this step. An optimizer
  // counts its steps here; a loop with several batches per step sets it for each batch, so that their random numbers differ.
  std::int64_t step() const { return step_; }
  void set_step(std::int64_t step) { step_ = step; }

  // Whether gradients of earlier micro-batches are kept (GradientOptions::accumulate). drop_accumulated() discards them.
  bool accumulating() const;
  void drop_accumulated();
  // Error of `who`: gradients of micro-batches are kept, which would enter its result.
  void require_nothing_accumulated(std::string_view who) const;

  // The division of the work of optimizers of these parameters, while one of them divides it; else null.
  std::shared_ptr<const Division> division() const { return division_.lock(); }
  void set_division(const std::shared_ptr<const Division>& division) { division_ = division; }

  // Used by Tape::gradient: zeros as the gradient of a frozen parameter.
  const Tensor& zeros_for(std::size_t i);
  // Adds the cotangent of a micro-batch that has not yet been reduced over ranks.
  void defer(std::uint64_t id, const Tensor& cotangent, const StartReduction& reduce);
  // Removes and returns what was deferred for this parameter, or no tensor; the caller reduces it.
  Tensor take_deferred(std::uint64_t id, const StartReduction& reduce);
  // Keeps the gradients for a later call, or adds what earlier calls kept, after reducing what they deferred. With `accumulate` a
  // gradient may be no tensor: zeros, or deferred.
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
  std::weak_ptr<const Division> division_;
  bool packed_ = false, accumulating_ = false;
  std::int64_t step_ = 0;
};

namespace detail {
// Errors of this thread show this tensor by its full name in the layers; only the last few names are remembered.
void name_parameter(const Tensor& parameter, const std::string& name);
// "operand 1 is conv1.weight", for each operand that is such a tensor; empty if none is.
std::string names_of(std::span<const Tensor> operands);
// For an error about distributed and local operands: the advice for a parameter of a user's own layer if an operand is one, else
// `otherwise`.
std::string parameter_hint(std::span<const Tensor> operands, std::string_view otherwise);
}  // namespace detail

struct NamedTensor {
  std::string name;
  Tensor value;
};

}  // namespace mpigrad

#endif
