#include "models/simulation/steps.h"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ops/traced.h"

namespace mpigrad {
namespace {

// binomial(n, k), at most the largest number; 0 if k < 0 or k > n.
std::int64_t binomial(std::int64_t n, std::int64_t k) {
  if (k < 0 || k > n) return 0;
  k = std::min(k, n - k);
  std::int64_t result = 1;
  for (std::int64_t i = 1; i <= k; ++i)
    if (__builtin_mul_overflow(result, n - k + i, &result)) return std::numeric_limits<std::int64_t>::max();
    else result /= i;
  return result;
}

// The least number of times that each step is computed so that s snapshots suffice for n steps.
std::int64_t repetitions(std::int64_t n, std::int64_t s) {
  if (s == 1) return n - 1;
  std::int64_t r = 0;
  while (binomial(s + r, s) < n) ++r;
  return r;
}

// The step at which the next snapshot is best taken: Griewank and Walther's condition, with the first of the best steps.
std::int64_t next_snapshot(std::int64_t n, std::int64_t s) {
  const auto r = repetitions(n, s);
  return std::max({std::int64_t{1}, binomial(s + r - 2, s), n - binomial(s - 1 + r, s - 1)});
}

bool differentiable(const Tensor& x) { return x && !x.is_constant() && is_differentiable(x.dtype()); }

// The steps 0 ... count - 1 of a loop, as one entry of the tape.
struct Loop {
  StepFunction f;
  std::int64_t count = 0;      // the last of all steps is recorded on its own
  std::int64_t snapshots = 1;  // of all steps
  Tensors start;
  Tensors externals;  // what the entry's cotangents belong to: parts of `start`, and what f uses
  std::unordered_set<std::uint64_t> external_ids;
  std::vector<detail::Memo> memos;  // values of externals that the tape has memoised, and which every step uses
  // Where the entry's outputs come from.
  struct Place {
    std::int64_t step = 0;
    std::size_t index = 0;
  };
  std::vector<Place> places;
  struct Snapshot {
    std::int64_t step = 0;
    Tensors state;
  };
  std::vector<Snapshot> kept;

  void add_external(const Tensor& x) {
    if (differentiable(x) && external_ids.insert(x.id()).second) externals.push_back(x.without_layout().without_storage());
  }
  bool is_external(const Tensor& x) const { return external_ids.contains(x.id()); }

