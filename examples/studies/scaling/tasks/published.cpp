// Networks that co-authors of Yoginath et al. 2019 published, on simulated data: the convolutional variational autoencoder of
// contact maps, and a classifier of 27 lattices in images of 85 x 120 pixels.

#include "examples/studies/scaling/tasks/sample_set.h"
#include "examples/tools/folding/chain.h"
#include "examples/tools/lattice/image.h"
#include "models/losses/variational.h"
#include "models/networks/conv_vae.h"
#include "models/networks/resnet.h"
#include "ops/loss/loss.h"

namespace mpigrad::scaling {
namespace {

constexpr std::int64_t side = 22, latent = 3;  // of a padded map

// Frames of simulated chains, `frames` of each.
data::SourcePtr chains(const std::string& name, std::int64_t count, const Philox& random) {
  constexpr std::int64_t frames = 250;
  const folding::Simulation simulation{.frames = frames};
  const auto n = simulation.residues;
  std::vector<std::vector<std::uint8_t>> maps(static_cast<std::size_t>((count + frames - 1) / frames));
  for_each_sample(std::ssize(maps), 1, [&](std::int64_t c) {
    maps[static_cast<std::size_t>(c)] = folding::simulate(simulation, random.child(static_cast<std::uint64_t>(c))).maps;
  });
  return own_targets({.name = name, .count = count, .extents = {1, side, side}},
                     [&](std::int64_t sample, std::span<float> cells) {
                       const auto* map = maps[static_cast<std::size_t>(sample / frames)].data() + sample % frames * n * n;
                       for (std::int64_t row = 0; row < n; ++row)
                         for (std::int64_t column = 0; column < n; ++column)
                           cells[static_cast<std::size_t>(row * side + column)] = map[row * n + column];
                     });
}

// The cells of each map whose prediction is on the wrong side of 1/2, added up over the samples, over the cells of a map.
double wrong_cells(const Tensor& prediction, const Tensor& maps) {
  Untaped scope;
  const auto logits = vae_parts(prediction, latent).logits.to_vector(), truth = maps.to_vector();
  double wrong = 0;
  for (std::size_t i = 0; i < truth.size(); ++i) wrong += (logits[i] > 0) != (truth[i] > 0.5);
  return wrong / static_cast<double>(side * side);
}

data::SourcePtr lattices(const std::string& name, std::int64_t count, const Philox& random) {
  return classed({.name = name, .count = count, .extents = {1, lattice::rows, lattice::columns}},
                 [&](std::int64_t sample, std::span<float> pixels) {
                   const auto own = random.child(static_cast<std::uint64_t>(sample));
                   const auto number = static_cast<std::int64_t>(own.below(0, static_cast<std::uint64_t>(lattice::classes)));
                   std::vector<std::uint8_t> bytes(pixels.size());
                   lattice::draw(lattice::structure_of_class(number, own.child(0)), own.child(1), bytes);
                   for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<float>(bytes[i]) / 255;
                   return number;
                 });
}

}  // namespace

Task contact_maps(const TaskOptions& options) {
  const auto [training, test] = sample_numbers("contact-maps", options, 4000, 1000);
  return {.name = "contact-maps",
          .error_name = "wrong cells",
          .training = chains("chain", training, Philox{options.seed, 5}),
          .test = chains("test chain", test, Philox{options.seed, 6}),
          .make = [] { return std::make_unique<ConvVae>(); },
          .loss = [](const Tensor& prediction, const Tensor& maps) { return vae_loss(prediction, maps, latent); },
          .error = wrong_cells,
          .goal = 0.07,
          .learning_rates = {1e-4, 2e-4, 4e-4, 8e-4},
          .momentum = 0.9,
          .batch = 16,
          .budget = 40000,
          .every = 512};
}

Task lattice_27(const TaskOptions& options) {
  const auto [training, test] = sample_numbers("lattice-27", options, 4000, 500);
  return {.name = "lattice-27",
          .error_name = "misclassified",
          .training = lattices("lattice", training, Philox{options.seed, 7}),
          .test = lattices("test lattice", test, Philox{options.seed, 8}),
          .make =
              [] {
                return std::make_unique<ResNet>(ResNetOptions{
                    .depth = 18, .classes = lattice::classes, .width = 16, .norm = {.statistics = StatisticsOver::local}});
              },
          .loss = cross_entropy,
          .error = misclassified,
          .goal = 0.5,
          .learning_rates = {0.01, 0.02, 0.04, 0.08},
          .momentum = 0.9,
          .batch = 16,
          .budget = 40000,
          .every = 1024};
}

}  // namespace mpigrad::scaling
