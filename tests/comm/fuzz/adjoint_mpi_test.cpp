// Adjoints under `mpiexec -n P mpi_adjoint`: random cases of every communication operation, a distributed network against one
// rank. Rank 0 prints one line per check; a failure ends all ranks with a non-zero exit code. Few calls, because there may be
// more ranks than cores. MPIGRAD_FUZZ_SEED=N runs only random case N.

#include <cstdio>
#include <functional>
#include <utility>

#include "comm/distributed/distributed.h"
#include "comm/distributed/invariant.h"
#include "comm/launch.h"
#include "framework/engine/parameter.h"
#include "ops/elementwise/elementwise.h"
#include "ops/loss/loss.h"
#include "ops/reduce/reduce.h"
#include "tests/comm/fuzz/adjoint_fuzz.h"
#include "tests/models/losses/contrastive_cases.h"
#include "tests/models/networks/encoder_cases.h"
#include "tests/models/nn/layer_cases.h"
#include "tests/support/all_tests.h"
#include "tests/support/distributed.h"
#include "tests/support/progress.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

// Every operation twice.
void check_random_cases(const Communicator& comm) {
  if (const auto asked = asked_fuzz_seed(); asked >= 0) return run_fuzz_case(comm, static_cast<std::uint64_t>(asked));
  const auto cases = (all_tests() ? 30 : 2) * all_makers().size();
  for (std::uint64_t i = 0; i < cases; ++i) {
    if (i % 100 == 0 && comm.rank() == 0) note_progress(fmt::format("random operations, from case {}", i));
    run_fuzz_case(comm, 7 * (i + cases * static_cast<std::uint64_t>(comm.size())));
  }
}

void check_one_loss(const Communicator& comm) {
  const auto x = global_tensor({3}, static_cast<std::uint64_t>(comm.rank()));
  Tape tape;
  const auto all = allgather(x, comm);
  Tensor loss;
  if (comm.rank() == comm.size() - 1) loss = sum(square(all));
  require_close("the loss of one rank", tape.gradient(loss, {x})[0], x * 2, 1e-13);
}

// Hessian-vector product of a sum over ranks: the adjoint of replicate is not a plain allreduce.
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
    auto y = conv(x, parameters[0].value, parameters[1].value, {.padding = 2, .activation = Activation::leaky_relu(0.2)});
    y = batch_norm(y, parameters[2].value, parameters[1].value, {.epsilon = 1e-2}).y;
    y = max_pool(y, {.kernel = 2, .stride = 2});
    return tape.gradient(mse(linear(global_avg_pool(y), parameters[3].value), t));
  };
  const auto expected = run(global_tensor(layout->global, 50), global_tensor({2, 4}, 51));
  const auto found = run(global_tensor(layout->global, 50, layout), global_tensor({2, 4}, 51, replicated_layout(grid, {2, 4})));
  for (std::size_t i = 0; i < found.size(); ++i) require_close("gradient of " + parameters[i].name, found[i], expected[i]);

  const auto to = split_layout(grid, layout->global, {-1, 2, -1, 1});
  require_adjoint(
      "redistribute", [&](const Tensors& in) { return Tensors{redistribute(in[0], to)}; },
      {global_tensor(layout->global, 52, layout)}, comm);
}

void check_contrastive(const Communicator& comm) {
  using namespace mpigrad::testing::contrastive;
  const auto alone = comm.split(comm.rank(), 0);
  for (const auto& loss : cases()) {
    const auto expected = gradient_of(loss, part_of(alone, balanced(1)), DType::float64);
    for (const auto& rows : {balanced(comm.size()), lopsided(comm.size())}) {
      const auto part = part_of(comm, rows);
      const auto difference = relative_difference(gradient_of(loss, part, DType::float64), expected, part);
      require(difference < 1e-11, "[test] {}: the gradient is {:.1e} off", loss.name, difference);
    }
  }
}

// An encoder split over space, followed by a loss over samples.
void check_encoders(const Communicator& comm) {
  const auto alone = make_grid(comm.split(comm.rank(), 0), {});
  const int p = comm.size();
  const auto grid = make_grid(comm, p % 2 == 0 ? GridExtents{.sample = p / 2, .height = 2} : GridExtents{.sample = p});
  for (const auto& encoder : encoder_cases()) {
    if (encoder.name != "clip" && encoder.name != "resnet, views joined") continue;
    const auto errors = compare(run_encoder(encoder, grid, DType::float64), run_encoder(encoder, alone, DType::float64));
    require(errors.gradient < 1e-11, "[test] {}: the gradient is {:.1e} off", encoder.name, errors.gradient);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return launch(argc, argv, [&](std::shared_ptr<Transport> world) {
    const Communicator comm(world);
    const std::pair<const char*, std::function<void(const Communicator&)>> checks[] = {
        {"random cases of every operation", check_random_cases},
        {"the loss of one rank only", check_one_loss},
        {"second derivatives through replicate", check_second_order},
        {"adjoint and second order of every distributed layer", [](const Communicator& c) { check_layer_adjoints(c, 1); }},
        {"contrastive losses against one rank", check_contrastive},
        {"encoders under contrastive losses against one rank", check_encoders},
        {"a distributed network against one rank, redistribution", check_network},
    };
    for (const auto& [what, check] : checks) {
      check(comm);
      if (comm.rank() == 0) std::printf("ok: %s, %d ranks\n", what, comm.size()), std::fflush(stdout);
    }
    return 0;
  });
}
