// Lesson 14: the backward pipeline is the adjoint of the forward one.
//
//   build/examples/lessons/14_pipeline              four ranks, threads of one process
//   mpiexec -n 2 build/examples/lessons/14_pipeline
//
// A network of P layers, y = tanh(w x), one on each rank: rank s receives x from rank s - 1 and sends y to rank s + 1. One batch
// keeps one rank busy at a time. So the batch is cut into M micro-batches, and rank s computes micro-batch m while rank s + 1
// computes micro-batch m - 1:
//
//   rank 0   F0 F1 F2 F3                         F: forward, B: backward; time runs to the right
//   rank 1      F0 F1 F2 F3                      with M micro-batches a rank idles in P - 1 of M + P - 1 slots: the bubble
//   rank 2         F0 F1 F2 F3
//
// The backward pipeline is not written by hand. Each message has its adjoint, a message from the receiver to the sender, and the
// tape replays the list of each rank from its end: B3 B2 B1 B0, first on the last rank. That is the forward table, read backwards
// in time: with the arrows reversed, because the matrix of a schedule of messages is a product, and its transpose is the product
// of the transposes in reverse order (fill-drain, Huang et al. 2019).
//
// All M activations are kept until the drain begins. A tape for each micro-batch can be replayed as soon as its cotangent exists:
// rank s then keeps at most P - s of them (one forward, one backward; Narayanan et al. 2021). The sum of the gradients is the
// same. nn::Pipeline does this for whole networks.

#include <deque>

#include "examples/lessons/lesson.h"
using namespace lesson;

namespace {

constexpr int micro_batches = 4;

// The identity, which notes when it runs and when its derivative is computed.
struct Note {
  std::string* log = nullptr;
  int m = 0;
  static constexpr OpTraits traits() { return {.name = "note"}; }
  Types infer(Inputs in) const { return {in[0].type()}; }
  Tensor view(Inputs in) const {
    *log += fmt::format("F{} ", m);
    return in[0].as_variable();
  }
  Tensors vjp(const Replay&, Inputs g) const {
    *log += fmt::format("B{} ", m);
    return {g[0] * 1};
  }
};

// This rank's part of a forward pass; on the last rank its share of the loss.
Tensor forward(const Communicator& comm, const Tensor& w, const Tensor& batch, int m, std::string& log,
               std::vector<Request>& sent) {
  const int rank = comm.rank(), P = comm.size();
  const Tensor x = rank == 0 ? batch.as_variable() : recv(batch.type(), comm, rank - 1);
  const Tensor y = apply(Note{&log, m}, {tanh(w * x)});
  if (rank + 1 < P) sent.push_back(isend(y, comm, rank + 1));
  return rank + 1 < P ? Tensor() : sum(square(y));
}

}  // namespace

int main(int argc, char** argv) {
  return run_lesson(argc, argv, 4, [](Session& session) {
    const auto& comm = session.world();
    const int P = session.ranks(), rank = session.rank();
    const auto weight = [](int s) { return full({}, 0.5 + 0.25 * s, DType::float64); };
    const auto batch = [](int m) { return random_normal({3}, {.key = static_cast<std::uint64_t>(m)}, 0, 1, DType::float64); };
    const Tensor w = weight(rank);

    // Fill and drain: one tape.
    std::string log;
    Tensor drained;
    {
      Tape tape;
      Tensor loss;
      std::vector<Request> sent;
      for (int m = 0; m < micro_batches; ++m)
        if (const auto share = forward(comm, w, batch(m), m, log, sent)) loss = loss ? loss + share : share;
      waitall(sent);
      drained = tape.gradient(loss, {w})[0];
    }
    std::string expected, backwards;
    for (int m = 0; m < micro_batches; ++m) expected += fmt::format("F{} ", m), backwards.insert(0, fmt::format("B{} ", m));
    say_in_turn(session, fmt::format("rank {}: {}\n", rank, log));
    claim(session, log == expected + backwards, "every rank's backward pass is its forward pass from the end to the beginning");

    // One forward, one backward: a tape for each micro-batch.
    log.clear();
    std::deque<std::pair<std::unique_ptr<Tape>, Tensor>> open;
    Tensor alternating = zeros({}, DType::float64);
    std::size_t most = 0;
    const auto run_forward = [&](int m) {
      auto tape = std::make_unique<Tape>();
      std::vector<Request> sent;
      const auto share = forward(comm, w, batch(m), m, log, sent);
      waitall(sent);
      tape->stop();
      open.emplace_back(std::move(tape), share);
      most = std::max(most, open.size());
    };
    const auto run_backward = [&] {
      alternating = alternating + open.front().first->gradient(open.front().second, {w})[0];
      open.pop_front();
    };
    const int ahead = std::min(P - 1 - rank, micro_batches);
    for (int m = 0; m < ahead; ++m) run_forward(m);
    for (int m = 0; m < micro_batches; ++m) {
      if (m + ahead < micro_batches) run_forward(m + ahead);
      run_backward();
    }
    say_in_turn(session, fmt::format("rank {}: {} at most {} tapes\n", rank, log, most));
    claim(session, most == static_cast<std::size_t>(std::min(P - rank, micro_batches)), "rank s holds at most P - s tapes");

    // One process: all layers in a row.
    const Untaped outside;
    Tensor alone;
    {
      std::vector<Tensor> layers;
      for (int s = 0; s < P; ++s) layers.push_back(weight(s));
      Tape tape;
      Tensor loss = zeros({}, DType::float64);
      for (int m = 0; m < micro_batches; ++m) {
        Tensor y = batch(m);
        for (const auto& layer : layers) y = tanh(layer * y);
        loss = loss + sum(square(y));
      }
      alone = tape.gradient(loss, layers)[static_cast<std::size_t>(rank)];
    }
    say_in_turn(session, fmt::format("rank {}: dL/dw = {:.9f}, on one process {:.9f}\n", rank, drained.item(), alone.item()));
    claim(session, distance(drained, alone) < 1e-12 && distance(alternating, alone) < 1e-12,
          "both schedules have the gradient of one process");
  });
}
