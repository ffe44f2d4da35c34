// The small program of the pages libtorch.md, pytorch_ddp.md, jax.md and lbann.md: a network, an optimizer and five steps. The
// grid decides how the batch is divided; the losses are the same on any number of ranks and with `.depth` in place of `.sample`.
//
//   mpiexec -n 2 build/examples/lessons/coming_from_training

#include <mpigrad/mpigrad.h>
using namespace mpigrad;

struct Network : nn::Module {
  Tensor operator()(const Tensor& x) override { return head(global_avg_pool(relu(conv(x)))); }
  nn::Conv3d conv{*this, "conv", {.out = 4, .kernel = 3, .padding = 1}};
  nn::Linear head{*this, "head", {.out = 1}};
};

int main(int argc, char** argv) {
  return run(argc, argv, [](Session& session) {
    const GridPtr grid = session.grid({.sample = session.ranks()});
    const LayoutPtr layout = input_layout(grid, {8, 8, 8, 8, 1});  // 8 volumes of 8^3 voxels, 1 channel
    const Tensor x = constant(random_normal(layout->global, {.key = 1}, 0, 1, DType::float64, layout));

    Network net;
    net.build(layout, {.seed = 2, .dtype = DType::float64});
    SGD sgd(net, {.learning_rate = 0.1});
    for (int step = 1; step <= 5; ++step) {
      Tape tape(net);
      const Tensor share = mean(square(net(x) - 1));  // this rank's part of the mean over all 8 volumes
      sgd.step(tape.gradient(share));
      const double loss = total(share);
      if (session.rank() == 0) fmt::print("step {}: loss {:.9f}\n", step, loss);
    }
  });
}
