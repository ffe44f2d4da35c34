// Lesson 7: the value I received and did not use.
//
//   build/examples/lessons/07_unused_message            four ranks, threads of one process
//   mpiexec -n 2 build/examples/lessons/07_unused_message
//
// Each rank squares its number and passes the square on around a ring: y_r = x_{r-1}^2. Only rank 0 uses the received value, and
// only rank 0 has a loss,
//
//   L = x_0 y_0 = x_0 x_{P-1}^2,      dL/dx_0 = x_{P-1}^2,      dL/dx_{P-1} = 2 x_0 x_{P-1},      0 for all others.
//
// Backwards rank r sends ybar_r to rank r - 1. Ranks 1 to P - 1 did not use y_r, so no path of their graphs leads from the
// receive to a loss, and a library that walks the graph never reaches it. It sends nothing, and rank 0, whose isend has an
// adjoint that receives from rank 1, waits for ever. Usually the user must prevent this: by dummy dependencies, by tokens that
// thread through every call, or by adding 0 * y to a loss. If one is forgotten, the program hangs, or takes another message for
// the missing one.
//
// Here the tape is a list, not a graph: every communication of the forward pass has its counterpart in the backward pass, on
// every rank, in reverse order, with zeros for missing cotangents. A rank without a loss calls gradient without one. The backward
// pass has no deadlock if the forward pass had none.

#include "examples/lessons/lesson.h"
using namespace lesson;

int main(int argc, char** argv) {
  return run_lesson(argc, argv, 4, [](Session& session) {
    const auto& comm = session.world();
    const int P = session.ranks(), rank = session.rank();
    const Tensor x = full({}, rank + 2, DType::float64);  // 2, 3, ...

    Tape watch, tape;
    Request outgoing = isend(square(x), comm, (rank + 1) % P);
    const Tensor y = recv(x.type(), comm, (rank + P - 1) % P);  // unused on most ranks
    wait(outgoing);
    Tensor loss;
    if (rank == 0) loss = x * y;
    const auto before = watch.entries().size();
    const double gradient = tape.gradient(loss, {x})[0].item();
    const auto backward = names(std::span(watch.entries()).subspan(before), true);

    const double x_0 = 2, x_last = P + 1;
    const double expected = (rank == 0 ? x_last * x_last : 0) + (rank == P - 1 ? 2 * x_0 * x_last : 0);
    say_in_turn(session, fmt::format("rank {}: x = {}, got y = {} and {}; gradient {} (by hand {}); backwards: {}\n", rank,
                                     x.item(), y.item(), loss ? "used it" : "left it", gradient, expected, backward));
    claim(session, gradient == expected, "all gradients are those found by hand");
    claim(session, backward == "irecv isend wait wait" || backward == "isend irecv wait wait",
          "every rank took its part in the backward pass");

    // A value used under a condition that differs between ranks is the same case: here odd ranks ignore the result of the
    // collective.
    Tape second;
    const Tensor mean = allreduce(x, comm, ReduceOp::avg);
    const Tensor share = rank % 2 == 0 ? x * mean : square(x);
    const double g = second.gradient(share, {x})[0].item();
    double evens = 0, average = 0;  // sum of the even ranks' x, and the mean
    for (int r = 0; r < P; ++r) evens += r % 2 == 0 ? r + 2 : 0, average += (r + 2.0) / P;
    const double by_hand = evens / P + (rank % 2 == 0 ? average : 2 * x.item());
    say_in_turn(session, fmt::format("rank {}: {} the mean; gradient {:.6f} (by hand {:.6f})\n", rank,
                                     rank % 2 == 0 ? "uses " : "skips", g, by_hand));
    claim(session, std::abs(g - by_hand) < 1e-13, "skipping the result of a collective is as harmless");
  });
}