  Tensors state_of(const Tensors& outputs) const {
    return {outputs.begin(), outputs.begin() + static_cast<std::ptrdiff_t>(start.size())};
  }
  Tensors call(const Tensors& state, std::int64_t step) const {
    auto outputs = f(state, step);
    require(outputs.size() >= start.size(), "[steps] step {} returns {} tensors for a state of {}", step, outputs.size(),
            start.size());
    for (std::size_t i = 0; i < start.size(); ++i) {
      const auto &a = outputs[i].layout(), &b = start[i].layout();
      require(outputs[i].type() == start[i].type() && (a == b || (a && b && *a == *b)),
              "[steps] a step keeps types and layouts of the state: tensor {} is {} before the loop and {} after step {}", i,
              start[i], outputs[i], step);
    }
    return outputs;
  }
  Tensors advanced(Tensors state, std::int64_t from, std::int64_t to) const {
    const Untaped scope;
    for (; from < to; ++from) state = state_of(call(state, from));
    return state;
  }
};

// Moves what a step has memoised, replicated parameters for example, from its trace to the tapes around the loop: as under a tape
// that records the plain loop, it is computed once for all steps. Only chains of ops that keep no elements and start from tensors
// outside the loop can be moved.
void share_memos(detail::Traced& trace, const Tensors& state, Loop& loop) {
  std::unordered_map<std::uint64_t, Tensor> renamed;  // to values that the tapes had memoised before
  const auto name = [&](Tensor& x) {
    if (const auto found = renamed.find(x.id()); x && found != renamed.end()) x = found->second.with_layout(x.layout());
  };
  std::unordered_set<std::uint64_t> own;  // tensors of this step
  for (const auto& x : state)
    if (!loop.is_external(x)) own.insert(x.id());
  auto* tape = Tape::innermost();
  for (auto& memo : trace.memos) {
    std::unordered_set<std::uint64_t> wanted{memo.value.id()};
    std::vector<std::size_t> chain;
    bool moves = tape != nullptr;
    for (std::size_t e = trace.entries.size(); e-- > 0;) {
      const auto& entry = trace.entries[e];
      if (std::none_of(entry.outputs.begin(), entry.outputs.end(), [&](const Tensor& y) { return wanted.contains(y.id()); }))
        continue;
      chain.push_back(e);
      moves = moves && entry.keeps_inputs == 0 && entry.keeps_outputs == 0;
      for (const auto& x : entry.inputs)
        if (x) wanted.insert(x.id());
    }
    if (!moves || std::any_of(wanted.begin(), wanted.end(), [&](auto id) { return own.contains(id); })) continue;
    if (const auto found = renamed.find(memo.tensor); found != renamed.end()) memo.tensor = found->second.id();
    const auto value = tape->memoised(memo.tensor, memo.key, [&] {
      for (auto e = chain.rbegin(); e != chain.rend(); ++e) {
        auto entry = trace.entries[*e];
        for (auto& x : entry.inputs)
          if (x) name(x);
        Tape::record(std::move(entry));
      }
      return memo.value;
    });
    if (value.id() != memo.value.id()) renamed[memo.value.id()] = value;
    std::sort(chain.begin(), chain.end());
    for (auto e = chain.rbegin(); e != chain.rend(); ++e)
      trace.entries.erase(trace.entries.begin() + static_cast<std::ptrdiff_t>(*e));
    loop.memos.push_back({memo.tensor, memo.key, value});
  }
  for (auto& entry : trace.entries)
    for (auto& x : entry.inputs)
      if (x) name(x);
  for (auto& y : trace.outputs) name(y);
}

// The replay of a loop: cotangents of its externals from those of its outputs.
class Reversal {
 public:
  Reversal(const Loop& loop, const Replay& at, Inputs cotangents) : loop_(loop), state_(loop.start.size()) {
    for (std::size_t i = 0; i < loop.externals.size(); ++i) {
      slots_.push_back(at.wants(i) ? detail::take_cotangent(loop.externals[i]) : Tensor());
      if (at.wants(i)) wanted_.push_back(i);
    }
    for (std::size_t i = 0; i < loop.places.size(); ++i) {
      const auto [step, index] = loop.places[i];
      if (index < state_.size()) state_[index] = cotangents[i];
      else results_[step].push_back({index, cotangents[i]});
    }
  }

  // With snapshots. `kept` starts with the initial state; snapshots that are no longer needed leave it.
  Tensors backwards(std::vector<Loop::Snapshot>& kept) {
    // The first pass took each snapshot where reverse() would have; the last step of all has been reversed on its own.
    for (auto end = loop_.count; !kept.empty();) {
      const auto begin = kept.back().step;
      reverse(kept, end, loop_.snapshots - static_cast<std::int64_t>(kept.size()) + 1);
      end = begin;
      kept.pop_back();
    }
    return slots_;
  }

  // Without snapshots, under one tape: for tapes around this replay, which record all of it.
  Tensors at_once() {
    Tape tape;
    share(tape);
    auto state = loop_.start;
    Tensors outputs, cotangents;
    for (std::int64_t step = 0; step < loop_.count; ++step) {
      const auto made = loop_.call(state, step);
      seed_results(step, made, outputs, cotangents);
      state = loop_.state_of(made);
    }
    seed_state(state, outputs, cotangents);
    finish(tape, outputs, cotangents, {});
    return slots_;
  }

