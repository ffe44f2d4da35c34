#include "framework/engine/tape.h"

#include <algorithm>
#include <atomic>
#include <unordered_set>
#include <utility>

#include "framework/base/warning.h"
#include "framework/engine/buckets.h"
#include "framework/engine/kept_memory.h"
#include "framework/engine/loops.h"
#include "framework/engine/op.h"
#include "framework/engine/parameter.h"

namespace mpigrad {
namespace {

thread_local std::vector<Tape*> active;

// Whether a replay runs on this thread, the entry whose vjp is running, and the cotangents so far.
struct Replaying {
  bool now = false;
  const Tape::Entry* entry = nullptr;
  std::unordered_map<std::uint64_t, Tensor>* cotangents = nullptr;
};
thread_local Replaying replay_here;
class ReplayScope {
 public:
  explicit ReplayScope(Replaying here = {.now = true}) : previous_(std::exchange(replay_here, here)) {}
  ~ReplayScope() { replay_here = previous_; }
  ReplayScope(const ReplayScope&) = delete;
  ReplayScope& operator=(const ReplayScope&) = delete;

 private:
  Replaying previous_;
};

// Tensors that ops have recently read while no tape recorded.
struct ReadUnrecorded {
  static constexpr std::size_t most = 4096;
  std::vector<std::uint64_t> ids;
  std::size_t next = 0;
  void add(std::uint64_t id) {
    if (ids.size() < most) return ids.push_back(id);
    ids[next] = id;
    next = (next + 1) % most;
  }
  bool contains(std::uint64_t id) const { return std::find(ids.begin(), ids.end(), id) != ids.end(); }
};
thread_local ReadUnrecorded read_lately;

std::vector<Tensor> seeds(const Tensor& objective) {
  require(objective.elements() == 1, "[gradient] the objective has one element per rank: {}", objective);
  require(!is_complex(objective.dtype()),
          "[gradient] the objective is real; take real(), imag() or abs() of this complex one: {}", objective);
  require(is_floating(objective.dtype()), "[gradient] the objective is floating-point: {}", objective);
  return {ones_like(objective.without_layout())};
}

}  // namespace

void detail::refuse_unkept(std::string_view reader, std::string_view what, const Tensor& x) {
  if (const auto* entry = replay_here.entry) {
    const auto refuse = [&](const char* member, const char* operand, std::size_t i, unsigned kept) {
      require(i < 32, "[{}] its vjp reads {} {}, but the elements of only 32 can be kept: {}", entry->name, operand, i, x);
      fail(
          "[{}] its vjp reads the elements of {} {}, which were not kept: the op's traits() need `.{} = {}`, "
          "where bit i is {} i: {}",
          entry->name, operand, i, member, kept | 1U << i, operand, x);
    };
    const auto is_x = [&](const Tensor& y) { return y && !y.storage() && y.id() == x.id(); };
    for (std::size_t i = 0; i < entry->inputs.size(); ++i)
      if (is_x(entry->inputs[i])) refuse("keeps_inputs", "input", i, entry->keeps_inputs);
    for (std::size_t i = 0; i < entry->outputs.size(); ++i)
      if (is_x(entry->outputs[i])) refuse("keeps_outputs", "output", i, entry->keeps_outputs);
    fail("[{}] {} were not kept, in the vjp of {}; its keeps_inputs and keeps_outputs select what is: {}", reader, what,
         entry->name, x);
  }
  fail("[{}] {} were not kept: {}", reader, what, x);
}

Tape::Tape()
    : number_([] {
        static std::atomic<std::uint64_t> made{0};
        return ++made;
      }()) {
  active.push_back(this);
}
Tape::Tape(Parameters& parameters) : Tape() { parameters_ = &parameters; }
Tape::~Tape() { std::erase(active, this); }

void Tape::stop() {
  recording_ = false, stopped_ = true;
  std::erase(active, this);
}

bool Tape::replaying() { return replay_here.now; }

bool Tape::recording() {
  return std::any_of(active.begin(), active.end(), [](const Tape* tape) { return tape->sees(); });
}

std::vector<std::uint64_t> Tape::recorders() {
  std::vector<std::uint64_t> numbers;
  for (const Tape* tape : active)
    if (tape->sees()) numbers.push_back(tape->number_);
  return numbers;
}

Tape* Tape::innermost() {
  for (auto tape = active.rbegin(); tape != active.rend(); ++tape)
    if ((*tape)->sees()) return *tape;
  return nullptr;
}

std::uint64_t Tape::outermost_number() { return active.empty() ? 0 : active.front()->number_; }

void Tape::read_unrecorded(std::span<const Tensor> inputs) {
  if (replay_here.now || std::any_of(active.begin(), active.end(), [](const Tape* tape) { return tape->suspended_; })) return;
  for (const auto& x : inputs)
    if (x && !x.is_constant()) read_lately.add(x.id());
}

namespace {

// True if the op ran on tensors of other ranks. Error: on some of other ranks and some of this one.
bool of_stand_ins(const Tape::Entry& entry) {
  bool stand_in = false, own = false;
  for (const auto* list : {&entry.outputs, &entry.inputs})
    for (const auto& x : *list)
      if (x && x.storage()) stand_in = stand_in || x.is_stand_in(), own = own || x.device() != DeviceKind::dry;
  require(!stand_in || !own,
          "[{}] its operands and results belong to different stages of a pipeline: move the operands first (nn::at_stage_of)",
          entry.name);
  return stand_in;
}

}  // namespace

void Tape::record(Entry entry) {
  if (of_stand_ins(entry)) return;
  for (Tape* tape : active)
    if (tape->sees()) tape->equal_.note(entry.name, entry.equal_on, entry.divisor, entry.inputs, entry.outputs);
  // Cotangents are plain local tensors, so tensors that a vjp reads lose their layouts. Operands beyond the 32nd are never kept.
  const auto kept = [](unsigned mask, std::size_t i) { return i < 32 && (mask >> i & 1) != 0; };
  for (std::size_t i = 0; i < entry.inputs.size(); ++i)
    if (auto& x = entry.inputs[i]) x = kept(entry.keeps_inputs, i) ? x.without_layout() : x.without_layout().without_storage();
  for (std::size_t i = 0; i < entry.outputs.size(); ++i)
    if (auto& y = entry.outputs[i]) y = kept(entry.keeps_outputs, i) ? y.without_layout() : y.without_layout().without_storage();
  detail::note_kept_memory(entry);
  for (Tape* tape : active) {
    if (!tape->sees()) continue;
    tape->entries_.push_back(entry);
    if (tape->keeps_elements_) continue;
    for (auto* list : {&tape->entries_.back().inputs, &tape->entries_.back().outputs})
      for (auto& x : *list)
        if (x) x = x.without_storage();
  }
}

Tensor detail::take_cotangent(const Tensor& x) {
  if (!replay_here.cotangents) return {};
  const auto taken = replay_here.cotangents->extract(x.id());
  return taken ? std::move(taken.mapped()) : Tensor();
}

void Tape::require_unspent() const {
  require(!spent_, "[gradient] this tape is spent: ask for everything in one call, or pass Record::yes to all but the last");
}

// A warning and not an error: a rank may have read a tensor before and not need it now.
void Tape::warn_of_unused(const std::vector<Tensor>& with_respect_to) const {
  if (replay_here.now) return;
  for (std::size_t i = 0; i < with_respect_to.size(); ++i) {
    const auto& x = with_respect_to[i];
    if (x.is_constant() || !read_lately.contains(x.id())) continue;
    const auto is_x = [&](const Tensor& y) { return y && y.id() == x.id(); };
    const bool known = std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
      return std::any_of(entry.inputs.begin(), entry.inputs.end(), is_x) ||
             std::any_of(entry.outputs.begin(), entry.outputs.end(), is_x);
    });
    if (!known)
      warn_once(
          "unused under the tape",
          fmt::format("[gradient] nothing under this tape uses tensor {} of those asked for, so its gradient is zero, "
                      "but ops have read it while there was no tape. Begin the tape before anything is computed from it: {}",
                      i, to_string(x)));
  }
}

