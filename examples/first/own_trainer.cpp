// A trainer for your own network, data and metric: all commands and keys of the project's trainers in a page.
//
//   build/examples/own_trainer make noise.h5                                        # 64 volumes of noise in one HDF5 file
//   mpiexec -n 2 build/examples/own_trainer train --data noise.h5 --grid depth=2 --out run --resume
//   build/examples/own_trainer train --data noise.h5 --epochs 20 --set checkpoint.allow_changes --out run --resume
//   build/examples/own_trainer evaluate --weights run/weights.h5 --data noise.h5 --group val --out scores
//   build/examples/own_trainer predict --weights run/weights.h5 --data noise.h5 --group val --out predictions
//
// `train` shows the loss of each epoch and of its validation, the same on any number of ranks, and writes weights.h5,
// metrics.csv, events for TensorBoard, predictions.csv, own_trainer.png and summary.json to the folder run. `train --keys` lists
// all keys. With an installed library: c++ -std=c++20 own_trainer.cpp $(pkg-config --cflags --libs mpigrad-trainer)

#include <mpigrad/mpigrad.h>
#include <mpigrad/trainer.h>
using namespace mpigrad;

// A residual block of your own, with a parameter for each channel: relu(x + strength conv(norm(conv(x)))). It maps
// [N, D, H, W, C] to [N, D, H, W, C], the same on any grid.
class Block : public nn::Module {
 public:
  Block(nn::Module& parent, const std::string& name, std::int64_t channels) : Module(parent, name), channels_(channels) {}
  Tensor operator()(const Tensor& x) override {
    return relu(x + parameter("strength", {channels_}, nn::constant_value(1)) * second_(norm_(first_(x))));
  }

 private:
  std::int64_t channels_;
  nn::Conv3d first_{*this, "first", {.out = channels_, .kernel = 3, .padding = 1}};
  nn::BatchNorm norm_{*this, "norm", {.activation = Activation::relu}};
  nn::Conv3d second_{*this, "second", {.out = channels_, .kernel = 3, .padding = 1}};
};

struct Network : nn::Module {
  explicit Network(const trainer::Problem& problem) : width(problem.get<std::int64_t>("width")), outputs(problem.outputs) {}
  Tensor operator()(const Tensor& x) override { return linear(global_avg_pool(block(square(conv(x))))); }
  std::int64_t width, outputs;
  nn::Conv3d conv{*this, "conv", {.out = width, .kernel = 3, .padding = 1}};
  Block block{*this, "block", width};
  nn::Linear linear{*this, "linear", {.out = outputs}};
};

// A metric of your own: the mean of |predicted - true| / true.
double relative_error(const Predictions& p) {
  RunningMean mean;
  for (std::size_t i = 0; i < p.truth.size(); ++i) mean.add(std::abs(p.predicted[i] - p.truth[i]) / p.truth[i]);
  return mean.mean();
}

// Volumes of noise, and the mean of their squares as the number to predict; three quarters are the group `train` of the file.
void make(const char* file) {
  constexpr std::int64_t samples = 64, side = 8;
  const Tensor strength = random_uniform({samples, 1, 1, 1, 1}, {.key = 1}, 0.5, 1.5);
  const Tensor volumes = strength * random_normal({samples, side, side, side, 1}, {.key = 2});
  const auto source = data::from_tensors(volumes, mean(square(volumes), {1, 2, 3}), {.target_names = {"power"}});
  const auto split = data::split_train_test(samples, 0.25, 1);
  data::pack(*source, file, {.groups = {{"train", split.train}, {"val", split.test}}});
}

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "make")
    return run(1, argv, [&](Session& session) {
      if (session.rank() == 0) make(argv[2]);
    });
  return trainer::run(
      argc, argv,
      {.name = "own_trainer",
       .help = "Predicts the power of noise.",
       .network = [](const trainer::Problem& problem) { return std::make_unique<Network>(problem); },
       .loss = mse,
       .metrics = {{"relative_error", relative_error}},
       .settings = {{"width", 4, "channels of the network", trainer::whole(1, 1024)}},
       .without = {"network.keep", "network.norm_momentum", "network.statistics"},  // keys that the network does not use
       .learning_rate = 0.01});
}
