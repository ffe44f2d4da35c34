// Five programs that every distributed system has, each compared with one process: the factor by which its gradient is too large.
// The page README.md compares them with PyTorch, JAX, Horovod and Megatron.
//
//   build/examples/lessons/coming_from_programs             four ranks, threads of one process
//   mpiexec -n 2 build/examples/lessons/coming_from_programs

#include "examples/lessons/lesson.h"
using namespace lesson;

namespace {

constexpr std::int64_t N = 16;

// ---- 1. The mean of a loss over a batch that is divided over ranks.
Tensor data_parallel(const Tensor& x, const Tensor& t, const Tensor& w, const Communicator& comm) {
  return sum(square(linear(x, replicate(w, comm)) - t)) / double(N);
}

// ---- 2. A loss of a sum over ranks, which every rank knows.
Tensor known_to_all(const Tensor& x, const Communicator& comm) {
  return square(allreduce(sum(square(x)), comm));  // P copies of one loss
}
Tensor known_to_all_once(const Tensor& x, const Communicator& comm) {
  return once(square(allreduce_invariant(sum(square(x)), comm)), comm);
}

// ---- 3. Two layers, the first split by outputs, the second by inputs (tensor parallelism).
Tensor two_layers(const Tensor& x, const Tensor& my_w1, const Tensor& my_w2, const Communicator& comm) {
  const Tensor hidden = tanh(linear(replicate(x, comm), my_w1));
  return allreduce_invariant(linear(hidden, my_w2), comm);
}

// ---- 4. A contrastive loss: my rows against all ranks' columns.
Tensor contrast(const Tensor& za, const Tensor& zb, const Communicator& comm) {
  const Tensor scores = matmul(za, allgather(zb, comm), {.transpose_b = true});
  return sum(logsumexp(scores, {1}) - sum(za * zb, {1})) / double(N);
}

// ---- 5. A stencil on a line in blocks: ghosts from both neighbours, around the ring.
Tensor stencil(const Tensor& u, const Communicator& comm) {
  const auto n = u.dim(0);
  const Tensor left = shift(slice(u, 0, n - 1, n), comm, 1), right = shift(slice(u, 0, 0, 1), comm, -1);
  const Tensor wide = concatenate({left, u, right}, 0);
  return slice(wide, 0, 0, n) - 2 * u + slice(wide, 0, 2, n + 2);
}

}  // namespace

int main(int argc, char** argv) {
  return run_lesson(argc, argv, 4, [](Session& session) {
    const auto& comm = session.world();
    const double P = session.ranks();
    const auto normal = [](const Shape& shape, std::uint64_t key) {
      return random_normal(shape, {.key = key}, 0, 1, DType::float64);
    };
    // The factor of a gradient that is parallel to the right one; empty if its direction differs.
    const auto row = [&](const char* name, const Tensor& found, const Tensor& expected, double factor) {
      const auto all = [&](const Tensor& a, const Tensor& b) { return total(dot(a, b), comm); };
      const double found_factor = all(found, expected) / all(expected, expected);
      const double rest =
          std::sqrt(all(found - found_factor * expected, found - found_factor * expected) / all(expected, expected));
      say(session, "{:58} {:.6f}", name, found_factor);
      claim(session, rest < 1e-12 && std::abs(found_factor - factor) < 1e-12, "{}",
            factor == 1 ? "the gradient of one process" : "P times that of one process");
    };
    say(session, "{:58} factor on {} ranks", "", P);

    const Tensor x = normal({N, 3}, 1), t = normal({N, 2}, 2), w = normal({2, 3}, 3);
    Tape one;
    const Tensor w_expected = one.gradient(sum(square(linear(x, w) - t)) / double(N), {w})[0];
    Tape tape;
    row("1. data parallelism: sum over my samples / N",
        tape.gradient(data_parallel(constant(my_rows(x, comm)), constant(my_rows(t, comm)), w, comm), {w})[0], w_expected, 1);

    Tape one_known;
    const Tensor x_expected = my_rows(one_known.gradient(square(sum(square(x))), {x})[0], comm), mine = my_rows(x, comm);
    Tape known, known_once;
    row("2. square(allreduce(x)) from every rank", known.gradient(known_to_all(mine, comm), {mine})[0], x_expected, P);
    row("   once(square(allreduce_invariant(x)))", known_once.gradient(known_to_all_once(mine, comm), {mine})[0], x_expected, 1);

    const Tensor w1 = normal({12, 3}, 4), w2 = normal({2, 12}, 5);
    Tape one_layers;
    const auto layers_expected = one_layers.gradient(sum(square(linear(tanh(linear(x, w1)), w2))), {x, w1});
    Tape layers;
    const Tensor my_w1 = my_rows(w1, comm), my_w2 = transpose(my_rows(transpose(w2), comm));
    const auto found = layers.gradient(once(sum(square(two_layers(x, my_w1, my_w2, comm))), comm), {x, my_w1});
    row("3. replicate, two layers, allreduce_invariant: by x", found[0], layers_expected[0], 1);
    row("   by my block of the weights", found[1], my_rows(layers_expected[1], comm), 1);

    const Tensor za = normal({N, 4}, 6), zb = normal({N, 4}, 7);
    Tape one_contrast;
    const Tensor scores = matmul(za, zb, {.transpose_b = true});
    const auto z_expected = one_contrast.gradient(sum(logsumexp(scores, {1}) - sum(za * zb, {1})) / double(N), {za, zb});
    Tape contrasts;
    const Tensor a = my_rows(za, comm), b = my_rows(zb, comm);
    const auto z_found = contrasts.gradient(contrast(a, b, comm), {a, b});
    row("4. allgather, my rows against all columns: by the columns", z_found[1], my_rows(z_expected[1], comm), 1);

    const Tensor u = normal({N}, 8), my_u = my_rows(u, comm);
    Tape one_line;
    const Tensor wide = concatenate({slice(u, 0, N - 1, N), u, slice(u, 0, 0, 1)}, 0);
    const Tensor u_expected = one_line.gradient(sum(square(slice(wide, 0, 0, N) - 2 * u + slice(wide, 0, 2, N + 2))), {u})[0];
    Tape line;
    row("5. ghosts by shift, a stencil", line.gradient(sum(square(stencil(my_u, comm))), {my_u})[0], my_rows(u_expected, comm),
        1);
  });
}