 private:
  // Reverses the steps from the last snapshot to `end` with `free` snapshots, that one included.
  void reverse(std::vector<Loop::Snapshot>& kept, std::int64_t end, std::int64_t free) {
    const auto begin = kept.back().step;
    if (free == 1 || end - begin == 1) return one_by_one(kept, end);
    const auto middle = begin + next_snapshot(end - begin, free);
    kept.push_back({middle, loop_.advanced(kept.back().state, begin, middle)});
    reverse(kept, end, free - 1);
    kept.pop_back();
    reverse(kept, middle, free);
  }
  void one_by_one(const std::vector<Loop::Snapshot>& kept, std::int64_t end) {
    const auto& [begin, state] = kept.back();
    for (auto step = end - 1; step >= begin; --step) reverse_step(step, loop_.advanced(state, begin, step));
  }

  void reverse_step(std::int64_t step, const Tensors& state) {
    Tape tape;
    share(tape);
    Tensors outputs, cotangents;
    {
      const auto made = loop_.call(state, step);
      seed_state(made, outputs, cotangents);
      seed_results(step, made, outputs, cotangents);
    }
    finish(tape, outputs, cotangents, state);
  }

  void share(Tape& tape) const {
    for (const auto& memo : loop_.memos) tape.memoised(memo.tensor, memo.key, [&] { return memo.value; });
  }
  void seed_state(const Tensors& made, Tensors& outputs, Tensors& cotangents) {
    for (std::size_t i = 0; i < state_.size(); ++i) {
      if (state_[i] && differentiable(made[i]) && !loop_.is_external(made[i])) {
        outputs.push_back(made[i].without_layout().without_storage());
        cotangents.push_back(std::move(state_[i]));
      }
      state_[i] = {};
    }
  }
  void seed_results(std::int64_t step, const Tensors& made, Tensors& outputs, Tensors& cotangents) {
    const auto found = results_.find(step);
    if (found == results_.end()) return;
    for (auto& [index, cotangent] : found->second) {
      outputs.push_back(made[index].without_layout().without_storage());
      cotangents.push_back(std::move(cotangent));
    }
    results_.erase(found);
  }
  // Replays a tape: terms of externals are added to what they have; the cotangents of `state` become those of the step before.
  void finish(Tape& tape, Tensors& outputs, Tensors& cotangents, const Tensors& state) {
    Tensors asked;
    for (const auto i : wanted_) {
      asked.push_back(loop_.externals[i]);
      if (!slots_[i]) continue;
      outputs.push_back(loop_.externals[i]);
      cotangents.push_back(std::move(slots_[i]));
    }
    std::vector<std::size_t> places;
    std::unordered_set<std::uint64_t> seen;
    for (std::size_t i = 0; i < state.size(); ++i)
      if (differentiable(state[i]) && !loop_.is_external(state[i]) && seen.insert(state[i].id()).second) {
        asked.push_back(state[i].without_layout().without_storage());
        places.push_back(i);
      }
    auto found = tape.vjp(outputs, std::move(cotangents), asked);
    for (std::size_t i = 0; i < found.size(); ++i) {
      auto cotangent = std::move(found[i]).without_layout();
      (i < wanted_.size() ? slots_[wanted_[i]] : state_[places[i - wanted_.size()]]) = std::move(cotangent);
    }
  }

