#include "ops/recompute.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "ops/traced.h"
#include "ops/views/views.h"

namespace mpigrad {
namespace {

using Arrived = std::vector<std::shared_ptr<Tensor>>;

// A run of a function on this thread: the first run appends arriving tensors to the list, later runs read them.
class Run {
 public:
  Run(Arrived& arrived, bool first) : arrived_(arrived), first_(first), around_(std::exchange(innermost, this)) {}
  ~Run() { innermost = around_; }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  static thread_local Run* innermost;

  // The tensor if it is known; else appends the places to store it in to `places`.
  Tensor next(Arrived& places) {
    if (!first_) {
      require(next_ < arrived_.size() && *arrived_[next_],
              "[recompute] the function receives more tensors than in its first run");
      return *arrived_[next_++];
    }
    auto& place = arrived_.emplace_back(std::make_shared<Tensor>());
    const auto mine = place;
    if (around_) *mine = around_->next(places);
    if (!*mine) places.push_back(mine);
    return *mine;
  }

 private:
  Arrived& arrived_;
  bool first_;
  std::size_t next_ = 0;
  Run* around_;
};
thread_local Run* Run::innermost = nullptr;

struct Inside {
  Inside() { ++depth; }
  ~Inside() { --depth; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  static thread_local int depth;
};
thread_local int Inside::depth = 0;

}  // namespace

detail::Arrival detail::Arrival::next() {
  Arrival arrival;
  if (Run::innermost) arrival.known_ = Run::innermost->next(arrival.places_);
  return arrival;
}

bool detail::Arrival::inside() { return Inside::depth > 0; }

void detail::Arrival::keep(const Tensor& arrived) const {
  for (const auto& place : places_) *place = arrived.as_constant();
}

detail::Traced detail::traced(const std::function<Tensors()>& f, const std::vector<Memo>& known) {
  Untaped outside;
  Tape tape;
  tape.keep_nothing();
  for (const auto& memo : known) tape.memoised(memo.tensor, memo.key, [&] { return memo.value; });
  NewMemos memos;
  auto outputs = f();
  return {std::move(outputs), tape.entries(), std::move(memos.found)};
}

detail::Used detail::used_by(const Traced& run, const Tensors& arguments) {
  Used used;
  std::unordered_set<std::uint64_t> known;
  for (const auto& x : arguments) known.insert(x.id());
  const auto read = [&](const Tensor& x) {
    if (x && !x.is_constant() && is_differentiable(x.dtype()) && known.insert(x.id()).second)
      used.tensors.push_back(x.without_layout());
  };
  for (const auto& entry : run.entries) {
    used.communicates = used.communicates || entry.communicates;
    for (const auto& x : entry.inputs) read(x);
    for (const auto& y : entry.outputs) known.insert(y.id());
  }
  for (const auto& y : run.outputs) read(y);
  return used;
}

detail::KeepNoArrivals::KeepNoArrivals() : suspended_(std::exchange(Run::innermost, nullptr)) {}
detail::KeepNoArrivals::~KeepNoArrivals() { Run::innermost = static_cast<Run*>(suspended_); }

Tensor recompute(const std::function<Tensor(const Tensor&)>& f, const Tensor& x) {
  const Inside scope;
  if (!Tape::recording()) return f(x);

  // The first run finds out which tensors besides x f uses and whether it communicates.
  const auto arrived = std::make_shared<Arrived>();
  const auto trace = detail::traced([&] {
    const Run first(*arrived, true);
    return Tensors{f(x)};
  });
  const auto& y = trace.outputs[0];
  auto [others, communicates] = detail::used_by(trace, {x});
  Tensors used{x.without_layout()};
  used.insert(used.end(), others.begin(), others.end());
  if (y.is_constant() && !communicates) return y;
  const auto result = y.is_constant() ? y : y.as_variable();
  Tape::record({.name = "recompute",
                .communicates = communicates,
                .keeps_inputs = 1,  // x; f itself holds the other tensors that it uses
                .keeps_outputs = 0,
                .inputs = used,
                .outputs = {result},
                // ybar J: f runs under a tape of its own; outer tapes record this tape's replay if they are recording.
                .vjp = [f, layout = x.layout(), arrived](const Replay& at, Inputs g) {
                  Tape inner;
                  Tensor again;
                  {
                    const Run repeated(*arrived, false);
                    const Tensor x = at.input(0).with_layout(layout);
                    at.give_up(0);  // the inner tape's replay frees it when it is no longer needed
                    // Only the inner tape reads its elements, if it keeps them: the storage is not needed.
                    again = f(x).without_layout().without_storage();
                  }
                  Tensors with_respect_to;
                  for (std::size_t i = 0; i < at.inputs(); ++i) with_respect_to.push_back(at.input(i));
                  // The replay gives up g, which is as large as f's result: the inner replay may use its memory.
                  Tensors given;
                  given.push_back(std::move(const_cast<Tensor&>(g[0])));
                  auto cotangents = inner.vjp({again}, std::move(given), with_respect_to);
                  for (auto& cotangent : cotangents) cotangent = cotangent.without_layout();
                  return cotangents;
                }});
  return result;
}

void drop_until_read(const Tensor& y) {
  if (y.storage()) y.storage()->drop();
}

Tensor join(const Tensor& a, const Tensor& b, int axis) {
  const ops::Concatenate op{checked_dimension("join", axis, a.rank())};
  auto y = mpigrad::apply(op, {a, b});
  remember(op, {a, b}, y);
  return y;
}

}  // namespace mpigrad
