// Predictions of a segmentation network lie where the anatomy is, whatever way its volumes are stored.

#include <doctest/doctest.h>

#include "framework/base/joined.h"
#include "models/data/sources/memory.h"
#include "models/data/volumes/nifti.h"
#include "models/nn/layers.h"
#include "models/trainer/segmentation/parts.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"
#include "ops/views/views.h"
#include "tests/models/data/nifti_files.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;
using trainer::segmenting::Segmented;

namespace {

constexpr std::array<int, 3> xyz{7, 6, 5};
const std::array<double, 12> straight{1.1, 0.2, 0, -7, -0.2, 1, 0, 11, 0, 0, 2, 2};

// The values of cells, whatever way the volume is stored.
std::vector<float> values_of(const Way& way) {
  std::vector<float> values;
  way.for_each_cell(xyz, [&](std::size_t, std::size_t at) { values.push_back(static_cast<float>(at * at % 97)); });
  return values;
}

struct Scores : nn::Module {
  Tensor operator()(const Tensor& x) override { return conv(x); }
  nn::Conv3d conv{*this, "conv", {.out = 3, .kernel = 3, .padding = 1}};
};

}  // namespace

TEST_CASE("segmentation: all 48 ways to store a volume give the same classes at the same places, on any number of ranks") {
  const Folder folder;
  const auto ways = all_ways();
  for (std::size_t w = 0; w < ways.size(); ++w)
    write_file(folder.path / fmt::format("{:02}.nii", w),
               placed_file(ways[w].extents(xyz), values_of(ways[w]), ways[w].affine(xyz, straight),
                           {.version = w % 3 == 0 ? 2 : 1, .big = w % 2 == 1}));
  for (const auto& grid_extents : {GridExtents{}, GridExtents{.sample = 2}, GridExtents{.depth = 2}})
    check_on_ranks(static_cast<int>(grid_extents.sample * grid_extents.depth), "48 ways", [&](const Communicator& world) {
      trainer::segmenting::Trained trained{.orientation = "RAS"};
      trained.problem.outputs = 3, trained.problem.extents = {4, 4, 4}, trained.problem.channels = 1;
      const auto volumes = trainer::segmenting::open(world, folder.path.string(), {}, false, trained);
      Scores net;
      net.build(Shape{1, 4, 4, 4, 1}, {.seed = 3});
      std::vector<std::int64_t> samples(ways.size());
      for (std::size_t w = 0; w < samples.size(); ++w) samples[w] = static_cast<std::int64_t>(w);
      std::vector<std::vector<std::int32_t>> classes(ways.size());
      const auto grid = make_grid(world, grid_extents);
      trainer::segmenting::segment(world, {&net}, volumes, trained.problem, samples,
                                   {.grid = grid, .scored = false, .done = [&](const Segmented& s, double) {
                                      classes[static_cast<std::size_t>(s.sample)] = s.predicted;
                                    }});
      std::vector<std::int32_t> first;  // of the straight cells, as the first volume of this rank has them
      std::array<bool, 3> seen{};
      for (std::size_t w = 0; w < ways.size(); ++w) {
        if (classes[w].empty()) continue;  // another group of ranks has it
        std::vector<std::int32_t> there(classes[w].size());
        ways[w].for_each_cell(xyz, [&](std::size_t in_file, std::size_t at) { there[at] = classes[w][in_file]; });
        if (first.empty()) first = there;
        require(there == first, "[test] volume {} has other classes", w);
      }
      for (const auto label : first) seen[static_cast<std::size_t>(label)] = true;
      require(first.empty() || (seen[0] && seen[1] && seen[2]), "[test] the network tells no classes apart");
    });
}

namespace {

// Class 1 where a value is above 48.5.
struct Above : nn::Module {
  Tensor operator()(const Tensor& x) override { return concatenate({x * 0, (x - 48.5) * 1000}, -1); }
};

}  // namespace

