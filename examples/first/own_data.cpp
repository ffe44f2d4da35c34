// Your own data: samples computed by a function, of which every rank reads only its part, and a network that learns from them.
//
//   mpiexec -n 2 build/examples/own_data
//
// prints the losses of five epochs, the same on one rank and on `--transport threads --ranks 3`. The volumes hold waves along
// their depth; the target is the strength of the waves.
//
// data::FunctionSource is asked for boxes of samples. Your own file format works the same way: `values` reads the box from the
// file of sample i. data::open_source() reads the usual formats (models/data/README.md).

#include <mpigrad/mpigrad.h>

#include <cmath>
using namespace mpigrad;

constexpr std::int64_t side = 12;

double strength(std::int64_t sample) { return 0.5 + 0.1 * static_cast<double>(sample % 11); }

data::SourcePtr waves() {
  data::FunctionSamples samples{.size = 48, .extents = {side, side, side}, .target_names = {"strength"}, .name = "waves"};
  samples.values = [](std::int64_t sample, const Box& box, std::span<float> out) {
    std::size_t at = 0;
    for (auto d = box.begin[0]; d < box.end[0]; ++d)
      for (auto h = box.begin[1]; h < box.end[1]; ++h)
        for (auto w = box.begin[2]; w < box.end[2]; ++w)
          out[at++] = static_cast<float>(strength(sample) * std::sin(0.7 * static_cast<double>(d + sample)) +
                                         0.1 * std::cos(double(h * w)));
  };
  samples.targets = [](std::int64_t sample) { return std::vector{strength(sample)}; };
  return std::make_shared<data::FunctionSource>(samples);
}

struct Network : nn::Module {
  Tensor operator()(const Tensor& x) override { return linear(global_avg_pool(square(conv(x)))); }
  nn::Conv3d conv{*this, "conv", {.out = 4, .kernel = 3, .padding = 1}};
  nn::Linear linear{*this, "linear", {.out = 1}};
};

int main(int argc, char** argv) {
  return run(argc, argv, [](Session& session) {
    const auto grid = session.grid({.depth = session.ranks()});
    const data::Loader loader(waves(), {.grid = grid, .batch = 8, .seed = 1, .shuffle = true, .dtype = DType::float64});
    Network net;
    net.build(loader.layout(), {.seed = 2, .dtype = DType::float64});
    Adam adam(net, {.learning_rate = 0.02});
    const auto result =
        train(net, adam, loader, session.world(), {.loss = mse}, {.fit = {.epochs = 5}, .progress = {.quiet = true}});
    for (const auto& row : result.epochs)
      fmt::print("rank {}: epoch {}, loss {:.9f}\n", session.rank(), row.report.epoch + 1, row.report.loss);
  });
}