std::vector<Tensor> Tape::gradient(const Tensor& objective, const TensorList& with_respect_to, Record record) {
  for (const auto& x : static_cast<const std::vector<Tensor>&>(with_respect_to))
    require(!x.is_constant(),
            "[gradient] of a constant, as are batches of a loader and what is computed from constants only: use x.as_variable() "
            "under the tape: {}",
            x);
  if (!objective) return vjp({}, {}, with_respect_to, record);
  const auto cotangents = seeds(objective);
  require_known(objective, with_respect_to);
  equal_.warn_of(objective);
  return vjp({objective}, cotangents, with_respect_to, record);
}

namespace {

using Ids = std::unordered_set<std::uint64_t>;

// Parameters for which the gradient() of this thread computes nothing.
thread_local Ids frozen;

struct FrozenScope {
  explicit FrozenScope(Ids ids) : before(std::exchange(frozen, std::move(ids))) {}
  FrozenScope(const FrozenScope&) = delete;
  FrozenScope& operator=(const FrozenScope&) = delete;
  ~FrozenScope() { frozen = std::move(before); }
  Ids before;
};

}  // namespace

Gradients Tape::gradient(const Tensor& objective, const GradientOptions& options) {
  require(parameters_ != nullptr, "[gradient] this tape was made without parameters: name the tensors to differentiate");
  require(
      options.accumulate.has_value() || !parameters_->accumulating(),
      "[gradient] the parameters keep gradients of earlier micro-batches, and this call does not say whether it is another one: "
      "say {{.accumulate = true}}, or {{.accumulate = false}} if it is the last and is to return the sum; if it has nothing to "
      "do with them, name its tensors: gradient(objective, parameters.tensors())");
  Cotangents cotangents;
  if (objective && !objective.is_constant()) cotangents[objective.id()] = seeds(objective)[0];
  if (objective) require_known(objective, parameters_->tensors()), equal_.warn_of(objective);
  std::vector<Tensor> asked;
  Ids none;
  for (std::size_t i = 0; i < parameters_->size(); ++i) {
    const auto& parameter = (*parameters_)[i];
    if (parameter.frozen) none.insert(parameter.value.id());
    else asked.push_back(parameter.value);
  }
  const FrozenScope scope(std::move(none));
  auto gradients = replay(std::move(cotangents), asked, options);
  for (std::size_t i = 0; i < parameters_->size(); ++i)
    if ((*parameters_)[i].frozen) gradients.insert(gradients.begin() + static_cast<std::ptrdiff_t>(i), parameters_->zeros_for(i));
  return parameters_->collect(std::move(gradients), options.accumulate.value_or(false));
}

