// The time that the augmentation of a batch of windows takes, compared with a training step of the hippocampus' U-Net on it: two
// windows of 40 x 56 x 40 of made volumes of 35 x 51 x 35, on the threads of OMP_NUM_THREADS. Prints a line for each recipe, and
// the step's. 0.2 of a step is the limit of nnunet.
//
//   augment_rate

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "framework/engine/tape.h"
#include "framework/optim/optimizer.h"
#include "models/data/data.h"
#include "models/data/sources/memory.h"
#include "models/losses/segmentation.h"
#include "models/networks/unet3d.h"
#include "ops/array/creation.h"
#include "ops/random/random.h"

using namespace mpigrad;

namespace {

constexpr std::int64_t samples = 16;
const Shape window{40, 56, 40};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

data::SourcePtr volumes() {
  const auto x = random_normal({samples, 35, 51, 35, 1}, {.key = 1});
  std::vector<double> labels(static_cast<std::size_t>(samples * 35 * 51 * 35));
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<double>(i / 7 % 3);
  return data::from_tensors(x, from_vector({samples, 35, 51, 35}, labels, DType::int32), {.per_cell = true});
}

// Seconds of a batch, the mean over the batches of four epochs after one.
double seconds(const data::SourcePtr& source, const std::string& recipe) {
  data::LoaderOptions options{.batch = 2, .seed = 1, .crop = data::Crop{.extents = window}, .prefetch = 0};
  if (!recipe.empty()) options.augment = augment::parse_recipe(recipe, {});
  const data::Loader loader(source, options);
  double start = 0;
  for (std::int64_t epoch = 0; epoch < 5; ++epoch) {
    if (epoch == 1) start = now();
    for (const auto& batch : loader.epoch(epoch)) require(batch.x.elements() > 0, "[bench] a batch");
  }
  return (now() - start) / static_cast<double>(4 * loader.steps());
}

// Seconds of a training step, the median of five.
double step_seconds(const data::SourcePtr& source) {
  const data::Loader loader(source, {.batch = 2, .crop = data::Crop{.extents = window}});
  UNet3d net({.filters = {16, 32, 64, 128}});
  net.build(loader.layout(), {.seed = 1});
  Adam adam(net, {.learning_rate = 1e-3});
  std::vector<double> times;
  for (const auto& [x, y] : loader.epoch(0)) {
    if (times.size() == 6) break;
    const double start = now();
    Tape tape(net);
    adam.step(tape.gradient(segmentation::dice_cross_entropy_loss(net(x), y)));
    times.push_back(now() - start);
  }
  std::sort(times.begin() + 1, times.end());
  return times[3];
}

}  // namespace

int main() {
  const auto source = volumes();
  const double step = step_seconds(source), plain = seconds(source, "");
  fmt::print("step of two windows of {}: {:.1f} ms; their batch without augmentation: {:.1f} ms\n", window, 1e3 * step,
             1e3 * plain);
  for (const char* recipe :
       {"nnunet", "nnunet,elastic", "rotate:p=1", "rotate:p=1,cubic,scores", "noise:p=1", "blur:p=1", "resolution:p=1",
        "gamma:p=1", "rotate:p=1,elastic:p=1,noise:p=1,blur:p=1,brightness:p=1,contrast:p=1,resolution:p=1,gamma:p=1"}) {
    const double more = seconds(source, recipe) - plain;
    fmt::print("{}: {:.1f} ms, {:.3f} of a step\n", recipe, 1e3 * more, more / step);
  }
}
