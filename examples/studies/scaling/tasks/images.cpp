// Classifies the images of a folder by a ResNet-50: the study's classification of images, on your own images.

#include <algorithm>

#include "examples/studies/scaling/tasks/sample_set.h"
#include "models/data/data.h"
#include "models/data/sources/folder.h"
#include "models/networks/resnet.h"
#include "models/trainer/samples.h"
#include "ops/loss/loss.h"

namespace mpigrad::scaling {
namespace {

// Three channels, with the extents of the first image, at most 224 pixels.
std::shared_ptr<const data::FolderSource> open_images(const std::string& folder) {
  constexpr std::int64_t largest = 224;
  const data::FolderSource first(folder, {});
  const auto extents = first.extents();
  require(extents[0] == 1, "[scaling] {} has volumes; the task images is for pictures", folder);
  require(first.has_classes() && first.classes().size() > 1,
          "[scaling] {}: images of two classes or more are needed, each class a folder of them", folder);
  return std::make_shared<data::FolderSource>(
      folder, data::FolderOptions{
                  .extents = {std::min(extents[1], largest), std::min(extents[2], largest)}, .channels = 3, .threads = 1});
}

data::SourcePtr part_of(const std::shared_ptr<const data::FolderSource>& source, const std::vector<std::int64_t>& samples) {
  std::vector<std::int64_t> classes;
  for (const auto sample : samples) classes.push_back(static_cast<std::int64_t>(source->targets(sample)[0]));
  return trainer::chosen(source, samples, "class", std::move(classes));
}

}  // namespace

Task images(const TaskOptions& options) {
  if (options.folder.empty()) throw tool::UsageError("the task images needs a folder of images, each class a folder in it");
  if (options.training != 0 || options.test != 0)
    throw tool::UsageError("the task images takes all images there are, four fifths of them for training");
  const auto source = open_images(options.folder);
  const auto split = data::split_train_test(source->size(), 0.2, options.seed);
  const auto training = static_cast<std::int64_t>(split.train.size());
  const ResNetOptions network{.depth = 50,
                              .classes = static_cast<std::int64_t>(source->classes().size()),
                              .small_images = std::max(source->extents()[1], source->extents()[2]) <= 64,
                              .norm = {.statistics = StatisticsOver::local}};
  return {.name = "images",
          .error_name = "misclassified",
          .training = part_of(source, split.train),
          .test = part_of(source, split.test),
          .make = [network] { return std::make_unique<ResNet>(network); },
          .loss = cross_entropy,
          .error = misclassified,
          .goal = 0.2,
          .learning_rates = {0.003, 0.01, 0.03, 0.1},
          .momentum = 0.9,
          .batch = 8,
          .budget = 30 * training,
          .every = std::max<std::int64_t>(1, training / 2)};
}

}  // namespace mpigrad::scaling
