#include "ops/recompute.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

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

Tensor recompute(const std::function<Tensor(const Tensor&)>& f, const Tensor& x) {
  const Inside scope;
  if (!Tape::recording()) return f(x);

  // First run under a tape that keeps only identities, to find out which tensors besides x f uses and whether it communicates.
  Tensor y;
  Tensors used{x.without_layout()};
  bool communicates = false;
  const auto arrived = std::make_shared<Arrived>();
  {
    Untaped outside;
    Tape trace;
    trace.keep_nothing();
    const Run first(*arrived, true);
    y = f(x);
    std::unordered_set<std::uint64_t> known{x.id()};
    for (const auto& entry : trace.entries()) {
      communicates = communicates || entry.communicates;
      for (const auto& in : entry.inputs)
        if (in && !in.is_constant() && is_floating(in.dtype()) && known.insert(in.id()).second) used.push_back(in);
      for (const auto& out : entry.outputs) known.insert(out.id());
    }
    // f may return a tensor that it did not compute.
    if (!y.is_constant() && known.insert(y.id()).second) used.push_back(y);
  }
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
