// Scores of segmented volumes: folds, regions, post-processing, worst cases, the page, and the memory that is expected.

#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <set>

#include "models/data/sources/memory.h"
#include "models/nn/layers.h"
#include "models/trainer/plot/figure.h"
#include "models/trainer/segmentation/parts.h"
#include "ops/random/random.h"
#include "tests/models/data/nifti_files.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;
using namespace mpigrad::trainer::segmenting;

namespace {

constexpr double none = std::numeric_limits<double>::quiet_NaN();

Case case_of(std::int64_t sample, std::vector<double> dice, std::vector<double> component_dice) {
  const std::vector<double> one(dice.size(), 1);
  return {.sample = sample,
          .dice = std::move(dice),
          .jaccard = one,
          .hausdorff = one,
          .within = one,
          .truth = one,
          .predicted = one,
          .volume_difference = one,
          .component_dice = std::move(component_dice)};
}

trainer::SegmentationProgram program() {
  return {.name = "test", .network = [](const trainer::Problem& problem) {
            struct Scores : nn::Module {
              explicit Scores(std::int64_t classes) : classes(classes) {}
              Tensor operator()(const Tensor& x) override { return conv(x); }
              std::int64_t classes;
              nn::Conv3d conv{*this, "conv", {.out = classes, .kernel = 3, .padding = 1}};
            };
            return std::make_unique<Scores>(problem.outputs);
          }};
}

}  // namespace

TEST_CASE("segmentation: folds keep every sample once, in parts whose sizes differ by at most one") {
  for (const std::int64_t samples : {2, 5, 13, 200})
    for (const std::int64_t folds : {2, 3, 5})
      for (const std::uint64_t seed : {1, 7}) {
        if (folds > samples) continue;
        std::multiset<std::int64_t> kept;
        for (std::int64_t fold = 1; fold <= folds; ++fold) {
          const trainer::Division division{.seed = seed, .folds = folds, .fold = fold};
          const auto split = trainer::split(samples, division);
          kept.insert(split.test.begin(), split.test.end());
          auto all = split.train;
          all.insert(all.end(), split.test.begin(), split.test.end());
          CHECK(std::set(all.begin(), all.end()).size() == static_cast<std::size_t>(samples));
          CHECK(all.size() == static_cast<std::size_t>(samples));
          const auto size = static_cast<std::int64_t>(split.test.size());
          CHECK((size == samples / folds || size == samples / folds + 1));
          CHECK(split.test == trainer::split(samples, division).test);
        }
        CHECK(kept.size() == static_cast<std::size_t>(samples));
        CHECK(std::set(kept.begin(), kept.end()).size() == kept.size());
      }
  CHECK(trainer::split(200, {.seed = 1, .folds = 5}).test != trainer::split(200, {.seed = 2, .folds = 5}).test);
  CHECK(trainer::split(50, {.fraction = 0.2, .seed = 3}).test == data::split_train_test(50, 0.2, 3).test);
  CHECK(trainer::to_note({.fraction = 0.2}) == "0.2");
  CHECK(trainer::to_note({.folds = 5, .fold = 2}) == "fold 2 of 5");
  CHECK(has(error_text([] { trainer::split(4, {.folds = 5}); }), "4 samples cannot be divided into 5 folds"));
  CHECK(has(error_text([] { trainer::split(9, {.folds = 5, .fold = 6}); }), "no fold 6 of 5"));
}

