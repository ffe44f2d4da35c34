// Time loops with snapshots: bits of the plain loop, evaluations and memory as the theory says, ranks, higher orders, misuse.

#include "models/simulation/steps.h"

#include <memory>
#include <vector>

#include "comm/check/taylor_test.h"
#include "comm/distributed/distributed.h"
#include "comm/distributed/invariant.h"
#include "comm/halos/periodic.h"
#include "comm/messages/point_to_point.h"
#include "models/nn/layers.h"
#include "ops/array/derivatives.h"
#include "ops/elementwise/elementwise.h"
#include "ops/recompute.h"
#include "ops/reduce/reduce.h"
#include "tests/support/distributed.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

// The plain loop.
Tensors loop(const StepFunction& f, Tensors state, std::int64_t n) {
  for (std::int64_t step = 0; step < n; ++step) state = f(state, step);
  return state;
}

bool same_bits(const Tensors& a, const Tensors& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i].type() != b[i].type() || a[i].to_vector() != b[i].to_vector()) return false;
  return true;
}

// A leapfrog of three tensors: positions move through the state, m is part of it and never changes, p is used twice in a step and
// after the loop, one parameter is used in odd steps only, and noise depends on the step.
struct Leapfrog {
  Tensor p, odd;
  Tensors operator()(const Tensors& state, std::int64_t step) const {
    const auto &before = state[0], &now = state[1], &m = state[2];
    const auto noise =
        constant(random_normal(now.shape(), Philox{.key = 3}.child(static_cast<std::uint64_t>(step)), 0, 0.1, now.dtype()));
    auto next = 2 * now - before - 0.01 * (m * sin(now) * p + p * p * now) + noise;
    if (step % 2 == 1) next = next * odd;
    return {now, next, m};
  }
};

Tensors gradients_of(const Leapfrog& f, const Tensors& start, std::int64_t n, std::int64_t snapshots) {
  Tape tape;
  const auto after = snapshots < 0 ? loop(f, start, n) : time_steps(f, start, n, {.snapshots = snapshots});
  const auto loss = sum(square(after[1])) + dot(after[0], f.p) + sum(after[2] * f.p);
  auto all = tape.gradient(loss, {start[0], start[1], start[2], f.p, f.odd});
  all.push_back(loss);
  return all;
}

}  // namespace

TEST_CASE("steps: values and gradients have the bits of the plain loop, with any number of snapshots") {
  const auto x = [](std::uint64_t seed) { return global_tensor({7}, seed); };
  const Leapfrog f{x(1), 1 + 0.1 * x(2)};
  const Tensors start{x(3), x(4), x(5)};
  for (const std::int64_t n : {0, 1, 2, 3, 10, 17}) {
    const auto plain = gradients_of(f, start, n, -1);
    for (const std::int64_t s : {0, 1, 2, 3, 5, 17, 40}) {
      CAPTURE(n);
      CAPTURE(s);
      CHECK(same_bits(gradients_of(f, start, n, s), plain));
    }
  }
  CHECK(same_bits(time_steps(StepFunction(f), start, 9), loop(f, start, 9)));  // without a tape
}

TEST_CASE("steps: evaluations and states in memory are those of the theory") {
  for (const std::int64_t n : {1, 2, 3, 5, 10, 24, 57})
    for (const std::int64_t s : {1, 2, 3, 4, 8, 57}) {
      std::int64_t calls = 0, most = 0;
      std::vector<std::weak_ptr<Storage>> states;
      const auto f = [&](const Tensor& x) {
        ++calls;
        const auto y = sin(x);
        states.push_back(y.storage());
        std::int64_t alive = 0;
        for (const auto& state : states) alive += state.expired() ? 0 : 1;
        most = std::max(most, alive);
        return y;
      };
      const auto x = global_tensor({3}, 1);
      Tape tape;
      const auto loss = sum(time_steps(f, x, n, {.snapshots = s}));
      tape.gradient(loss, {x});
      CAPTURE(n);
      CAPTURE(s);
      CHECK(calls == n + step_evaluations(n, s));
      // The result of the loop, and while a step runs its state and its result, which are no snapshots.
      CHECK(most <= std::min(s, n) + 3);
    }
  // By brute force over all places of the first snapshot.
  std::vector<std::vector<std::int64_t>> best(9, std::vector<std::int64_t>(61, 0));
  for (std::int64_t s = 1; s <= 8; ++s)
    for (std::int64_t n = 2; n <= 60; ++n) {
      auto& least = best[static_cast<std::size_t>(s)][static_cast<std::size_t>(n)];
      least = n * (n - 1) / 2;
      for (std::int64_t m = 1; s > 1 && m < n; ++m)
        least = std::min(least, m + best[static_cast<std::size_t>(s - 1)][static_cast<std::size_t>(n - m)] +
                                    best[static_cast<std::size_t>(s)][static_cast<std::size_t>(m)]);
      CHECK(step_evaluations(n, s) == least);
    }
  CHECK(step_evaluations(1000000, 20) > 1000000);
}

