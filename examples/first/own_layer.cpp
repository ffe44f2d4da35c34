// Your own layer with a parameter, on any number of ranks: every channel is multiplied by a learned factor.
//
//   mpiexec -n 2 build/examples/own_layer
//
// prints the loss and the norm of each parameter's gradient, the same on one rank and on `--transport threads --ranks 3`.
//
// The source is that of one rank. A parameter is replicated: if an elementwise function combines it with a distributed tensor,
// its gradient is summed over exactly the ranks among which that tensor is split; if the parameter is as large as the tensor,
// each rank uses its block of it. A layer that computes with this rank's block itself does as follows:
//
//   x.without_layout()         a plain tensor, all ops are local
//   parameter_for(x, w)        w for use together with that block, with the same gradient
//   y.with_layout(x.layout())  declares that y is split like x
//
// This suffices if an element of y depends only on elements of x in the same block. If it depends on other blocks, the functions
// of comm/distributed/distributed.h fetch them (conv, pooling, norms); redistribute() and the collectives cover the rest.

#include <mpigrad/mpigrad.h>
using namespace mpigrad;

// x: [N, D, H, W, C] -> x times a factor for each channel, 1 at the start
class ChannelScale : public nn::Module {
 public:
  using nn::Module::Module;
  Tensor operator()(const Tensor& x) override { return x * parameter("factor", {x.dim(-1)}, nn::constant_value(1)); }
};

struct Network : nn::Module {
  Tensor operator()(const Tensor& x) override { return scale(conv(x)); }
  nn::Conv3d conv{*this, "conv", {.out = 3, .kernel = 3, .padding = 1}};
  ChannelScale scale{*this, "scale"};
};

int main(int argc, char** argv) {
  return run(argc, argv, [](Session& session) {
    const auto slabs = activation_layout(session.grid({.depth = session.ranks()}), {1, 8, 8, 8, 1});
    const Tensor x = constant(random_normal(slabs->global, {.key = 1}, 0, 1, DType::float64, slabs));
    Network net;
    net.build(slabs, {.seed = 2, .dtype = DType::float64});
    Tape tape(net);
    const Tensor share = mean(square(net(x)));
    const Gradients gradients = tape.gradient(share);  // of the sum of all ranks' partial sums
    const double loss = total(share);
    for (std::size_t i = 0; i < gradients.size(); ++i)
      fmt::print("rank {}: loss {:.9f}, {} |gradient| {:.9f}\n", session.rank(), loss, net.parameters()[i].name,
                 std::sqrt(dot(gradients[i], gradients[i]).item()));
  });
}
