// A layer of one's own with a parameter, on any number of ranks: every channel is multiplied by a factor that is learned.
//
//   mpiexec -n 2 build/examples/own_layer
//
// prints the loss and the size of each parameter's gradient, the same as on one rank and on `--transport threads --ranks 3`.
//
// The source is that of one rank. A parameter is the same on all ranks: where an elementwise function meets it beside a
// distributed tensor, its gradient is added up over the ranks among which that is divided, and over no others; and of a parameter
// as large as the tensor each rank takes its block. A layer that computes with this rank's part by itself does as follows:
//
//   x.without_layout()                      a plain tensor, all ops are local
//   parameter_for(x, w)        w for use beside that part, with the same gradient
//   y.with_layout(x.layout())               says that y is divided as x is
//
// which is all, where an element of y depends on elements of x that one rank has. Where it depends on others', the functions of
// comm/distributed/distributed.h fetch them (conv, pooling, norms), and redistribute() and the collectives do whatever is left.

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
    const Gradients gradients = tape.gradient(share);  // of the sum of all ranks' shares
    const double loss = total(share);
    for (std::size_t i = 0; i < gradients.size(); ++i)
      fmt::print("rank {}: loss {:.9f}, {} |gradient| {:.9f}\n", session.rank(), loss, net.parameters()[i].name,
                 std::sqrt(dot(gradients[i], gradients[i]).item()));
  });
}