TEST_CASE("segmentation: the largest component of a class is chosen only where it improves the mean Dice, and the file says so") {
  // Class 1 gains on the mean though it loses on one volume, class 2 loses, class 3 stays, class 4 occurs nowhere.
  const std::vector<Case> cases{case_of(0, {1, 0.5, 0.9, 0.7, none}, {none, 0.9, 0.9, 0.7, none}),
                                case_of(1, {1, 0.8, 0.9, none, none}, {none, 0.7, 0.8, none, none})};
  CHECK(chosen_components(cases, 5) == std::vector<std::int64_t>{1});
  const Folder folder;
  const auto path = folder.path / postprocessing_file;
  std::ofstream(path) << to_postprocessing(program(), cases, 5);
  CHECK(read_postprocessing(path, 5) == std::vector<std::int64_t>{1});
  CHECK(has(error_text([&] { (void)read_postprocessing(path, 3); }), "is for 5 classes, the weights have 3"));
  CHECK(has(error_text([&] { (void)read_postprocessing(folder.path / "absent", 3); }), "no such file"));
  const auto targets = regions_of({"whole=1+2+3+4", "most=2+3+4", "core=3+4", "inner=4"}, {});
  CHECK(has(error_text([&] { (void)read_postprocessing(path, 5, targets); }),
            "is for 5 classes, the weights have the regions whole=1+2+3+4, most=2+3+4"));
  std::ofstream(path) << to_postprocessing(program(), cases, 5, targets);
  CHECK(read_postprocessing(path, 5, targets) == std::vector<std::int64_t>{1});
  CHECK(has(error_text([&] { (void)read_postprocessing(path, 5); }), "inner=4, the weights have 5 classes"));
  for (const char* text : {"", "[]", R"({"classes": 5})", R"({"classes": 5, "largest_component": ["a"]})"}) {
    std::ofstream(path) << text;
    CHECK(has(error_text([&] { (void)read_postprocessing(path, 5); }), "is no postprocessing.json"));
  }
  std::ofstream(path) << R"({"classes": 5, "largest_component": [5]})";
  CHECK(has(error_text([&] { (void)read_postprocessing(path, 5); }), "has the class 5; classes are 1 to 4"));
}

TEST_CASE(
    "segmentation: intervals are those of means over cases drawn with replacement; cases without a class are not drawn in") {
  std::vector<Case> cases;
  for (std::int64_t i = 0; i < 40; ++i) cases.push_back(case_of(i, {0, i % 2 == 0 ? 1.0 : 0.0, 0.7, none}, {}));
  const auto [low, high] = interval_of(cases, &Case::dice, 1);
  const double wide = 1.96 * 0.5 / std::sqrt(40.0);  // of a mean of 40 draws of 0 or 1
  CHECK(low == doctest::Approx(0.5 - wide).epsilon(0.15));
  CHECK(high == doctest::Approx(0.5 + wide).epsilon(0.08));
  CHECK(interval_of(cases, &Case::dice, 2)[0] == doctest::Approx(0.7));
  CHECK(interval_of(cases, &Case::dice, 2)[1] == doctest::Approx(0.7));
  CHECK(std::isnan(interval_of(cases, &Case::dice, 3)[0]));
  for (std::size_t i = 0; i < 39; ++i) cases[i].volume_difference[1] = none;
  const auto one = interval_of(cases, &Case::volume_difference, 1);
  CHECK((one[0] == 1 && one[1] == 1));
  CHECK(mean_of(cases, &Case::volume_difference, 1).undefined == 39);
  CHECK(std::isnan(interval_of({cases[0]}, &Case::dice, 1)[0]));
}

TEST_CASE("segmentation: regions are unions of classes") {
  const auto regions = scored_regions({"whole=1+2", "core=2"}, 3);
  REQUIRE(regions.size() == 2);
  CHECK(regions[0].name == "whole");
  CHECK(regions[0].classes == std::vector<std::int64_t>{1, 2});
  CHECK(regions[1].classes == std::vector<std::int64_t>{2});
  for (const char* text : {"whole", "=1", "whole=", "whole=1+", "whole=a", "whole=1,2", "whole=0", "whole=3"})
    CHECK(has(error_text([&] { (void)scored_regions({text}, 3); }), "report.regions: '"));
  CHECK(has(error_text([] { (void)scored_regions({"a=1", "a=2"}, 3); }), "the name of another region"));
  CHECK(has(error_text([&] { (void)scored_regions({"core=1"}, 3, regions); }), "the name of another region"));
}

TEST_CASE("segmentation: the worst slices of all ranks come to rank 0, and volumes without classes are not among them") {
  for (const int ranks : {1, 2, 4})
    check_on_ranks(ranks, "worst slices", [&](const Communicator& world) {
      std::vector<Slice> own;
      for (std::int64_t sample = world.rank(); sample < 20; sample += ranks) {
        // One plane of four has cells; the Dice falls with the number of the volume.
        std::vector<std::int32_t> truth(4 * 3 * 2), predicted(truth.size());
        truth[static_cast<std::size_t>(2 * 6 + sample % 6)] = 1, predicted[13] = 2;
        own.push_back(slice_of({.sample = sample, .predicted = predicted, .truth = truth}, {4, 3, 2},
                               sample == 19 ? none : 1 - 0.01 * static_cast<double>(sample)));
      }
      const auto worst = worst_of(world, std::move(own));
      if (world.rank() != 0) return require(worst.empty(), "[test] rank {} has slices", world.rank());
      require(worst.size() == most_shown, "[test] {} slices", worst.size());
      for (std::size_t i = 0; i < worst.size(); ++i) {
        const auto sample = 18 - static_cast<std::int64_t>(i);
        require(worst[i].sample == sample && worst[i].plane == 2, "[test] volume {}, plane {}", worst[i].sample, worst[i].plane);
        require(worst[i].truth[static_cast<std::size_t>(sample % 6)] == 1 && worst[i].predicted[1] == 2, "[test] other labels");
      }
    });
}

