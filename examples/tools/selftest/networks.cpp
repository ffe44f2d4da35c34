// Split volumes, trainings and files, compared with one rank's.

#include <algorithm>
#include <cmath>

#include "comm/distributed/redistribute.h"
#include "comm/hdf5/hdf5_tensor.h"
#include "comm/together.h"
#include "examples/tools/selftest/selftest.h"
#include "framework/base/error.h"
#include "models/mpigrad/mpigrad.h"

namespace mpigrad::selftest {
namespace {

// Relative, of sums in float64 that are taken in another order.
constexpr double tolerance = 1e-10;

Tensor normal(const Shape& shape, std::uint64_t key, const LayoutPtr& layout = {}) {
  return random_normal(shape, {.key = key}, 0, 1, DType::float64, layout);
}

double size_of_error(const Tensor& x) { return std::sqrt(sum(square(x)).item()); }

void require_near(const std::string& what, const Tensor& found, const Tensor& expected) {
  const double error = size_of_error(found - expected), size = size_of_error(expected);
  require(error <= tolerance * size, "[selftest] {} is off by {:.2e} of {:.2e}", what, error, size);
}

// The extents of a volume of which every rank has a few planes.
std::int64_t planes_of(int ranks) { return std::max(12, 3 * ranks); }
// The grid of depth x height with extents as equal as possible.
GridExtents pencils(int ranks) {
  int height = static_cast<int>(std::sqrt(ranks));
  while (ranks % height != 0) --height;
  return {.depth = ranks / height, .height = height};
}

using Layer = std::function<Tensor(const Tensor& x, const Tensor& w)>;

// The layer's result and gradients on the grid and on one rank.
void compare_layer(const Communicator& world, const GridExtents& extents, const Layer& layer) {
  const Shape shape{1, planes_of(extents.depth), planes_of(extents.height), 6, 2};
  const auto layout = activation_layout(make_grid(world, extents), shape);
  const auto objective = [](const Tensor& y) { return sum(y * tanh(y)); };
  const Tensor w = normal({3, 5, 3, 3, 2}, 2), whole_x = normal(shape, 1), x = normal(shape, 1, layout);
  Tape whole_tape;
  const Tensor whole = layer(whole_x, w);
  const auto expected = whole_tape.gradient(objective(whole), {whole_x, w});
  Tape tape;
  const Tensor y = layer(x, w);
  const auto found = tape.gradient(objective(y), {x, w});
  const auto plain = [](const Tensor& split) { return gather_all(split).without_layout(); };
  require_near("the result", plain(y), whole);
  require_near("the gradient of the volume", plain(found[0]), expected[0]);
  require_near("the gradient of the weights", found[1], expected[1]);
}

// A small network with convolution, norm, pooling and a linear layer.
struct Network : nn::Module {
  Tensor operator()(const Tensor& x) override {
    const Tensor h = max_pool(norm(conv(x)), {.kernel = 2, .stride = 2});
    return linear(global_avg_pool(second(h)));
  }
  nn::Conv3d conv{*this, "conv", {.out = 4, .kernel = 3, .padding = 1}};
  nn::BatchNorm norm{*this, "norm", {.activation = Activation::leaky_relu()}};
  nn::Conv3d second{*this, "second", {.out = 4, .kernel = 3, .padding = 1}};
  nn::Linear linear{*this, "linear", {.out = 1}};
};

constexpr std::int64_t samples = 8, batch = 4;
data::LoaderOptions loader_options(const GridPtr& grid) {
  return {.grid = grid, .batch = batch, .seed = 3, .shuffle = true, .dtype = DType::float64};
}

data::SourcePtr volumes(int ranks) {
  const UseDevice host(DeviceKind::cpu);
  return data::from_tensors(normal({samples, std::max(8, 2 * ranks), 8, 8, 1}, 4), normal({samples, 1}, 5));
}

// A training that stops before `first`, or resumes there.
struct Run {
  Network net;
  std::unique_ptr<Adam> adam;
  std::vector<double> losses;

