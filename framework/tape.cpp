#include "framework/tape.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <unordered_set>

#include "framework/buckets.h"
#include "framework/op.h"
#include "framework/parameter.h"

namespace mpigrad {
namespace {

thread_local std::vector<Tape*> active;

std::vector<Tensor> seeds(const Tensor& objective) {
  require(objective.elements() == 1, "[gradient] the objective has one element per rank: {}", objective);
  require(is_floating(objective.dtype()), "[gradient] the objective is floating-point: {}", objective);
  return {ones_like(objective)};
}

}  // namespace

Tape::Tape()
    : number_([] {
        static std::atomic<std::uint64_t> made{0};
        return ++made;
      }()) {
  active.push_back(this);
}
Tape::Tape(Parameters& parameters) : Tape() { parameters_ = &parameters; }
Tape::~Tape() { std::erase(active, this); }

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

void Tape::record(Entry entry) {
  // Cotangents are plain local tensors, so what a vjp reads is stripped of its layout. Operands beyond the 32nd are never kept.
  const auto kept = [](unsigned mask, std::size_t i) { return i < 32 && (mask >> i & 1) != 0; };
  for (std::size_t i = 0; i < entry.inputs.size(); ++i)
    if (auto& x = entry.inputs[i]) x = kept(entry.keeps_inputs, i) ? x.without_layout() : x.without_layout().without_storage();
  for (std::size_t i = 0; i < entry.outputs.size(); ++i)
    if (auto& y = entry.outputs[i]) y = kept(entry.keeps_outputs, i) ? y.without_layout() : y.without_layout().without_storage();
  for (Tape* tape : active) {
    if (!tape->sees()) continue;
    tape->entries_.push_back(entry);
    if (tape->keeps_elements_) continue;
    for (auto* list : {&tape->entries_.back().inputs, &tape->entries_.back().outputs})
      for (auto& x : *list)
        if (x) x = x.without_storage();
  }
}

Tensor Tape::memoised(std::uint64_t tensor, const void* key, const std::function<Tensor()>& make) {
  auto& slot = memo_[{tensor, key}];
  if (!slot) slot = make();
  return slot;
}

void Tape::require_unspent() const {
  require(!spent_, "[gradient] this tape is spent: ask for everything in one call, or pass Record::yes to all but the last");
}

// Found out half-way, it would leave other ranks waiting for this one's adjoint messages.
void Tape::require_waited() const {
  std::unordered_set<const std::string*> started;
  for (const auto& entry : entries_)
    if (entry.request && !started.erase(entry.request.get())) started.insert(entry.request.get());
  for (const auto& entry : entries_)  // the first of them
    if (entry.request && started.contains(entry.request.get()))
      fail("[{}] under this tape nobody has waited for this call: {}", entry.name, *entry.request);
}

// Zeros for an objective that has nothing to do with the tape would look like a result.
void Tape::require_known(const Tensor& objective, const std::vector<Tensor>& with_respect_to) const {
  const auto is_objective = [&](const Tensor& y) { return y.id() == objective.id(); };
  require_unspent();
  if (objective.is_constant() || std::any_of(with_respect_to.begin(), with_respect_to.end(), is_objective)) return;
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry)
    if (std::any_of(entry->outputs.begin(), entry->outputs.end(), is_objective)) return;
  for (const auto& entry : entries_)
    if (std::any_of(entry.inputs.begin(), entry.inputs.end(), is_objective)) return;
  fail("[gradient] the objective was not computed under this tape (a rank without one hands in none): {}", objective);
}

// The factor of P: every rank hands in the sum of all.
void Tape::warn_if_replicated(const Tensor& objective) const {
  static std::atomic_flag warned = ATOMIC_FLAG_INIT;
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    if (entry->equal_on < 2 || entry->outputs[0].id() != objective.id() || warned.test_and_set()) continue;
    fmt::print(
        stderr,
        "[gradient] the objective is the result of an allreduce: looks like a replicated loss; gradients will be {0} times "
        "those of one, if all {0} ranks hand it in. Hand in each rank's share, or use allreduce_invariant.\n",
        entry->equal_on);
  }
}

std::vector<Tensor> Tape::gradient(const Tensor& objective, const TensorList& with_respect_to, Record record) {
  if (!objective) return vjp({}, {}, with_respect_to, record);
  const auto cotangents = seeds(objective);
  require_known(objective, with_respect_to);
  warn_if_replicated(objective);
  return vjp({objective}, cotangents, with_respect_to, record);
}

Gradients Tape::gradient(const Tensor& objective, const GradientOptions& options) {
  require(parameters_ != nullptr, "[gradient] this tape was made without parameters: name the tensors to differentiate");
  Cotangents cotangents;
  if (objective && !objective.is_constant()) cotangents[objective.id()] = seeds(objective)[0];
  if (objective) require_known(objective, parameters_->tensors()), warn_if_replicated(objective);
  return parameters_->collect(replay(std::move(cotangents), parameters_->tensors(), options), options.accumulate);
}

