#pragma once
// Deliberate mistakes that MPI does not detect (counts, types, reductions, roots, calls that differ between ranks). With
// signature checks every one must end in the same Error on all ranks. Used on threads and under mpiexec; at least two ranks.

#include <functional>
#include <string>
#include <vector>

#include "comm/distributed/invariant.h"
#include "comm/messages/nonblocking.h"
#include "comm/messages/point_to_point.h"
#include "framework/optim/optimizer.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"

namespace mpigrad::testing {

struct Misuse {
  std::string name;
  std::string expected;  // part of the error's text
  std::function<void(const Communicator&)> run;
};

// Rank 1 deviates in all of them.
inline std::vector<Misuse> misuses() {
  const auto odd = [](const Communicator& comm) { return comm.rank() == 1; };
  const auto vector = [](std::int64_t n, DType type = DType::float64) { return ones({n}, type); };
  return {
      {"count", "rank 1: allreduce of 5 float64, sum", [=](const auto& c) { allreduce(vector(odd(c) ? 5 : 4), c); }},
      {"allgather", "rank 1: allgather of 7 float64, counts #",
       [=](const auto& c) {
         Rows rows(static_cast<std::size_t>(c.size()), 1);
         if (odd(c)) rows[0] = 7 - c.size() + 1;
         allgather(vector(rows[static_cast<std::size_t>(c.rank())]), c, rows);
       }},
      {"type", "rank 1: allreduce of 8 float32, sum",
       [=](const auto& c) { allreduce(odd(c) ? vector(8, DType::float32) : vector(4), c); }},
      {"reduction", "rank 1: allreduce of 4 float64, max",
       [=](const auto& c) { allreduce(vector(4), c, odd(c) ? ReduceOp::max : ReduceOp::sum); }},
      {"root", "rank 1: bcast of 4 float64, root 1", [=](const auto& c) { bcast(vector(4), c, odd(c) ? 1 : 0); }},
      {"call", "rank 1: bcast of 4 float64, root 0",
       [=](const auto& c) { odd(c) ? bcast(vector(4), c) : allreduce(vector(4), c); }},
      {"order", "rank 1: reduce of 4 float64, sum, root 0",
       [=](const auto& c) {
         odd(c) ? reduce(vector(4), c) : allreduce(vector(4), c);
         odd(c) ? allreduce(vector(4), c) : reduce(vector(4), c);
       }},
      {"left_out", "rank 1: reduce of 4 float64, sum, root 0",
       [=](const auto& c) {
         if (!odd(c)) allreduce(vector(4), c);
         reduce(vector(4), c);
       }},
      {"alltoall", "in alltoall rank 1 sends 2 elements to rank 0, which expects 1",
       [=](const auto& c) {
         Rows send(static_cast<std::size_t>(c.size()), 1);
         const Rows receive = send;
         if (odd(c)) send[0] = 2;
         alltoall(vector(c.size() + (odd(c) ? 1 : 0)), c, send, receive);
       }},
      {"iallreduce", "rank 1: iallreduce of 4 float64, max",
       [=](const auto& c) { wait(iallreduce(vector(4), c, odd(c) ? ReduceOp::max : ReduceOp::sum)); }},
      {"blocking", "rank 1: iallreduce of 4 float64, sum",
       [=](const auto& c) { odd(c) ? wait(iallreduce(vector(4), c)) : allreduce(vector(4), c); }},
      {"tape", "rank 1: allreduce of 4 float64, sum, not recorded (no tape, or a constant)",
       [=](const auto& c) {
         Tape tape;
         allreduce(odd(c) ? constant(vector(4)) : vector(4), c);
       }},
      {"split", "rank 1: duplicate", [=](const auto& c) { odd(c) ? c.transport().duplicate() : c.transport().split(0, 0); }},
      {"replicate", "the input of replicate must be the same on all",
       [=](const auto& c) { replicate(vector(4) * (odd(c) ? 1.0000001 : 1), c); }},
      {"cotangent", "the cotangent of allreduce_invariant must be the same on all",
       [=](const auto& c) {
         const auto x = vector(4);
         Tape tape;
         const auto loss = mpigrad::allreduce_invariant(x, c);
         tape.vjp({loss}, {vector(4) * (c.rank() + 1)}, {x});
       }},
      {"weights", "after step 1 of the optimizer: own is not the same on all",
       [=](const auto& c) {
         Parameters parameters;
         for (const char* name : {"shared", "own"}) parameters.add(name, vector(4), true);
         parameters.pack();
         SGD sgd(parameters);
         const auto x = vector(4) * (c.rank() + 1);
         Tape tape(parameters);
         sgd.step(tape.gradient(sum(replicate(parameters[0].value, c) * x + parameters[1].value * x)));
       }},
  };
}

}  // namespace mpigrad::testing
