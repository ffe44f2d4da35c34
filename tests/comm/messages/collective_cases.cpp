// Running non-blocking collectives, waited for in any order.

#include "tests/comm/messages/message_cases.h"

#include <vector>

#include "comm/check/adjoint_check.h"
#include "comm/distributed/invariant.h"
#include "comm/messages/nonblocking.h"
#include "framework/engine/parameter.h"
#include "ops/elementwise/elementwise.h"
#include "ops/recompute.h"
#include "ops/reduce/reduce.h"
#include "tests/comm/messages/rank_orders.h"

namespace mpigrad::testing {

void check_collective_orders(const Communicator& comm, std::uint64_t seed) {
  const auto p = static_cast<std::size_t>(comm.size());
  const int root = comm.size() - 1;
  const Rows each(p, 2);
  const auto total = static_cast<std::int64_t>(2 * p);
  // y_i of every call, either blocking (in program order) or not.
  const auto run = [&](const Tensors& in, bool blocking, const Tensor& w) {
    auto dice = dice_of_rank(comm, seed);
    Tensors y(7);
    if (blocking) {
      y = {allreduce(in[0], comm),     bcast(in[0], comm, root),          allgather(in[0], comm, each),
           allreduce(in[0] * 3, comm), reduce_scatter(in[1], comm, each), alltoall(in[1], comm, each, each),
           reduce(in[1], comm)};
    } else {
      std::vector<Request> requests;
      requests.push_back(iallreduce(in[0], comm));
      requests.push_back(ibcast(in[0], comm, root));
      requests.push_back(iallgather(in[0], comm, each));
      const auto order = shuffled(3, dice);
      y[order[0]] = wait(requests[order[0]]);
      y[3] = allreduce(in[0] * 3, comm);
      for (int i = 0; i < 1; ++i) requests.emplace_back();
      requests.push_back(ireduce_scatter(in[1], comm, each));
      requests.push_back(ialltoall(in[1], comm, each, each));
      requests.push_back(ireduce(in[1], comm));
      for (const auto i : shuffled(requests.size(), dice))
        if (requests[i]) y[i] = wait(requests[i]);
    }
    if (w) {
      const auto r = replicate(w, comm);
      for (auto& value : y) value = value * sum(r);
    }
    return y;
  };
  const Tensors in{own(comm, {2, 3}, seed), own(comm, {total, 3}, seed + 1)};
  const auto plain = run(in, true, {}), found = run(in, false, {});
  for (std::size_t i = 0; i < plain.size(); ++i) require_close("a non-blocking collective", found[i], plain[i]);
  require_adjoint(
      "non-blocking collectives waited for in any order", [&](const Tensors& x) { return run(x, false, {}); }, in, comm);

  Parameters parameters;
  parameters.add("w", global_tensor({3}, 1), true);
  parameters.add("v", global_tensor({2, 2}, 2), true);
  parameters.pack();
  const auto gradient = [&](bool blocking) {
    Tape tape(parameters);
    auto loss = sum(square(replicate(parameters[1].value, comm)));
    for (const auto& y : run(in, blocking, parameters[0].value)) loss = loss + sum(square(y)) * (1 + comm.rank());
    return tape.gradient(loss);
  };
  const auto expected = gradient(true), parallel = gradient(false);
  for (std::size_t i = 0; i < expected.size(); ++i)
    require_close("gradient of " + parameters[i].name, parallel[i], expected[i], 1e-11);

  require_adjoint("maxima and products",
                  [&](const Tensors& x) {
                    std::vector<Request> requests;
                    requests.push_back(iallreduce(x[0], comm, ReduceOp::max));
                    requests.push_back(iallreduce(x[0], comm, ReduceOp::prod));
                    requests.push_back(iallreduce(x[0], comm, ReduceOp::avg));
                    auto dice = dice_of_rank(comm, seed);
                    Tensors y(3);
                    for (const auto i : shuffled(3, dice)) y[i] = wait(requests[i]);
                    return y;
                  },
                  {in[0]}, comm, {.linear = false});
}

void check_around_recompute(const Communicator& comm) {
  const auto x = own(comm, {3}, 1), z = own(comm, {2}, 2);
  require_adjoint(
      "a collective under way around recompute",
      [&](const Tensors& in) {
        auto request = iallreduce(in[0], comm);
        Tensor a;
        if (comm.rank() % 2 == 1) a = wait(request);
        const auto b = recompute([comm](const Tensor& v) { return wait(iallreduce(v, comm)) * 2; }, in[1]);
        if (request) a = wait(request);
        return Tensors{a, b};
      },
      {x, z}, comm);
}

}  // namespace mpigrad::testing
