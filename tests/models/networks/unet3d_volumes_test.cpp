// A U-Net on real volumes, split over ranks: loss and gradients equal those of one rank. Crops in double, on two, four and eight
// ranks, run always; whole volumes of 256^3 and of a brain take minutes and run in the long tests.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "comm/collectives/collectives.h"
#include "framework/tensor/random.h"
#include "models/data/compressed/compressed.h"
#include "models/data/volumes/nifti.h"
#include "models/losses/segmentation.h"
#include "models/networks/unet3d.h"
#include "tests/support/all_tests.h"
#include "tests/support/progress.h"
#include "tests/support/ranks.h"
#include "tests/support/shared_data.h"
#include "tests/support/skip.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

struct Volume {
  Shape extents{1, 1, 1};
  std::vector<double> values;
  std::vector<std::int32_t> labels;
};

void standardise(std::vector<double>& values) {
  double mean = 0, squares = 0;
  const auto n = static_cast<double>(values.size());
  for (const double x : values) mean += x / n;
  for (const double x : values) squares += (x - mean) * (x - mean) / n;
  for (double& x : values) x = (x - mean) / std::sqrt(squares);
}

// T1, with grey and white matter as classes 1 and 2.
Volume brain() {
  const auto read = [](const char* what) {
    return data::read_nifti_volume(shared_data(fmt::format("3d/mni152/mni_icbm152_{}_tal_nlin_sym_09a_converted.nii.gz", what)));
  };
  const auto t1 = read("t1"), grey = read("gm"), white = read("wm");
  Volume volume{t1.header.extents, {t1.values.begin(), t1.values.end()}, {}};
  const auto most = [](const data::VolumeValues& v) { return *std::max_element(v.values.begin(), v.values.end()) / 2; };
  const auto half_grey = most(grey), half_white = most(white);
  for (std::size_t i = 0; i < t1.values.size(); ++i)
    volume.labels.push_back(white.values[i] > half_white ? 2 : grey.values[i] > half_grey ? 1 : 0);
  standardise(volume.values);
  return volume;
}

// A map of labels, reduced to three classes, and an image in which each label has a brightness and each cell some noise, as
// SynthSeg generates its images (Billot et al. 2023).
Volume label_map() {
  const auto map = data::read_nifti_labels(shared_data("3d/synthseg_labelmaps/training_seg_01.nii.gz"));
  Volume volume{map.header.extents, {}, {}};
  const Philox brightness{1, 2}, noise{1, 3};
  for (std::size_t i = 0; i < map.values.size(); ++i) {
    const auto label = static_cast<std::uint64_t>(map.values[i]);
    volume.values.push_back(brightness.uniform(label) + 0.05 * noise.normal(i));
    volume.labels.push_back(label == 0 ? 0 : label % 2 == 0 ? 1 : 2);
  }
  standardise(volume.values);
  return volume;
}

Volume middle(const Volume& volume, std::int64_t edge) {
  Volume result{{edge, edge, edge}, {}, {}};
  const auto& e = volume.extents;
  for (std::int64_t d = 0; d < edge; ++d)
    for (std::int64_t h = 0; h < edge; ++h)
      for (std::int64_t w = 0; w < edge; ++w) {
        const auto at =
            static_cast<std::size_t>((((e[0] - edge) / 2 + d) * e[1] + (e[1] - edge) / 2 + h) * e[2] + (e[2] - edge) / 2 + w);
        result.values.push_back(volume.values[at]), result.labels.push_back(volume.labels[at]);
      }
  return result;
}

template <class T, class From>
Tensor block(const std::vector<From>& values, const Shape& extents, const LayoutPtr& layout) {
  const auto box = layout->box();
  Tensor result(TensorType{box.extents(), dtype_of<T>()}, DeviceKind::cpu);
  auto* to = reinterpret_cast<T*>(result.raw());
  for (auto d = box.begin[1]; d < box.end[1]; ++d)
    for (auto h = box.begin[2]; h < box.end[2]; ++h)
      for (auto w = box.begin[3]; w < box.end[3]; ++w)
        *to++ = static_cast<T>(values[static_cast<std::size_t>((d * extents[1] + h) * extents[2] + w)]);
  return constant(result).with_layout(layout);
}