std::vector<Tensor> Tape::vjp(const std::vector<Tensor>& outputs, std::vector<Tensor> cotangents,
                              const std::vector<Tensor>& with_respect_to, Record record) {
  require(outputs.size() == cotangents.size(), "[vjp] {} outputs and {} cotangents", outputs.size(), cotangents.size());
  Cotangents start;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    require(outputs[i].type() == cotangents[i].type(), "[vjp] output {} is {}, its cotangent {}", i, outputs[i], cotangents[i]);
    if (outputs[i].is_constant()) continue;
    auto& slot = start[outputs[i].id()];
    auto cotangent = std::move(cotangents[i]).without_layout();
    cotangents[i] = {};
    slot = slot ? add(slot, cotangent) : std::move(cotangent);
  }
  if (!outputs.empty()) require_unspent(), warn_of_unused(with_respect_to);
  auto result = replay(std::move(start), with_respect_to, {.record = record, .accumulate = {}});
  for (std::size_t i = 0; i < result.size(); ++i) {
    // A replicated tensor has a replicated cotangent; blocks stay blocks. The cotangent of a partial sum gets no layout.
    const auto& layout = with_respect_to[i].layout();
    if (layout && !layout->has(Placement::partial)) result[i] = result[i].with_layout(layout);
  }
  return result;
}

namespace {

// Whether other ranks wait in this entry: not if it replicates a parameter, which is then frozen on all of them.
bool awaited(const Tape::Entry& entry) {
  return entry.communicates && !(entry.start_reduction && frozen.contains(entry.inputs[0].id()));
}

// Tensors whose cotangents are needed: the requested tensors, and tensors that depend on them or on a message, because another
// rank may request its cotangent. `computed` gets the requested tensors that entries have computed: their cotangents are passed
// on and must not be in a running reduction.
Ids mattering(const std::vector<Tape::Entry>& entries, const Ids& asked, Ids& computed) {
  Ids matters = asked;
  for (const auto& entry : entries) {
    const bool any = awaited(entry) || std::any_of(entry.inputs.begin(), entry.inputs.end(),
                                                   [&](const Tensor& x) { return x && matters.contains(x.id()); });
    for (const auto& y : entry.outputs) {
      if (asked.contains(y.id())) computed.insert(y.id());
      if (any) matters.insert(y.id());
    }
  }
  return matters;
}

// Which inputs of an entry need a cotangent.
std::vector<bool> wanted_inputs(const Tape::Entry& entry, const Ids& matters) {
  std::vector<bool> wants;
  for (const auto& x : entry.inputs)
    wants.push_back(x && !x.is_constant() && is_differentiable(x.dtype()) && matters.contains(x.id()));
  return wants;
}

// Cotangents of the outputs of an entry, which are removed from the table unless requested; empty if none has arrived.
std::vector<Tensor> arriving_at(const Tape::Entry& entry, std::unordered_map<std::uint64_t, Tensor>& cotangents,
                                const Ids& asked) {
  std::vector<Tensor> arriving(entry.outputs.size());
  bool any = false;
  for (std::size_t i = 0; i < arriving.size(); ++i) {
    const auto found = cotangents.find(entry.outputs[i].id());
    if (found == cotangents.end()) continue;
    any = true;
    if (asked.contains(found->first)) {
      arriving[i] = found->second;
    } else {
      arriving[i] = std::move(found->second);
      cotangents.erase(found);
    }
  }
  if (!any) arriving.clear();
  return arriving;
}

void add_to(Tensor& slot, Tensor cotangent) { slot = slot ? add(slot, cotangent) : std::move(cotangent); }

}  // namespace