  const Loop& loop_;
  Tensors slots_;                    // of the externals
  std::vector<std::size_t> wanted_;  // externals whose cotangents are wanted
  Tensors state_;                    // of the state after the next step to reverse
  struct Result {
    std::size_t index = 0;
    Tensor cotangent;
  };
  std::unordered_map<std::int64_t, std::vector<Result>> results_;
};

StepsResult run(const StepFunction& f, const Tensors& start, std::int64_t n, const StepsOptions& options) {
  require(n >= 0 && options.snapshots >= 0, "[steps] {} steps with {} snapshots: neither is negative", n, options.snapshots);
  const auto loop = std::make_shared<Loop>();
  loop->f = f;
  loop->start = start;
  StepsResult result{.state = start, .results = {}};
  const auto finish_step = [&](const Tensors& made) {
    result.results.emplace_back(made.begin() + static_cast<std::ptrdiff_t>(start.size()), made.end());
    result.state = loop->state_of(made);
  };
  const bool recorded = Tape::recording() && n > 1;
  if (recorded) {
    loop->count = n - 1;
    loop->snapshots = options.snapshots == 0 ? n : std::min(options.snapshots, n);
    for (const auto& x : start) loop->add_external(x);
    loop->kept.push_back({0, start});
    const detail::KeepNoArrivals scope;
    Tensors outputs;
    bool communicates = false;
    std::int64_t next = -1, free = loop->snapshots;
    for (std::int64_t step = 0; step < loop->count; ++step) {
      if (step == next) loop->kept.push_back({step, result.state}), --free;
      if (loop->kept.back().step == step) next = free > 1 && n - step > 1 ? step + next_snapshot(n - step, free) : -1;
      auto trace = detail::traced([&] { return loop->call(result.state, step); }, loop->memos);
      share_memos(trace, result.state, *loop);
      const auto [used, talks] = detail::used_by(trace, result.state);
      for (const auto& x : used) loop->add_external(x);
      communicates = communicates || talks;
      finish_step(trace.outputs);
      const auto& results = result.results.back();
      for (std::size_t i = 0; i < results.size(); ++i)
        if (differentiable(results[i]) && !loop->is_external(results[i])) {
          outputs.push_back(results[i]);
          loop->places.push_back({step, start.size() + i});
        }
    }
    std::unordered_set<std::uint64_t> seen;
    for (std::size_t i = 0; i < start.size(); ++i)
      if (const auto& x = result.state[i]; differentiable(x) && !loop->is_external(x) && seen.insert(x.id()).second) {
        outputs.push_back(x);
        loop->places.push_back({loop->count - 1, i});
      }
    // Adjoints: [x_bar, p_bar] of x_n = f_p(... f_p(x)), a step after the other, from the last to the first.
    if (!outputs.empty() || communicates)
      Tape::record({.name = "steps",
                    .communicates = communicates,
                    .inputs = loop->externals,
                    .outputs = std::move(outputs),
                    .vjp = [loop](const Replay& at, Inputs cotangents) {
                      const detail::KeepNoArrivals here;
                      Reversal reversal(*loop, at, cotangents);
                      if (Tape::recording()) return reversal.at_once();
                      if (loop.use_count() == 1) return reversal.backwards(loop->kept);
                      auto kept = loop->kept;
                      return reversal.backwards(kept);
                    }});
  }
  for (auto step = loop->count; step < n; ++step) finish_step(loop->call(result.state, step));
  return result;
}

}  // namespace

Tensors time_steps(const StepFunction& f, const Tensors& state, std::int64_t n, const StepsOptions& options) {
  auto [after, results] = run(f, state, n, options);
  for (std::size_t i = 0; i < results.size(); ++i)
    require(results[i].empty(), "[steps] step {} returns {} tensors for a state of {}; steps_with_results() takes more", i,
            state.size() + results[i].size(), state.size());
  return after;
}

Tensor time_steps(const std::function<Tensor(const Tensor&, std::int64_t)>& f, const Tensor& state, std::int64_t n,
                  const StepsOptions& options) {
  return time_steps([f](const Tensors& x, std::int64_t step) { return Tensors{f(x[0], step)}; }, Tensors{state}, n, options)[0];
}
Tensor time_steps(const std::function<Tensor(const Tensor&)>& f, const Tensor& state, std::int64_t n,
                  const StepsOptions& options) {
  return time_steps([f](const Tensors& x, std::int64_t) { return Tensors{f(x[0])}; }, Tensors{state}, n, options)[0];
}

StepsResult steps_with_results(const StepFunction& f, const Tensors& state, std::int64_t n, const StepsOptions& options) {
  return run(f, state, n, options);
}

std::int64_t step_evaluations(std::int64_t n, std::int64_t s) {
  require(n >= 1 && s >= 1, "[steps] {} steps with {} snapshots: both are positive", n, s);
  const auto r = repetitions(n, s);
  return r * n - binomial(s + r, s + 1);
}

}  // namespace mpigrad