TEST_CASE("steps: derivatives of second and third order are those of the plain loop") {
  const auto x = global_tensor({5}, 1), p = global_tensor({5}, 2), v = global_tensor({5}, 3);
  const auto third = [&](bool plain) {
    const auto f = [&](const Tensor& at) {
      const auto step = [at](const Tensors& u, std::int64_t) { return Tensors{u[0] + 0.2 * tanh(u[0] * at) * at}; };
      return sum(square(plain ? loop(step, {x}, 6)[0] : time_steps(step, {x}, 6, {.snapshots = 2})[0]));
    };
    const auto first = grad(f)(p);
    const auto second = hvp(f, p, v);
    return Tensors{first, second, hvp([&](const Tensor& at) { return dot(grad(f)(at), v); }, p, v),
                   jvp([&](const Tensor& at) { return f(at); }, p, v)};
  };
  const auto ours = third(false), plain = third(true);
  CHECK(same_bits({ours[0]}, {plain[0]}));
  for (std::size_t i = 1; i < ours.size(); ++i) require_close("order", ours[i], plain[i], 1e-13);
  CHECK(largest_difference(plain[2], zeros_like(plain[2])) > 1e-3);
}

TEST_CASE("steps: on ranks a replicated parameter is reduced once, with the bits of the plain loop") {
  for (const int size : {1, 2, 3, 4})
    check_on_ranks(size, "steps", [](const Communicator& comm) {
      const auto grid = make_grid(comm, {.depth = comm.size()});
      Dice dice(7);
      const auto layout = with_random_cuts(activation_layout(grid, {1, 9, 2, 3, 1}), dice);
      const auto u = global_tensor({1, 9, 2, 3, 1}, 1, layout), w = global_tensor({1, 3, 3, 3, 1}, 2);
      const auto f = [w](const Tensors& state, std::int64_t step) {
        const auto moved = roll(state[0], step + 1, 1);
        return Tensors{state[0] + 0.1 * tanh(conv(moved, w, {.padding = 1}))};
      };
      const auto all = [&](int snapshots) {
        Tape tape;
        const auto v = snapshots < 0 ? loop(f, {u}, 7) : time_steps(f, {u}, 7, {.snapshots = snapshots});
        return tape.gradient(sum(square(v[0])), {u, w});
      };
      const auto plain = all(-1);
      for (const int s : {1, 2, 4, 0}) require(same_bits(all(s), plain), "[test] {} snapshots: other gradients", s);
      // One reduction of the parameter: the entry of its replication is outside the loop's.
      Tape tape;
      time_steps(f, {u}, 7, {.snapshots = 2});
      int replications = 0, loops = 0;
      for (const auto& entry : tape.entries()) {
        if (entry.name == "replicate") ++replications;
        if (entry.name == "steps") ++loops;
      }
      require(replications == (comm.size() > 1 ? 1 : 0) && loops == 1, "[test] {} replications, {} loops", replications, loops);
    });
}

TEST_CASE("steps: a network in the loop has the gradients of the plain loop") {
  struct Network : nn::Module {
    Tensor operator()(const Tensor& x) override { return x + tanh(conv(x)); }
    nn::Conv3d conv{*this, "conv", {.out = 2, .kernel = 3, .padding = 1}};
  };
  for (const int size : {1, 2, 3})
    check_on_ranks(size, "network", [](const Communicator& comm) {
      const auto layout = activation_layout(make_grid(comm, {.depth = comm.size()}), {1, 5, 3, 3, 2});
      const auto u = constant(global_tensor(layout->global, 1, layout));
      Network net;
      net.build(layout, {.seed = 2, .dtype = DType::float64});
      const auto all = [&](bool plain) {
        Tape tape(net);
        const auto f = [&net](const Tensors& state, std::int64_t) { return Tensors{net(state[0])}; };
        const auto after = plain ? loop(f, {u}, 5) : time_steps(f, {u}, 5, {.snapshots = 2});
        const auto gradients = tape.gradient(sum(square(after[0])));
        Tensors result;
        for (std::size_t i = 0; i < gradients.size(); ++i) result.push_back(gradients[i]);
        return result;
      };
      const auto ours = all(false);
      require(ours.size() == 2 && same_bits(ours, all(true)), "[test] other gradients of the network");
    });
}