std::vector<Tensor> Tape::vjp(const std::vector<Tensor>& outputs, const std::vector<Tensor>& cotangents,
                              const std::vector<Tensor>& with_respect_to, Record record) {
  require(outputs.size() == cotangents.size(), "[vjp] {} outputs and {} cotangents", outputs.size(), cotangents.size());
  Cotangents start;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    require(outputs[i].type() == cotangents[i].type(), "[vjp] output {} is {}, its cotangent {}", i, outputs[i], cotangents[i]);
    if (outputs[i].is_constant()) continue;
    auto& slot = start[outputs[i].id()];
    slot = slot ? add(slot, cotangents[i].without_layout()) : cotangents[i].without_layout();
  }
  auto result = replay(std::move(start), with_respect_to, {.record = record, .accumulate = false});
  for (std::size_t i = 0; i < result.size(); ++i) {
    // A tensor that is the same on all ranks has a cotangent that is; blocks stay blocks. A share's cotangent is left untyped.
    const auto& layout = with_respect_to[i].layout();
    if (layout && !layout->has(Placement::share)) result[i] = result[i].with_layout(layout);
  }
  return result;
}

std::vector<Tensor> Tape::replay(Cotangents cotangents, const std::vector<Tensor>& with_respect_to,
                                 const GradientOptions& options) {
  require_unspent();
  require_waited();
  recording_ = options.record == Record::yes;
  spent_ = options.record == Record::no;
  // Without Record::yes the tapes around this one still see the replay: that is how derivatives of derivatives nest.

  // An output matters if it depends on what is asked for, or on a message: another rank may ask.
  std::unordered_set<std::uint64_t> matters;
  for (const auto& x : with_respect_to) matters.insert(x.id());
  const std::size_t end = entries_.size();
  for (std::size_t e = 0; e < end; ++e) {
    const auto& entry = entries_[e];
    const bool any = entry.communicates || std::any_of(entry.inputs.begin(), entry.inputs.end(),
                                                       [&](const Tensor& x) { return x && matters.contains(x.id()); });
    if (!any) continue;
    for (const auto& y : entry.outputs) matters.insert(y.id());
  }

  ReductionBuckets pending;
  std::unordered_set<std::uint64_t> asked;
  for (const auto& x : with_respect_to) asked.insert(x.id());

  for (std::size_t e = end; e-- > 0;) {
    Entry kept;  // the vjp may append entries to this very vector, so it must not refer into it
    if (options.record == Record::yes) kept = entries_[e];
    else kept = std::move(entries_[e]), entries_.pop_back();

    std::vector<Tensor> arriving(kept.outputs.size());
    bool any = false;
    for (std::size_t i = 0; i < arriving.size(); ++i) {
      const auto found = cotangents.find(kept.outputs[i].id());
      if (found == cotangents.end()) continue;
      arriving[i] = asked.contains(found->first) ? found->second : std::move(found->second);
      if (!asked.contains(found->first)) cotangents.erase(found);
      any = true;
    }
    if (!any && !kept.communicates) continue;

    std::vector<bool> wants(kept.inputs.size());
    bool wanted = kept.communicates;
    for (std::size_t i = 0; i < wants.size(); ++i) {
      const auto& x = kept.inputs[i];
      wants[i] = x && !x.is_constant() && is_floating(x.dtype()) && matters.contains(x.id());
      wanted = wanted || wants[i];
    }
    if (!wanted) continue;
    for (std::size_t i = 0; i < arriving.size(); ++i)
      if (!arriving[i] && is_floating(kept.outputs[i].dtype())) arriving[i] = zeros_like(kept.outputs[i]);

    if (kept.start_reduction && options.record == Record::no && !recording()) {
      const auto id = kept.inputs[0].id();
      if (asked.contains(id) && options.accumulate) {
        parameters_->defer(id, arriving[0], kept.start_reduction);
        continue;
      }
      if (asked.contains(id) && !pending.contains(id)) {
        if (const auto before = parameters_ ? parameters_->take_deferred(id, kept.start_reduction) : Tensor())
          arriving[0] = add(arriving[0], before);
        pending.add(id, arriving[0], kept.start_reduction);
        continue;
      }
    }

    const Replay at(kept.inputs, kept.outputs, wants);
    auto leaving = kept.vjp(at, arriving);
    require(leaving.size() == kept.inputs.size(), "[{}] its vjp returns {} cotangents for {} inputs", kept.name, leaving.size(),
            kept.inputs.size());
    arriving.clear();
    for (std::size_t i = 0; i < leaving.size(); ++i) {
      if (!wants[i] || !leaving[i]) continue;
      require(leaving[i].type() == kept.inputs[i].type(), "[{}] its vjp returns {} for input {}, which is {}", kept.name,
              leaving[i], i, kept.inputs[i]);
      auto& slot = cotangents[kept.inputs[i].id()];
      slot = slot ? add(slot, leaving[i]) : std::move(leaving[i]);
    }
  }

  pending.flush();
  std::vector<Tensor> result;
  for (const auto& x : with_respect_to) {
    if (pending.contains(x.id())) {
      auto& slot = cotangents[x.id()];
      const auto reduced = pending.wait(x.id());
      slot = slot ? add(slot, reduced) : reduced;
    }
    const auto found = cotangents.find(x.id());
    result.push_back(found != cotangents.end() ? found->second : zeros_like(x));
  }
  if (options.record == Record::no) memo_.clear();
  return result;
}

Untaped::Untaped() {
  for (Tape* tape : active)
    if (!std::exchange(tape->suspended_, true)) suspended_.push_back(tape);
}
Untaped::~Untaped() {
  for (Tape* tape : active)  // some of those suspended may be gone
    if (std::find(suspended_.begin(), suspended_.end(), tape) != suspended_.end()) tape->suspended_ = false;
}

}  // namespace mpigrad
