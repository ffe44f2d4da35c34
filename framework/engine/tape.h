#ifndef MPIGRAD_FRAMEWORK_ENGINE_TAPE_H
#define MPIGRAD_FRAMEWORK_ENGINE_TAPE_H
// The tape: a flat list of what ran, in program order, replayed backwards.
//
// Communication entries are never pruned: a rank that skipped its part of an adjoint collective would leave the others hanging
// or, worse, matched with the wrong message. Missing cotangents are zeros there. All other entries take part only if they lie
// between something asked for and the objective.

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "framework/engine/equal_values.h"
#include "framework/tensor/tensor.h"

namespace mpigrad {

class Parameters;
class Gradients;

enum class Record : std::uint8_t { no, yes };

struct GradientOptions {
  Record record = Record::no;
  // Of micro-batches, `.accumulate = micro < last`. true: keep the gradients in the parameters, without reducing over ranks.
  // false, of the last one: reduce and return the sum of all. While earlier ones are kept, a call that says neither is refused,
  // because it may be one of these or have nothing to do with them. Gradients that have nothing to do with them name their
  // tensors, gradient(objective, parameters.tensors()): kept micro-batches neither enter them nor are used up by them.
  // Parameters::drop_accumulated() forgets what is kept.
  std::optional<bool> accumulate{};
};

// What a vjp sees of its entry.
class Replay {
 public:
  const Tensor& input(std::size_t i) const { return inputs_[i]; }
  const Tensor& output(std::size_t i) const { return outputs_[i]; }
  // Whether anybody asked for the cotangent of input i.
  bool wants(std::size_t i) const { return wants_[i]; }
  std::size_t inputs() const { return inputs_.size(); }
  // The vjp reads the elements of input i no more. If nobody else holds them, their memory is free for the cotangents it makes
  // next.
  void give_up(std::size_t i) const { inputs_[i] = inputs_[i].without_storage(); }

  Replay(std::span<Tensor> inputs, std::span<const Tensor> outputs, const std::vector<bool>& wants)
      : inputs_(inputs), outputs_(outputs), wants_(wants) {}

 private:
  std::span<Tensor> inputs_;
  std::span<const Tensor> outputs_;
  const std::vector<bool>& wants_;
};

using Vjp = std::function<std::vector<Tensor>(const Replay&, std::span<const Tensor> cotangents)>;

// A reduction of a parameter's cotangent over ranks that is under way.
class PendingCotangent {
 public:
  virtual ~PendingCotangent() = default;
  virtual Tensor wait() = 0;
};
struct StartReduction {
  std::function<std::unique_ptr<PendingCotangent>(const Tensor& cotangent)> start;
  std::uint64_t over = 0;  // numbers groups of ranks: cotangents with the same `over` may be added before they are reduced
  explicit operator bool() const { return start != nullptr; }
};

// Tensors as an argument, {x, y} or a vector. To a vector itself GCC 12 would convert {.accumulate = true}, too.
class TensorList {
 public:
  TensorList(std::initializer_list<Tensor> tensors) : tensors_(tensors) {}
  TensorList(const std::vector<Tensor>& tensors) : tensors_(tensors) {}
  operator const std::vector<Tensor>&() const { return tensors_; }

 private:
  std::vector<Tensor> tensors_;
};

class Tape {
 public:
  struct Entry {
    std::string_view name;
    bool communicates = false;
    unsigned keeps_inputs = 0, keeps_outputs = 0;
    std::vector<Tensor> inputs, outputs;
    Vjp vjp;
    // Only of `replicate` of a parameter: its vjp started without waiting.
    StartReduction start_reduction{};
    // Of the two entries of a request, its start and its wait: what it is. A start alone is refused before a replay begins.
    std::shared_ptr<const std::string> request{};
    // Ranks on which the output is equal without a replicated layout: that of a plain allreduce, on rank 1.
    int equal_on = 0;
    double divisor = 0;  // detail::EqualValues::note
    // Of what is kept, to find out whether it was overwritten: framework/engine/kept_memory.h.
    std::uint64_t writes = 0, contents = 0;
  };

