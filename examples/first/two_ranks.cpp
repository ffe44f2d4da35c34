#include <mpigrad/mpigrad.h>
using namespace mpigrad;

int main(int argc, char** argv) {
  return run(argc, argv, [](Session& session) {
    const auto slabs = activation_layout(session.grid({.depth = session.ranks()}), {1, 8, 8, 8, 1});
    const Tensor x = random_normal(slabs->global, {.key = 1}, 0, 1, DType::float64, slabs);  // each rank has only its planes
    const Tensor w = random_normal({1, 3, 3, 3, 1}, {.key = 2}, 0, 1, DType::float64);       // the same on all ranks
    Tape tape;
    const Tensor share = sum(square(conv(x, w, {.padding = 1})));
    const Tensor gradient = tape.gradient(share, {w})[0];  // of the sum of all ranks' partial sums
    fmt::print("rank {}: {} planes, loss {:.9f}, |gradient| {:.9f}\n", session.rank(), x.dim(1), total(share),
               std::sqrt(dot(gradient, gradient).item()));
  });
}
