// A defect to practise on: only rank 0 makes a call that needs all ranks. examples/first/debug_a_hang.md finds and fixes it.
#include <mpigrad/mpigrad.h>
using namespace mpigrad;

double mean_square(const Tensor& x) { return total(mean(square(x))); }  // adds over all ranks

int main(int argc, char** argv) {
  return run(argc, argv, [](Session& session) {
    const auto layout = input_layout(session.grid({.sample = session.ranks()}), {4, 8, 8, 8, 1});
    const Tensor x = random_normal(layout->global, {.key = 1}, 0, 1, DType::float64, layout);
    for (int step = 1; step <= 3; ++step) {
      const double sum_of_x = total(sum(x));
      if (session.rank() == 0) fmt::print("step {}: sum {:.3f}, mean square {:.3f}\n", step, sum_of_x, mean_square(x));
    }
  });
}