TEST_CASE("segmentation: ignored cells count in no score") {
  const Folder folder;
  const auto images = folder.path / "images", labels = folder.path / "labels";
  std::filesystem::create_directory(images), std::filesystem::create_directory(labels);
  const auto values = values_of({});
  write_file(images / "v.nii", placed_file({7, 6, 5}, values, straight));
  // What the network predicts, with other classes in cells that are ignored.
  std::vector<float> truth, wrong;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float right = values[i] > 48.5F ? 200 : 0;
    truth.push_back(i % 7 == 2 ? 9 : right), wrong.push_back(i % 7 == 2 ? 200 - right : right);
  }
  for (const bool ignored : {true, false}) {
    write_file(labels / "v.nii", placed_file({7, 6, 5}, ignored ? truth : wrong, straight));
    check_on_ranks(1, "ignored cells", [&](const Communicator& world) {
      trainer::segmenting::Trained trained{.orientation = "RAS", .normalisation = "none", .label_map = {"200=1"}};
      if (ignored) trained.ignored = {9};
      trained.problem.outputs = 2, trained.problem.extents = {8, 8, 8}, trained.problem.channels = 1;
      const auto volumes = trainer::segmenting::open(world, folder.path.string(), {}, true, trained);
      Above net;
      const auto cases =
          trainer::segmenting::segment(world, {&net}, volumes, trained.problem, {0}, {.grid = make_grid(world, {})});
      const bool all_right = cases[0].dice[0] == 1 && cases[0].dice[1] == 1 && cases[0].hausdorff[1] == 0;
      require(all_right == ignored, "[test] Dice {}, distance {}", cases[0].dice[1], cases[0].hausdorff[1]);
      const auto counted = static_cast<double>(ignored ? 180 : 210) * 1.1180339887 * 1.0198039027 * 2;
      require(std::abs(cases[0].truth[0] + cases[0].truth[1] - counted) < 1e-3, "[test] {} mm3, not {}",
              cases[0].truth[0] + cases[0].truth[1], counted);
    });
  }
}

TEST_CASE("segmentation: the prediction of a resampled, turned volume is on the file's own cells") {
  const Folder folder;
  const Way way{{1, 2, 0}, {true, false, true}};
  const auto map = way.affine(xyz, {1, 0, 0, 0, 0, 3, 0, 0, 0, 0, 2, 0});
  write_file(folder / "v.nii", placed_file(way.extents(xyz), values_of(way), map));
  check_on_ranks(1, "resampled", [&](const Communicator& world) {
    trainer::segmenting::Trained trained{.orientation = "RAS", .least_spacing = {2, 1, 1}, .most_spacing = {2, 1.5, 1}};
    trained.problem.outputs = 2, trained.problem.extents = {8, 8, 8}, trained.problem.channels = 1,
    trained.normalisation = "none";
    const auto volumes = trainer::segmenting::open(world, (folder / "v.nii").string(), {}, false, trained);
    require(volumes.seen->extents() == Shape{5, 12, 7}, "[test] {}", volumes.seen->extents());
    Above net;
    std::vector<std::int32_t> predicted;
    trainer::segmenting::segment(
        world, {&net}, volumes, trained.problem, {0},
        {.grid = make_grid(world, {}), .overlap = 0.5, .scored = false, .done = [&](const Segmented& s, double) {
           predicted = s.predicted;
         }});
    const auto stored = data::read_nifti_volume(folder / "v.nii").values;
    std::size_t same = 0;
    for (std::size_t i = 0; i < stored.size(); ++i) same += static_cast<std::size_t>((stored[i] > 48.5F) == (predicted[i] == 1));
    // Half of the rows are interpolated between neighbours and some of these cells change.
    require(predicted.size() == stored.size() && same > stored.size() * 3 / 4, "[test] {} of {} cells are the same", same,
            stored.size());
  });
}

TEST_CASE("segmentation: constant and equal volumes are found while the data are read, on any number of ranks") {
  // Volumes 1 and 3 are equal; the second channel of volume 2 is 7.
  auto values = random_normal({4, 16, 5, 4, 2}, {.key = 5}).to_vector();
  const auto size = values.size() / 4;
  std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(size), size, values.begin() + static_cast<std::ptrdiff_t>(3 * size));
  for (std::size_t i = 2 * size + 1; i < 3 * size; i += 2) values[i] = 7;
  const auto source =
      data::from_tensors(constant(from_vector({4, 16, 5, 4, 2}, values, DType::float32)), zeros({4}), {.name = "made"});
  for (const int ranks : {1, 2, 3, 6})
    check_on_ranks(ranks, "equal volumes", [&](const Communicator& world) {
      trainer::segmenting::ValueSummary summary(*source);
      data::ContentsOptions options{.slab_bytes = 1000};
      options.values = [&](std::int64_t sample, const Box& box, const std::byte* from) { summary.add(sample, box, from); };
      (void)trainer::read_data(world, *source, {0, 1, 2}, options);
      (void)trainer::read_data(world, *source, {3}, options);
      const std::vector<std::string> expected{
          "1 volumes have one value in every cell of a channel (made [2]: 7)",
          "1 volumes have the values of another one (made [1] and made [3])",
          "1 volumes are in the training and in the validation, whose scores are then too good (made [1] and made [3])"};
      const auto lines = summary.remarks(world, {3});
      require(lines == expected, "[test] {}", joined(lines, "; "));
    });
}
