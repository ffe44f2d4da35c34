// All steps with a network: data, training, validation, a file, and predictions of the network read from the file.
//
//   build/examples/own_training                # one process without a grid: plain tensors
//   mpiexec -n 2 build/examples/own_training   # the same source on a grid: each rank has half of every volume
//
// prints the losses of eight epochs, the same on any number of ranks, and predictions for samples that the network has not
// learned from. Only the grid differs. Writes metrics.csv and network.h5 to the folder own_training-out.

#include <mpigrad/mpigrad.h>
using namespace mpigrad;

constexpr std::int64_t samples = 64, side = 8;

// Volumes of noise [n, D, H, W, C]; the target [n, 1] is the mean of their squares. Your own arrays come in by from_vector() or
// Tensor::over(), your own files by data::open_source() or a data::FunctionSource (own_data.cpp).
data::SourcePtr noise() {
  const Tensor strength = random_uniform({samples, 1, 1, 1, 1}, {.key = 1}, 0.5, 2);
  const Tensor volumes = strength * random_normal({samples, side, side, side, 1}, {.key = 2});
  const Tensor power = mean(square(volumes), {2, 3, 4});
  return data::from_tensors(volumes, mean(power, {1}, true), {.target_names = {"power"}, .name = "noise"});
}

struct Network : nn::Module {
  Tensor operator()(const Tensor& x) override { return linear(global_avg_pool(square(conv(x)))); }
  nn::Conv3d conv{*this, "conv", {.out = 4, .kernel = 3, .padding = 1}};
  nn::Linear linear{*this, "linear", {.out = 1}};
};

double error_of(Network& net, const data::Loader& loader) {
  const Predictions p = predict(net, loader);
  return regression_scores(p.predicted, p.truth, 1)[0].mse;
}

int main(int argc, char** argv) {
  return run(argc, argv, [](Session& session) {
    const GridPtr grid = session.ranks() == 1 ? GridPtr() : session.grid({.depth = session.ranks()});

    // Data: three quarters to learn from, one quarter for validation.
    const data::SourcePtr source = noise();
    const data::Split split = data::split_train_test(samples, 0.25, 1);
    const data::Loader training(
        source, {.grid = grid, .batch = 8, .seed = 2, .shuffle = true, .dtype = DType::float64, .samples = split.train});
    const data::Loader validation(source, {.grid = grid, .batch = 8, .dtype = DType::float64, .samples = split.test});

    // Train, and validate after every epoch. Progress goes to standard error.
    Network net;
    net.build(training.layout(), {.seed = 3, .dtype = DType::float64});
    Adam adam(net, {.learning_rate = 0.02});
    const auto result = train(net, adam, training, session.world(),
                              {.loss = mse, .evaluate = [&] { return std::vector{error_of(net, validation)}; }},
                              {.fit = {.epochs = 8}, .folder = "own_training-out", .values = {"validation"}});

    // Save, and load into another network of the same kind, which may be on another grid.
    save_checkpoint("own_training-out/network.h5", net, session.world());
    Network loaded;
    loaded.build(validation.layout(), {.dtype = DType::float64});
    load_checkpoint("own_training-out/network.h5", loaded);

    // Predict.
    const Predictions p = predict(loaded, validation);
    if (session.rank() != 0) return;
    for (const auto& row : result.epochs)
      fmt::print("epoch {}: loss {:.9f}, validation {:.9f}\n", row.report.epoch + 1, row.report.loss, row.values[0]);
    for (std::size_t i = 0; i < 3; ++i)
      fmt::print("sample {}: predicted {:.9f}, true {:.9f}\n", p.samples[i], p.predicted[i], p.truth[i]);
  });
}
