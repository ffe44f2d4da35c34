// Non-blocking collectives, started in one order and waited for in orders that differ between ranks, with blocking ones in
// between.

#include <array>
#include <thread>

#include "tests/comm/fuzz/adjoint_fuzz.h"

namespace mpigrad::testing {
namespace {

enum class Wait : std::uint8_t { one, any, poll };

// One step of a rank: how it waits, and for which calls, after it has started one.
struct Step {
  Wait how = Wait::one;
  std::vector<std::size_t> calls;
};

FuzzCase make_requests(FuzzContext& f) {
  constexpr CollectiveKind kinds[] = {CollectiveKind::allreduce, CollectiveKind::bcast,          CollectiveKind::reduce,
                                      CollectiveKind::allgather, CollectiveKind::reduce_scatter, CollectiveKind::alltoall,
                                      CollectiveKind::gather,    CollectiveKind::scatter};
  std::vector<CollectivePiece> pieces;
  std::vector<bool> blocking;
  FuzzCase c{.name = "non-blocking:", .shapes = std::vector<std::vector<Shape>>(f.ranks())};
  const auto n = static_cast<std::size_t>(f.dice(1, 4));
  for (std::size_t i = 0; i < n; ++i) {
    pieces.push_back(random_piece(f, kinds[f.below(8)]));
    blocking.push_back(f.one_in(6));
    c.name += fmt::format(" {}{};", pieces[i].name, blocking[i] ? " (blocking)" : "");
    c.exact = c.exact && pieces[i].exact;
    for (std::size_t r = 0; r < f.ranks(); ++r) c.shapes[r].push_back(pieces[i].shapes[r][0]);
  }
  // After each start, waits for some of the running calls; after the last, for all.
  std::vector<Step> mine;
  for (std::size_t r = 0; r < f.ranks(); ++r) {
    std::vector<Step> steps;
    std::vector<std::size_t> open;
    for (std::size_t i = 0; i < n; ++i) {
      if (!blocking[i]) open.push_back(i);
      f.shuffle(open);
      Step step{static_cast<Wait>(f.below(3)), {}};
      const auto waits = i + 1 == n ? open.size() : static_cast<std::size_t>(f.below(static_cast<int>(open.size()) + 1));
      // The order of completion is not known, so waiting for any call considers all of them.
      const auto taken = step.how == Wait::one ? waits : waits > 0 ? open.size() : 0;
      step.calls.assign(open.begin(), open.begin() + static_cast<std::ptrdiff_t>(taken));
      open.erase(open.begin(), open.begin() + static_cast<std::ptrdiff_t>(taken));
      steps.push_back(step);
    }
    if (r == f.me()) mine = steps;
  }
  c.run = [=](const Tensors& x) {
    Tensors y(n);
    std::vector<Request> requests(n);
    for (std::size_t i = 0; i < n; ++i) {
      if (blocking[i]) y[i] = pieces[i].run(x[i]);
      else requests[i] = pieces[i].start(x[i]);
      const auto& step = mine[i];
      if (step.how == Wait::one) {
        for (const auto k : step.calls) y[k] = wait(requests[k]);
      } else if (step.how == Wait::any && !step.calls.empty()) {
        for (auto done = waitany(requests); done.index >= 0; done = waitany(requests))
          y[static_cast<std::size_t>(done.index)] = done.value;
      } else if (!step.calls.empty()) {
        for (bool some = true; some; std::this_thread::yield()) {
          some = false;
          for (const auto k : step.calls) {
            if (!requests[k]) continue;
            if (auto value = test(requests[k])) y[k] = *value;
            else some = true;
          }
        }
      }
    }
    return y;
  };
  c.expected = [pieces](const All& x) {
    All y(x.size());
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      All one(x.size());
      for (std::size_t r = 0; r < x.size(); ++r) one[r] = {x[r][i]};
      const auto result = pieces[i].expected(one);
      for (std::size_t r = 0; r < x.size(); ++r) y[r].push_back(result[r][0]);
    }
    return y;
  };
  return c;
}

// Listed several times, because requests are error-prone.
constexpr std::array makers{FuzzMaker{"requests", make_requests}, FuzzMaker{"requests", make_requests},
                            FuzzMaker{"requests", make_requests}};

}  // namespace

std::span<const FuzzMaker> request_makers() { return makers; }

}  // namespace mpigrad::testing