  // Starts recording on this thread. Tapes nest: each records what runs while it is alive, the replay of an inner one included.
  Tape();
  explicit Tape(Parameters& parameters);
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // Gradients of the sum over ranks of the objectives handed in, with respect to the parameters of the constructor. Collective
  // over all ranks that communicated under the tape; a rank without an objective hands in none. The objective has one element.
  // Recording has ended; without Record::yes the entries are freed as the replay goes and the tape is spent: a second call is an
  // error, as is an objective that the tape knows nothing of. An objective that is computed from results of plain allreduces only
  // is most likely one loss that every rank hands in; the first one of a program prints a warning.
  // What was computed before the tape began, or under Untaped, is a constant to it.
  Gradients gradient(const Tensor& objective = {}, const GradientOptions& options = {});
  // The same with respect to any tensors; zeros where nothing depends on one. That is legal, as on a rank that has no use for a
  // tensor; of one that ops of this thread have read while there was no tape, and none under this one, the first of a program
  // prints a warning: it was most likely used too early.
  std::vector<Tensor> gradient(const Tensor& objective, const TensorList& with_respect_to, Record record = Record::no);
  // J^T cotangents, for outputs of any shape. The memory of cotangents that are moved in, and that nobody else has, may be used.
  std::vector<Tensor> vjp(const std::vector<Tensor>& outputs, std::vector<Tensor> cotangents,
                          const std::vector<Tensor>& with_respect_to, Record record = Record::no);

  const std::vector<Entry>& entries() const { return entries_; }

  // Used by apply() and by composite ops.
  static bool recording();
  // Whether a replay runs on this thread: what a forward pass changes beside its results (running statistics) it has changed
  // already.
  static bool replaying();
  static void record(Entry entry);
  // Told of what an op reads while no tape records. Replays and what Untaped keeps from a tape are meant.
  static void read_unrecorded(std::span<const Tensor> inputs);
  // Numbers of the tapes that record on this thread.
  static std::vector<std::uint64_t> recorders();
  // The innermost tape that records on this thread, or null.
  static Tape* innermost();
  // The number of the outermost tape that lives on this thread, suspended or not, or 0: one training step's, all of it.
  static std::uint64_t outermost_number();
  // `make()` once per tape and key, so that two uses of a replicated parameter cost one reduction.
  Tensor memoised(std::uint64_t tensor, const void* key, const std::function<Tensor()>& make);
  // Keeps identities only, no elements: finds out what a function uses (recompute).
  void keep_nothing() { keeps_elements_ = false; }

 private:
  friend class Untaped;
  using Cotangents = std::unordered_map<std::uint64_t, Tensor>;

  void require_unspent() const;
  void require_waited() const;
  void require_known(const Tensor& objective, const std::vector<Tensor>& with_respect_to) const;
  void warn_of_unused(const std::vector<Tensor>& with_respect_to) const;
  std::vector<Tensor> replay(Cotangents cotangents, const std::vector<Tensor>& with_respect_to, const GradientOptions& options);
  const std::uint64_t number_;
  std::vector<Entry> entries_;
  detail::EqualValues equal_;
  std::map<std::pair<std::uint64_t, const void*>, Tensor> memo_;
  bool sees() const { return recording_ && !suspended_; }
  Parameters* parameters_ = nullptr;
  bool recording_ = true, suspended_ = false, keeps_elements_ = true, spent_ = false;
};

// Suspends recording by the tapes that this thread has now: momentum encoders, metrics, running statistics.
class Untaped {
 public:
  Untaped();
  ~Untaped();
  Untaped(const Untaped&) = delete;
  Untaped& operator=(const Untaped&) = delete;

 private:
  std::vector<Tape*> suspended_;
};

// The one operation the engine needs, to accumulate cotangents; ops/elementwise defines it.
Tensor add(const Tensor& a, const Tensor& b);

namespace detail {
// The two operations between ranks that ops need; comm/distributed/distributed.cpp defines them.
//
// x, which is replicated along these grid axes, as a local tensor that varies along them: its cotangent is added up over their
// ranks. float32 is rounded to `dtype` behind that if `dtype` has 16 bits.
Tensor replicated(const Tensor& x, const std::vector<int>& axes, DType dtype);
// x whose partial sums are made replicated, by a sum over their ranks. Other tensors are returned as they are.
Tensor whole(const Tensor& x);
}  // namespace detail

}  // namespace mpigrad

#endif