std::vector<Tensor> Tape::replay(Cotangents cotangents, const std::vector<Tensor>& with_respect_to,
                                 const GradientOptions& options) {
  require_unspent();
  require_waited();
  require(!stopped_ || options.record == Record::no, "[gradient] a tape that was stopped cannot record the replay");
  const ReplayScope scope;
  recording_ = options.record == Record::yes;
  spent_ = options.record == Record::no;
  // Without Record::yes the tapes around this one still see the replay: this nests derivatives of derivatives.

  Ids asked;
  for (const auto& x : with_respect_to) asked.insert(x.id());
  Ids computed;
  const auto matters = mattering(entries_, asked, computed);
  Reducer reducer(parameters_, options.accumulate);

  for (std::size_t e = entries_.size(); e-- > 0;) {
    Entry kept;  // a copy: the vjp may append entries to entries_
    if (options.record == Record::yes) kept = entries_[e];
    else kept = std::move(entries_[e]), entries_.pop_back();

    // An entry between ranks is replayed with or without a cotangent: the other ranks wait in it.
    auto arriving = arriving_at(kept, cotangents, asked);
    const auto wants = wanted_inputs(kept, matters);
    if (!awaited(kept) && (arriving.empty() || std::find(wants.begin(), wants.end(), true) == wants.end())) continue;
    arriving.resize(kept.outputs.size());
    for (std::size_t i = 0; i < arriving.size(); ++i)
      if (!arriving[i] && is_differentiable(kept.outputs[i].dtype())) arriving[i] = zeros_like(kept.outputs[i]);

    const bool reduces = kept.start_reduction && options.record == Record::no && !recording() &&
                         asked.contains(kept.inputs[0].id()) && !computed.contains(kept.inputs[0].id());
    if (reduces && reducer.take(kept.inputs[0].id(), arriving[0], kept.start_reduction)) continue;

    detail::require_kept_memory(kept);
    const Replay at(kept.inputs, kept.outputs, wants);
    const ReplayScope vjp_scope({true, &kept, &cotangents});
    auto leaving = kept.vjp(at, arriving);
    require(leaving.size() == kept.inputs.size(), "[{}] its vjp returns {} cotangents for {} inputs", kept.name, leaving.size(),
            kept.inputs.size());
    arriving.clear();
    for (std::size_t i = 0; i < leaving.size(); ++i) {
      if (!wants[i] || !leaving[i]) continue;
      require(leaving[i].type() == kept.inputs[i].type(), "[{}] its vjp returns {} for input {}, which is {}", kept.name,
              leaving[i], i, kept.inputs[i]);
      add_to(cotangents[kept.inputs[i].id()], std::move(leaving[i]));
    }
  }

  reducer.flush();
  std::vector<Tensor> result;
  for (const auto& x : with_respect_to) {
    if (asked.erase(x.id()) == 0) {  // requested twice
      result.push_back(cotangents.contains(x.id()) ? cotangents.at(x.id()) : zeros_like(x.without_layout()));
      continue;
    }
    if (auto reduced = reducer.wait(x.id())) add_to(cotangents[x.id()], std::move(reduced));
    const auto found = cotangents.find(x.id());
    if (found != cotangents.end()) result.push_back(found->second);
    else result.push_back(options.accumulate.value_or(false) ? Tensor() : zeros_like(x.without_layout()));
  }
  if (options.record == Record::no) memo_.clear();
  return result;
}

Untaped::Untaped() {
  for (Tape* tape : active)
    if (!std::exchange(tape->suspended_, true)) suspended_.push_back(tape);
}
Untaped::~Untaped() {
  for (Tape* tape : active)  // suspended tapes may have been destroyed
    if (std::find(suspended_.begin(), suspended_.end(), tape) != suspended_.end()) tape->suspended_ = false;
}

}  // namespace mpigrad
