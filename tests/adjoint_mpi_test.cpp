// Adjoints under `mpiexec -n P mpi_adjoint`: every communication op, boxes, a distributed network against one rank. Rank 0 prints
// one line per check; a failure ends all ranks with a non-zero exit code. Few calls, because ranks may be more than cores.

#include <cstdio>
#include <functional>
#include <utility>

#include "comm/distributed.h"
#include "comm/invariant.h"
#include "comm/launch.h"
#include "framework/parameter.h"
#include "ops/elementwise.h"
#include "ops/loss.h"
#include "ops/reduce.h"
#include "tests/support/collective_cases.h"
#include "tests/support/distributed.h"
#include "tests/support/layer_cases.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

void check_every_op(const Communicator& comm) { check_collectives(comm, 1, DType::float64, true); }
void check_sub_communicator(const Communicator& comm) {
  // Odd and even ranks in reverse order; at three ranks one group is a single rank.
  check_collectives(comm.split(comm.rank() % 2, -comm.rank()), 2, DType::float32, true);
}

void check_one_loss(const Communicator& comm) {
  const auto x = global_tensor({3}, static_cast<std::uint64_t>(comm.rank()));
  Tape tape;
  const auto all = allgather(x, comm);
  Tensor loss;
  if (comm.rank() == comm.size() - 1) loss = sum(square(all));
  require_close("the loss of one rank", tape.gradient(loss, {x})[0], x * 2, 1e-13);
}

// Hessian-vector product of a sum over ranks: replicate's adjoint is no plain allreduce.
void check_second_order(const Communicator& comm) {
  const auto w = global_tensor({4}, 100), v = global_tensor({4}, 101);
  Tensor expected = zeros_like(w);
  for (int r = 0; r < comm.size(); ++r) {
    const auto x = global_tensor({4}, static_cast<std::uint64_t>(r));
    expected = expected + square(x) * exp(w * x) * v;
  }
  Tape tape;
  const auto g =
      tape.gradient(sum(exp(replicate(w, comm) * global_tensor({4}, static_cast<std::uint64_t>(comm.rank())))), {w}, Record::yes);
  require_close("Hessian-vector product", tape.gradient(dot(g[0], v), {w})[0], expected);
}

// Parameters by non-blocking reductions, halos by non-blocking messages, uneven cuts, a rank that may be empty.
void check_network(const Communicator& comm) {
  const int p = comm.size();
  const auto grid = make_grid(comm, p == 4 ? GridExtents{.depth = 2, .width = 2} : GridExtents{.depth = p});
  auto layout = activation_layout(grid, {2, 9, 5, 6, 2});
  if (p > 1) {
    auto cuts = balanced_cuts(9, grid->extents[1]);
    for (std::size_t i = 1; i + 1 < cuts.size(); ++i) cuts[i] = i == 1 ? 1 : 2;
    layout = with_cuts(layout, 1, cuts);
  }
  Parameters parameters;
  for (const auto& [name, shape] :
       {std::pair{"w", Shape{3, 3, 5, 3, 2}}, {"b", Shape{3}}, {"gamma", Shape{3}}, {"v", Shape{4, 3}}})
    parameters.add(name, global_tensor(shape, parameters.size()), true);
  parameters.pack();
  const auto run = [&](const Tensor& x, const Tensor& t) {
    Tape tape(parameters);
    auto y = distributed::conv(x, parameters[0].value, parameters[1].value, 0.2, {.padding_low = 2, .padding_high = 2});
    y = distributed::batch_norm(y, parameters[2].value, parameters[1].value, 1e-2).y;
    y = distributed::max_pool(y, {.kernel = 2, .stride = 2});
    return tape.gradient(mse(distributed::linear(distributed::global_avg_pool(y), parameters[3].value), t));
  };
  const auto expected = run(global_tensor(layout->global, 50), global_tensor({2, 4}, 51));
  const auto found = run(global_tensor(layout->global, 50, layout), global_tensor({2, 4}, 51, same_layout(grid, {2, 4})));
  for (std::size_t i = 0; i < found.size(); ++i) require_close("gradient of " + parameters[i].name, found[i], expected[i]);

  const auto to = split_layout(grid, layout->global, {-1, 2, -1, 1});
  require_adjoint(
      "redistribute", [&](const Tensors& in) { return Tensors{redistribute(in[0], to)}; },
      {global_tensor(layout->global, 52, layout)}, comm);
}

}  // namespace

int main(int argc, char** argv) {
  return launch(argc, argv, [&](std::shared_ptr<Transport> world) {
    const Communicator comm(world);
    const std::pair<const char*, std::function<void(const Communicator&)>> checks[] = {
        {"values, adjoint and second order of every operation", check_every_op},
        {"the same on sub-communicators", check_sub_communicator},
        {"the loss of one rank only", check_one_loss},
        {"second derivatives through replicate", check_second_order},
        {"adjoint and second order of every distributed layer", [](const Communicator& c) { check_layer_adjoints(c, 1); }},
        {"a distributed network against one rank, redistribution", check_network},
    };
    for (const auto& [what, check] : checks) {
      check(comm);
      if (comm.rank() == 0) std::printf("ok: %s, %d ranks\n", what, comm.size()), std::fflush(stdout);
    }
    return 0;
  });
}