TEST_CASE("segmentation: the page has every volume and class and refers to no other file") {
  const auto source = data::from_tensors(constant(random_normal({2, 4, 8, 6, 1}, {.key = 5}, 0, 1, DType::float32)), zeros({2}),
                                         {.name = "<made>"});
  Results results;
  results.classes = 3, results.regions = {{"whole", {1, 2}}};
  results.cases = {case_of(0, {1, 0.5, none, 0.25}, {none, 0.75, none, none}),
                   case_of(1, {1, 1, 0.125, 1}, {none, 1, 0.125, none})};
  std::vector<std::int32_t> labels(4 * 8 * 6, 0);
  labels[70] = 1;
  results.shown = {slice_of({.sample = 0, .predicted = labels, .truth = labels}, {4, 8, 6}, 0.5)};
  const Folder folder;
  const auto picture = folder.path / "report.png";
  const auto html = page_of(program(), results, {source, source}, picture, "in all");
  for (const char* part : {"&lt;made&gt;", "<h2>Regions</h2>", "<td>whole</td>", "0.125", "Class 1: Dice 0.875", "in all"})
    CHECK_MESSAGE(has(html, part), part);
  CHECK_FALSE(has(html, "<made>"));
  CHECK(has(html, "<img") == plot::available());
  for (const char* part : {"http", "href", "src=\"/", "url("}) CHECK_MESSAGE(!has(html, part), part);
  CHECK_FALSE(std::filesystem::exists(picture));
  // Targets have names and one table.
  results.targets = regions_of({"all=1+2", "core=2"}, {});
  CHECK(results.name_of(2) == "core");
  CHECK(results.name_of(3) == "whole");
  const auto of_regions = page_of(program(), results, {source, source}, picture, "in all");
  for (const char* part : {"Mean Dice of the regions", "<td>all</td>", "<td>whole</td>", "Region all: Dice 0.875"})
    CHECK_MESSAGE(has(of_regions, part), part);
  CHECK_FALSE(has(of_regions, "<h2>Classes</h2>"));
}

TEST_CASE("segmentation: a volume whose scores do not fit is refused with numbers before its values are read, on every rank") {
  const Folder folder;
  // A hole in the file has its values, 256 x 256 x 256 zeros.
  const auto header = placed_file({256, 256, 256}, {}, {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0});
  write_file(folder.path / "v.nii", header);
  std::filesystem::resize_file(folder.path / "v.nii", header.size() + 4 * 256 * 256 * 256);
  for (const auto& extents : {GridExtents{}, GridExtents{.depth = 2}, GridExtents{.depth = 2, .height = 2}})
    check_on_ranks(ranks_of(extents), "memory", [&](const Communicator& world) {
      trainer::Problem problem{.extents = {128, 128, 128}, .channels = 1, .outputs = 105};
      Trained trained{.orientation = "RAS"};
      const auto volumes = open(world, (folder.path / "v.nii").string(), {}, false, trained);
      SegmentOptions options{.grid = make_grid(world, extents), .scored = false};
      const auto refused = error_text([&] { (void)require_memory(world, program(), volumes, problem, options, 0.5); });
      for (const char* part : {"v.nii of [256, 256, 256] cells", "for sums of 105 classes",
                               "left of the 0.5 GiB of predict.memory", "predict.scores=16-bit"})
        require(has(refused, part), "[test] {}", refused);
      // On four ranks, each with less than 2.2 GiB; of this process each counts as having a quarter.
      if (world.size() == 4) {
        problem.extents = {64, 64, 64};
        const auto text = require_memory(world, program(), volumes, problem, options, 2.2);
        require(has(text, "of memory per rank expected: "), "[test] {}", text);
      }
    });
}
