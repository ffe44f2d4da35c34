#ifndef MPIGRAD_FRAMEWORK_ENGINE_TAPE_H
#define MPIGRAD_FRAMEWORK_ENGINE_TAPE_H
// The tape: a flat list of the ops that ran, in program order, replayed backwards.
//
// Communication entries are never pruned: a rank that skipped its part of an adjoint collective would leave the others hanging
// or, worse, matched with the wrong message. Missing cotangents are zeros there. All other entries take part only if they lie
// between a requested tensor and the objective.

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
  // For micro-batches, `.accumulate = micro < last`. true: keep the gradients in the parameters, without reducing over ranks.
  // false, for the last micro-batch: reduce and return the sum of all. While gradients are kept, a call must set
  // `accumulate` to true or false; otherwise it is an Error. To get unrelated gradients meanwhile, list the tensors:
  // gradient(objective, parameters.tensors()) ignores the kept gradients and leaves them in place.
  // Parameters::drop_accumulated() discards kept gradients.
  std::optional<bool> accumulate{};
};

// The view that a vjp has of its entry.
class Replay {
 public:
  const Tensor& input(std::size_t i) const { return inputs_[i]; }
  const Tensor& output(std::size_t i) const { return outputs_[i]; }
  // Whether the cotangent of input i is needed.
  bool wants(std::size_t i) const { return wants_[i]; }
  std::size_t inputs() const { return inputs_.size(); }
  // The vjp no longer reads the elements of input i. If nothing else refers to them, the vjp can reuse their memory for the
  // cotangents that it computes next.
  void give_up(std::size_t i) const { inputs_[i] = inputs_[i].without_storage(); }

  Replay(std::span<Tensor> inputs, std::span<const Tensor> outputs, const std::vector<bool>& wants)
      : inputs_(inputs), outputs_(outputs), wants_(wants) {}

 private:
  std::span<Tensor> inputs_;
  std::span<const Tensor> outputs_;
  const std::vector<bool>& wants_;
};

using Vjp = std::function<std::vector<Tensor>(const Replay&, std::span<const Tensor> cotangents)>;

// A running reduction of a parameter's cotangent over ranks.
class PendingCotangent {
 public:
  virtual ~PendingCotangent() = default;
  virtual Tensor wait() = 0;
};
struct StartReduction {
  std::function<std::unique_ptr<PendingCotangent>(const Tensor& cotangent)> start;
  // Identifies the group of ranks (Communicator::number()): cotangents with the same `over` may be added before they are reduced.
  std::uint64_t over = 0;
  // Not null: the parameter is stored in these rows, and the reduction of a cotangent of all rows gives this rank's.
  LayoutPtr rows{};
  explicit operator bool() const { return start != nullptr; }
};

// Tensors as an argument, {x, y} or a vector. A plain vector does not work: GCC 12 would convert {.accumulate = true} to it.
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
    // Only for `replicate` of a parameter: starts its vjp without waiting.
    StartReduction start_reduction{};
    // A description of the request; set in its two entries, the start and the wait. A start without its wait is an Error before a
    // replay begins.
    std::shared_ptr<const std::string> request{};
    // To warn of an objective that would be counted once per rank: for a plain allreduce, the size of its communicator, on whose
    // ranks the output is equal. Only rank 1 sets it; on all other ranks, and for other ops, it is 0. Rank 0 does not, because in
    // a correct program rank 0 may be the only one that passes the objective.
    int equal_on = 0;
    double divisor = 0;  // detail::EqualValues::note
    // Write counts and hash of the kept elements, to detect overwriting: framework/engine/kept_memory.h.
    std::uint64_t writes = 0, contents = 0;
  };

  // Starts recording on this thread. Tapes nest: each records the ops that run while it is in scope, including the replay of an
  // inner tape.
  Tape();
  explicit Tape(Parameters& parameters);
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // Gradients of the sum over ranks of the objectives, with respect to the parameters of the constructor. Collective over all
  // ranks that communicated under the tape; a rank without an objective passes none. The objective has one element. Ends
  // recording; without Record::yes the entries are freed during the replay and the tape is spent. Errors: a second call; an
  // objective that the tape did not record. Warning, once per program: an objective computed only from plain allreduce
  // results. It is probably the same loss on every rank, and would then be counted once per rank.
  // Nothing flows back past tensors computed before the tape began, or under Untaped.
  Gradients gradient(const Tensor& objective = {}, const GradientOptions& options = {});
  // The same with respect to any tensors; zeros for a tensor that the objective does not depend on. That is legal, for example on
  // a rank that does not use the tensor. If ops of this thread read the tensor before there was a tape, and no op read it under
  // this tape, the tape most likely began too late. The first such case in a program prints a warning.
  std::vector<Tensor> gradient(const Tensor& objective, const TensorList& with_respect_to, Record record = Record::no);
  // J^T cotangents, for outputs of any shape. The memory of cotangents that are moved in and have no other reference may be
  // reused.
  std::vector<Tensor> vjp(const std::vector<Tensor>& outputs, std::vector<Tensor> cotangents,
                          const std::vector<Tensor>& with_respect_to, Record record = Record::no);

  const std::vector<Entry>& entries() const { return entries_; }
  // Ends recording now. gradient() can be called later, while other tapes record, as schedules of micro-batches do.
  void stop();

  // Used by apply() and by composite ops.
  static bool recording();
  // Whether a replay runs on this thread: side effects of the forward pass (running statistics) have then already happened.
  static bool replaying();
  static void record(Entry entry);
  // Remembers tensors read outside any tape, to warn about tapes that start too late. Reads in replays and under Untaped are
  // intended and not remembered.
  static void read_unrecorded(std::span<const Tensor> inputs);
  // The numbers of the tapes that record on this thread.
  static std::vector<std::uint64_t> recorders();
  // The innermost tape that records on this thread, or null.
  static Tape* innermost();
  // The number of the outermost tape on this thread, suspended or not, or 0: it identifies a whole training step.
  static std::uint64_t outermost_number();
  // Calls `make()` once per tape and key, so that two uses of a replicated parameter cost one reduction.
  Tensor memoised(std::uint64_t tensor, const void* key, const std::function<Tensor()>& make);
  // Keeps identities only, no elements: used to find the tensors that a function reads (recompute).
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
  bool recording_ = true, suspended_ = false, keeps_elements_ = true, spent_ = false, stopped_ = false;
};

// Suspends recording by the current tapes of this thread while in scope: for momentum encoders, metrics, running statistics.
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
// Returns x, which is replicated along these grid axes, as a local tensor that varies along them: its cotangent is summed over
// the ranks of these axes. If `dtype` has 16 bits, a float32 x is rounded to `dtype` only after x is replicated. The
// backward pass therefore converts the cotangent to float32 first, and sums over ranks in float32.
Tensor replicated(const Tensor& x, const std::vector<int>& axes, DType dtype);
// If x is a partial sum, returns the sum over its ranks, replicated. Other tensors are returned unchanged.
Tensor whole(const Tensor& x);
}  // namespace detail

}  // namespace mpigrad

#endif