TEST_CASE("steps: adjoint check and Taylor test with messages and collectives") {
  for (const int size : {1, 2, 4})
    check_on_ranks(size, "steps", [](const Communicator& comm) {
      const Tensors x{random_like({zeros({4}, DType::float64)}, 5 + static_cast<std::uint64_t>(comm.rank()))[0]};
      const auto f = [&](const Tensors& in) {
        return Tensors{time_steps(
            [&](const Tensor& u, std::int64_t step) {
              return u + 0.1 * sin(shift(u, comm) * u + static_cast<double>(step)) + 0.05 * allreduce(u, comm);
            },
            in[0], 5, {.snapshots = 2})};
      };
      require_adjoint("steps", f, x, comm);
      require_taylor("steps", f, x, comm);
    });
}

TEST_CASE("steps: loops with results, in recompute() and in loops") {
  const auto x = global_tensor({4}, 1), p = global_tensor({4}, 2);
  const StepFunction f = [p](const Tensors& u, std::int64_t step) {
    const auto next = tanh(u[0] * p) + 0.1 * static_cast<double>(step);
    return Tensors{next, sum(next * p), next};
  };
  const auto gradients = [&](bool plain, int snapshots) {
    Tape tape;
    Tensor state = x, loss = zeros({}, DType::float64);
    if (plain) {
      for (int step = 0; step < 6; ++step) {
        const auto made = f({state}, step);
        state = made[0], loss = loss + square(made[1]) * (step + 1) + sum(made[2]);
      }
    } else {
      const auto [after, results] = steps_with_results(f, {x}, 6, {.snapshots = snapshots});
      state = after[0];
      for (std::size_t step = 0; step < 6; ++step)
        loss = loss + square(results[step][0]) * static_cast<double>(step + 1) + sum(results[step][1]);
    }
    return tape.gradient(loss + sum(square(state)), {x, p});
  };
  const auto plain = gradients(true, 0);
  for (const int s : {1, 2, 3, 0})
    for (std::size_t i = 0; i < 2; ++i) require_close("results", gradients(false, s)[i], plain[i], 1e-14);

  const auto nested = [&](int kind) {
    Tape tape;
    const auto inner = [p](const Tensor& u) { return u + 0.1 * sin(u * p); };
    const auto outer = [&](const Tensor& u) {
      return kind == 0 ? inner(inner(inner(u))) : time_steps(inner, u, 3, {.snapshots = 2});
    };
    const auto all = [&](const Tensor& u) {
      return kind == 0 ? outer(outer(outer(outer(u)))) : time_steps(outer, u, 4, {.snapshots = 2});
    };
    return tape.gradient(sum(kind == 2 ? recompute(all, x) : all(x)), {x, p});
  };
  for (const int kind : {1, 2})
    for (std::size_t i = 0; i < 2; ++i) require_close("nested", nested(kind)[i], nested(0)[i], 1e-14);
}

TEST_CASE("steps: misuse is refused by name") {
  const auto x = ones({2});
  const auto text = [&](const StepFunction& f, std::int64_t n, std::int64_t s) {
    return error_text([&] { time_steps(f, {x}, n, {.snapshots = s}); });
  };
  const StepFunction same = [](const Tensors& state, std::int64_t) { return state; };
  CHECK(text(same, -1, 0) == "[steps] -1 steps with 0 snapshots: neither is negative");
  CHECK(text(same, 1, -2) == "[steps] 1 steps with -2 snapshots: neither is negative");
  CHECK(has(text([](const Tensors&, std::int64_t) { return Tensors{}; }, 2, 0),
            "[steps] step 0 returns 0 tensors for a state of 1"));
  CHECK(
      has(text([](const Tensors&, std::int64_t) { return Tensors{ones({3})}; }, 2, 0), "[steps] a step keeps types and layouts"));
  CHECK(has(text([](const Tensors& s, std::int64_t) { return Tensors{s[0], s[0]}; }, 2, 0), "steps_with_results() takes more"));
  CHECK(has(error_text([] { step_evaluations(0, 1); }), "both are positive"));
}