  Run(const data::Loader& loader) {
    net.build(loader.layout(), {.seed = 6, .dtype = DType::float64});
    adam = std::make_unique<Adam>(net, AdamAttributes{.learning_rate = 0.01});
  }
  void train(const data::Loader& loader, const Communicator& world, std::int64_t first, std::int64_t epochs) {
    fit(net, *adam, loader, mse, world, {.epochs = epochs, .first_epoch = first, .after_epoch = [&](const EpochReport& report) {
                                           losses.push_back(report.loss);
                                           return std::string();
                                         }});
  }
};

void compare_training(const Communicator& world, const GridExtents& extents) {
  const auto source = volumes(world.size());
  const data::Loader split(source, loader_options(make_grid(world, extents))), whole(source, loader_options({}));
  Run on_grid(split), alone(whole);
  on_grid.train(split, world, 0, 3);
  alone.train(whole, world.split(world.rank(), 0), 0, 3);
  for (std::size_t i = 0; i < alone.losses.size(); ++i)
    require(std::abs(on_grid.losses[i] - alone.losses[i]) <= 1e-8 * alone.losses[i],
            "[selftest] the loss of epoch {} is {:.12g} on the grid and {:.12g} on one rank", i + 1, on_grid.losses[i],
            alone.losses[i]);
}

}  // namespace

std::vector<Item> halo_items(const Communicator& world) {
  const GridExtents slabs{.depth = world.size()};
  const Layer strided = [](const Tensor& x, const Tensor& w) { return conv(x, w, {.stride = {2, 1, 1}, .padding = {2, 1, 1}}); };
  const Layer pooled = [](const Tensor& x, const Tensor& w) {
    const Tensor y = conv(x, w, {.padding = {2, 1, 1}});
    return max_pool(y, {.kernel = 3, .stride = 2, .padding = 1});
  };
  return {{"halos: strided convolution on slabs", [=] { compare_layer(world, slabs, strided); }},
          {"halos: convolution and maximum on pencils", [=] { compare_layer(world, pencils(world.size()), pooled); }}};
}

std::vector<Item> training_items(const Communicator& world) {
  std::vector<Item> items{{"training: slabs, losses of one rank", [=] { compare_training(world, {.depth = world.size()}); }}};
  // Several samples, where ranks divide the batch.
  const int groups = world.size() % 4 == 0 ? 4 : 2;
  if (world.size() % 2 == 0)
    items.push_back({"training: samples and slabs, losses of one rank",
                     [=] { compare_training(world, {.sample = groups, .depth = world.size() / groups}); }});
  return items;
}

std::vector<Item> file_items(const Communicator& world, const std::filesystem::path& folder) {
  const auto write_and_read = [=] {
    const auto path = folder / "selftest.h5";
    const Shape shape{planes_of(world.size()), 5, 3};
    const auto grid = make_grid(world, {.depth = world.size()});
    const auto layout = split_layout(grid, shape, {-1, 0});
    const Tensor x = normal(shape, 8, layout), whole = normal(shape, 8);
    write_hdf5(path, "x", x, true);
    require_near("what all ranks read", gather_all(read_hdf5(path, "x", layout)).without_layout(), whole);
    require_near("what each rank reads by itself", read_hdf5(path, "x"), whole);
  };
  const auto resume = [=] {
    const auto path = folder / "selftest-checkpoint.h5";
    const data::Loader loader(volumes(world.size()), loader_options(make_grid(world, {.depth = world.size()})));
    Run unbroken(loader), first(loader), second(loader);
    unbroken.train(loader, world, 0, 2);
    first.train(loader, world, 0, 1);
    save_checkpoint(path, first.net, world, {.optimizer = first.adam.get(), .info = {.epoch = 1}});
    const auto info = load_checkpoint(path, second.net, {.optimizer = second.adam.get()});
    second.train(loader, world, info.epoch, 2);
    require(second.losses == std::vector{unbroken.losses[1]}, "[selftest] the resumed loss is {:.17g}, the unbroken one {:.17g}",
            second.losses.at(0), unbroken.losses.at(1));
  };
  return {{"files: HDF5 written and read by all ranks", write_and_read}, {"files: checkpoint and resume", resume}};
}

}  // namespace mpigrad::selftest