struct Result {
  double loss = 0;
  std::vector<double> gradient;
};

// An eighth of MLPerf's filters.
template <class T>
Result gradient(const Volume& volume, const GridExtents& g) {
  Result result;
  note_progress("U-Net on a real volume");
  on_ranks(g.depth * g.height * g.width, [&](const Communicator& world) {
    const auto grid = make_grid(world, g);
    const auto& e = volume.extents;
    const auto x = block<T>(volume.values, e, activation_layout(grid, {1, e[0], e[1], e[2], 1}));
    const auto labels = block<std::int32_t>(volume.labels, e, split_layout(grid, {1, e[0], e[1], e[2]}, {0, 1, 2, 3}));
    UNet3d net({.filters = {4, 8, 16, 32, 40, 40}});
    net.build(x.layout(), {.seed = 1, .dtype = dtype_of<T>()});
    Tape tape(net);
    const auto share = segmentation::dice_cross_entropy_loss(net(x), labels);
    const auto gradients = tape.gradient(share, net.parameters().tensors());
    const double loss = total(share, world);
    if (world.rank() != 0) return;
    result.loss = loss;
    for (const auto& each : gradients)
      for (const double value : each.to_vector()) result.gradient.push_back(value);
  });
  return result;
}

// In float32 the gradient of a first layer differs from that in double by more than these tolerances: in the uniform surroundings
// of a brain large terms cancel whose roundings all have the same direction.
template <class T>
void check_ranks(const Volume& volume, const std::vector<GridExtents>& grids, double loss_tolerance, double tolerance) {
  const auto one = gradient<T>(volume, {});
  REQUIRE(std::isfinite(one.loss));
  for (const auto& grid : grids) {
    const auto split = gradient<T>(volume, grid);
    CHECK(std::abs(split.loss - one.loss) <= loss_tolerance * std::abs(one.loss));
    REQUIRE(split.gradient.size() == one.gradient.size());
    double apart = 0, norm = 0;
    for (std::size_t i = 0; i < one.gradient.size(); ++i)
      apart += std::pow(split.gradient[i] - one.gradient[i], 2), norm += std::pow(one.gradient[i], 2);
    CHECK(norm > 0);
    CHECK(std::sqrt(apart / norm) <= tolerance);
    MESSAGE((grid.depth * grid.height * grid.width)
            << " ranks: loss apart by " << std::abs(split.loss - one.loss) / std::abs(one.loss) << ", gradient by "
            << std::sqrt(apart / norm));
  }
}
const GridExtents two{.depth = 2}, four{.depth = 2, .height = 2}, eight{.depth = 2, .height = 2, .width = 2};

bool without(const char* name, const char* file) {
  const char* reason = shared_data(file).empty() ? no_shared_data : data::gzip_available() ? nullptr : "this build has no zlib";
  if (reason != nullptr) skip_test(name, reason);
  return reason != nullptr;
}

constexpr const char *a_brain = "3d/mni152/mni_icbm152_t1_tal_nlin_sym_09a_converted.nii.gz",
                     *a_map = "3d/synthseg_labelmaps/training_seg_01.nii.gz";
}  // namespace

TEST_CASE("U-Net on a real brain: two, four and eight ranks have the loss and the gradients of one") {
  if (without("U-Net on a real brain", a_brain)) return;
  const auto volume = brain();
  CHECK(volume.extents == Shape{189, 233, 197});
  check_ranks<double>(middle(volume, all_tests() ? 96 : 36), {two, four, eight}, 1e-11, 1e-11);
  if (all_tests()) check_ranks<float>(volume, {eight}, 1e-5, 2e-4);
}

TEST_CASE("U-Net on a map of labels: two, four and eight ranks have the loss and the gradients of one") {
  if (without("U-Net on a map of labels", a_map)) return;
  const auto volume = label_map();
  CHECK(volume.extents == Shape{256, 256, 256});
  check_ranks<double>(middle(volume, all_tests() ? 96 : 36), {two, four, eight}, 1e-11, 1e-11);
  if (all_tests()) check_ranks<float>(volume, {two, four, eight}, 1e-5, 5e-5);
}
