// Samples and labels of cells stored as unsigned 16-bit integers, most of them beyond int16: batches, losses and files equal
// those of the same numbers in float32 and int32.

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "models/data/data.h"
#include "models/data/sources/hdf5.h"
#include "models/data/sources/memory.h"
#include "models/data/sources/pack.h"
#include "models/losses/segmentation.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"
#include "tests/support/files.h"

using namespace mpigrad;
using namespace mpigrad::data;
using namespace mpigrad::testing;

namespace {

using Values = std::vector<double>;

constexpr std::int64_t samples = 5, classes = 3;
const Shape extents{4, 5, 6};

Tensor volumes(DType type) {
  Values values(static_cast<std::size_t>(samples * extents.elements() * 2));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i * 7919 % 65536);
  return from_vector({samples, extents[0], extents[1], extents[2], 2}, values, type);
}

// Few cells have another class than 0.
Tensor labels(DType type, double second = 2) {
  Values values(static_cast<std::size_t>(samples * extents.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = i % 31 == 0 ? 1 : i % 37 == 0 ? second : 0;
  return from_vector({samples, extents[0], extents[1], extents[2]}, values, type);
}

SourcePtr stored(Transform transform = Transform::none) {
  return from_tensors(volumes(DType::uint16), labels(DType::uint16), {.transform = transform, .per_cell = true});
}
SourcePtr wide(Transform transform = Transform::none) {
  return from_tensors(volumes(DType::float32), labels(DType::int32), {.transform = transform, .per_cell = true});
}

}  // namespace

TEST_CASE("uint16 samples: batches are those of float32 and int32") {
  const auto source = stored();
  CHECK(source->type() == DType::uint16);
  CHECK(source->target_type().type == DType::uint16);
  CHECK(source->values(0, source->whole())[5] == 5 * 7919);
  struct Way {
    std::string name;
    LoaderOptions options{};
  };
  const std::vector<Way> ways{
      {"as they are", {.batch = 2}},
      {"moved", {.batch = 2, .seed = 3, .shuffle = true, .flips = true, .shifts = true}},
      {"float64", {.batch = 3, .flips = true, .dtype = DType::float64}},
      {"labels as numbers", {.batch = 2, .target_dtype = DType::float32}},
      {"windows with foreground", {.batch = 2, .seed = 3, .flips = true, .crop = Crop{.extents = {3, 3, 3}, .foreground = 0.7}}},
      {"deformed", {.batch = 2, .seed = 3, .augment = {augment::random_elastic(1, 3)}}}};
  for (const auto& way : ways)
    for (const auto transform : {Transform::none, Transform::log1p, Transform::unit}) {
      INFO(way.name, " ", std::string(name_of(transform)));
      const Loader narrow(stored(transform), way.options), expected(wide(transform), way.options);
      double most = 0;
      for (std::int64_t epoch = 0; epoch < 2; ++epoch)
        for (std::int64_t step = 0; step < narrow.steps(); ++step) {
          const auto batch = narrow.batch(epoch, step), other = expected.batch(epoch, step);
          const auto x = batch.x.to_vector();
          CHECK(x == other.x.to_vector());
          CHECK(batch.y.dtype() == way.options.target_dtype.value_or(DType::uint16));
          CHECK(batch.y.to_vector() == other.y.to_vector());
          most = std::max(most, *std::max_element(x.begin(), x.end()));
        }
      if (transform == Transform::none) CHECK(most > 40000);
      if (transform == Transform::log1p) CHECK(most > 10.5);  // log(1 + 32767) is 10.4
    }
}

TEST_CASE("uint16 samples: labels of it are classes to every loss") {
  const auto scores = random_normal({samples, extents[0], extents[1], extents[2], classes}, {.key = 2}, 0, 1, DType::float64);
  for (const auto loss : {segmentation::soft_dice_loss, segmentation::dice_cross_entropy_loss})
    CHECK(loss(scores, labels(DType::uint16), {}).item() == loss(scores, labels(DType::int32), {}).item());
  CHECK(segmentation::focal_loss(scores, labels(DType::uint16), {}).item() ==
        segmentation::focal_loss(scores, labels(DType::int32), {}).item());
  CHECK(has(error_text([&] { segmentation::soft_dice_loss(scores, labels(DType::uint16, 40000), {}); }),
            "label 40000 is not one of 3 classes"));
}

TEST_CASE("uint16 samples: a row of classes, and files that are packed") {
  Values kinds(samples, 40000);
  kinds.back() = 7;
  const auto rows = from_tensors(volumes(DType::uint16), from_vector({samples}, kinds, DType::uint16));
  const auto batch = Loader(rows, {.batch = samples}).batch(0, 0);
  CHECK(batch.y.type() == TensorType{{samples}, DType::int64});
  CHECK(batch.y.to_vector() == kinds);
  if (without_hdf5("uint16 samples: packed")) return;
  const Folder folder;
  pack(*stored(Transform::log1p), folder / "packed.h5");
  const ArraySource packed(folder / "packed.h5");
  CHECK(packed.type() == DType::uint16);
  CHECK(packed.transform() == Transform::log1p);
  CHECK(packed.target_type().type == DType::uint16);
  const auto source = stored(Transform::log1p);
  for (std::int64_t s = 0; s < samples; ++s) CHECK(packed.values(s, packed.whole()) == source->values(s, source->whole()));
  const LoaderOptions options{.batch = 2, .seed = 3, .flips = true};
  const auto got = Loader(std::make_shared<ArraySource>(folder / "packed.h5"), options).batch(1, 0);
  const auto expected = Loader(wide(Transform::log1p), options).batch(1, 0);
  CHECK(got.x.to_vector() == expected.x.to_vector());
  CHECK(got.y.to_vector() == expected.y.to_vector());
}
