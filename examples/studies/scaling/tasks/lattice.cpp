// Classifies defects of crystals by a small convolutional network, in place of images of materials.

#include "examples/studies/scaling/tasks/lattice_image.h"
#include "examples/studies/scaling/tasks/sample_set.h"
#include "models/nn/sequential.h"
#include "ops/loss/loss.h"

namespace mpigrad::scaling {
namespace {

data::SourcePtr crystals(const std::string& name, std::int64_t count, const Philox& random) {
  return classed({.name = name, .count = count, .extents = {1, lattice_side, lattice_side}},
                 [&](std::int64_t sample, std::span<float> pixels) {
                   const auto own = random.child(static_cast<std::uint64_t>(sample));
                   const auto crystal = make_crystal(own.child(0));
                   expose(crystal, {}, own.child(1), pixels);
                   return static_cast<std::int64_t>(crystal.defect);
                 });
}

// [N, 1, 24, 24, 1] -> scores [N, 4]; 3,636 weights without norms. A defect may be anywhere, so the last pooling takes the
// maximum over all places; a mean would hide it among the other atoms.
class Network : public nn::Module {
 public:
  explicit Network(bool norm) {
    const std::array<std::int64_t, 3> widths{8, 16, 16};
    for (std::size_t i = 0; i < widths.size(); ++i) {
      convs_.add(*this, fmt::format("conv{}", i + 1),
                 {.out = widths[i],
                  .kernel = {1, 3, 3},
                  .padding = {0, 1, 1},
                  .bias = !norm,
                  .activation = norm ? Activation::none : Activation::relu});
      if (norm)
        norms_.add(*this, fmt::format("norm{}", i + 1), {.statistics = StatisticsOver::local, .activation = Activation::relu});
    }
  }
  Tensor operator()(const Tensor& input) override {
    Tensor x = input;
    for (std::size_t i = 0; i < convs_.size(); ++i) {
      x = convs_[i](x);
      if (norms_.size() > 0) x = norms_[i](x);
      const Triple window = i + 1 < convs_.size() ? Triple{1, 2, 2} : Triple{1, lattice_side / 4, lattice_side / 4};
      x = max_pool(x, {.kernel = window, .stride = window});
    }
    return linear_(flatten(x));
  }

 private:
  nn::List<nn::Conv3d> convs_;
  nn::List<nn::BatchNorm> norms_;
  nn::Linear linear_{*this, "linear", {.out = static_cast<std::int64_t>(defect_names.size()), .whole = true}};
};

}  // namespace

Task lattice(const TaskOptions& options) {
  const auto [training, test] = sample_numbers("lattice", options, 4000, 1000);
  return {.name = "lattice",
          .error_name = "misclassified",
          .training = crystals("lattice", training, Philox{options.seed, 1}),
          .test = crystals("lattice test", test, Philox{options.seed, 2}),
          .make = [] { return std::make_unique<Network>(false); },
          .loss = cross_entropy,
          .error = misclassified,
          .goal = 0.1,
          .learning_rates = {0.0125, 0.025, 0.05, 0.1, 0.2},
          .budget = 100000,
          .every = 512};
}

Task lattice_norm(const TaskOptions& options) {
  auto task = lattice(options);
  task.name = "lattice-norm";
  task.every = 256;  // it learns in fewer samples
  task.make = [] { return std::make_unique<Network>(true); };
  return task;
}

}  // namespace mpigrad::scaling
