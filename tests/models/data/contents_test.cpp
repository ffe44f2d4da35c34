// Checks of the contents of samples: sums that do not depend on the readers and that detect any change, and the first value that
// no network accepts.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "models/data/sources/contents.h"
#include "models/data/sources/folder.h"
#include "models/data/sources/function.h"
#include "models/data/sources/memory.h"
#include "models/data/volumes/volumes.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/format_files.h"

using namespace mpigrad;
using namespace mpigrad::data;
using namespace mpigrad::testing;

namespace {

constexpr std::int64_t count = 3;
const Shape whole{count, 20, 3, 2, 2};

std::vector<double> some_values() {
  std::vector<double> values(static_cast<std::size_t>(whole.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<double>(i));
  return values;
}

SourcePtr source_of(const std::vector<double>& values, const std::vector<double>& targets = {1, 2, 3},
                    DType type = DType::float32, Transform transform = Transform::none) {
  return from_tensors(from_vector(whole, values, type), from_vector({count}, targets, DType::float64), {.transform = transform});
}

const std::vector<std::int64_t> every_sample{0, 1, 2};

struct Sums {
  std::uint64_t values = 0, targets = 0;
  std::int64_t bytes = 0;
  bool operator==(const Sums&) const = default;
};
// The sums of all parts together.
Sums sums_of(const Source& source, std::int64_t parts = 1, const std::vector<std::int64_t>& samples = every_sample,
             const ContentsOptions& options = {}) {
  Sums sums;
  for (std::int64_t part = 0; part < parts; ++part) {
    const auto contents = read_contents(source, samples, part, parts, options);
    CHECK(contents.flaw == "");
    sums.values += contents.values, sums.targets += contents.targets, sums.bytes += contents.bytes;
  }
  return sums;
}

std::string flaw_of(const SourcePtr& source, const ContentsOptions& options = {}) {
  return read_contents(*source, every_sample, 0, 1, options).flaw;
}

}  // namespace

TEST_CASE("contents: the sums of all parts are the same for every number of parts") {
  const auto source = source_of(some_values());
  const auto sums = sums_of(*source);
  CHECK(sums.bytes == whole.elements() * 4 + count * 8);
  for (const std::int64_t parts : {2, 3, 4, 7, 40}) CHECK(sums_of(*source, parts) == sums);
  // Slabs of eight planes.
  const ContentsOptions slabs{.slab_bytes = 400};
  for (const std::int64_t parts : {1, 2, 3, 4, 5, 9, 40}) CHECK(sums_of(*source, parts, every_sample, slabs) == sums);
  // Samples of 57 bytes, which is not a multiple of a word.
  const auto bytes = from_tensors(from_vector({count, 19, 1, 3, 1}, std::vector<double>(171, 200), DType::uint8),
                                  from_vector({count}, {1, 2, 3}));
  for (const std::int64_t parts : {2, 9}) CHECK(sums_of(*bytes, parts, every_sample, {.slab_bytes = 1}) == sums_of(*bytes));
  // Read on a thread of its own, with one job per slab.
  FunctionSamples samples{.size = count, .extents = {20, 3, 2}, .channels = 2};
  samples.values = [values = some_values()](std::int64_t sample, const Box& box, std::span<float> out) {
    const auto begin = static_cast<std::size_t>((sample * 20 + box.begin[0]) * 12);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(values[begin + i]);
  };
  samples.targets = [](std::int64_t sample) { return std::vector<double>{static_cast<double>(sample + 1)}; };
  CHECK(sums_of(FunctionSource(samples), 2, every_sample, slabs).values == sums.values);
}

TEST_CASE("contents: files that are decoded whole are read once") {
  const Folder folder;
  for (const auto* name : {"a.nii", "b.nii"})
    write_file(folder / name, nifti_file({2, 2, 4}, 2, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}));
  const auto sums = [](const Source& source, std::int64_t parts, std::int64_t slab_bytes) {
    return sums_of(source, parts, {0, 1}, {.slab_bytes = slab_bytes});
  };
  const VolumeFolder volumes(folder.path, "");
  CHECK(sums(volumes, 1, 1) == sums(volumes, 1, 1 << 20));
  CHECK(sums(volumes, 5, 1) == sums(volumes, 1, 1));
  const FolderSource scaled(folder.path);
  CHECK(sums(scaled, 2, 1) == sums(scaled, 1, 1 << 20));
  CHECK(sums(scaled, 1, 1).values != sums(volumes, 1, 1).values);
  CHECK(sums(*source_of(some_values()), 1, 400) == sums(*source_of(some_values()), 1, 1 << 20));
}

TEST_CASE("contents: any change shows") {
  const auto values = some_values();
  const auto sums = sums_of(*source_of(values));
  const auto changed = [&](const std::vector<double>& other) { return sums_of(*source_of(other)).values != sums.values; };
  CHECK(!changed(values));
  for (const std::size_t at : {std::size_t{0}, std::size_t{1}, std::size_t{333}, values.size() - 1}) {
    auto other = values;
    other[at] = -other[at] + 1e-3;
    CHECK(changed(other));
  }
  // Changes that a plain sum or xor would not detect.
  auto signs = values;
  signs[8] = -signs[8], signs[16] = -signs[16];
  CHECK(changed(signs));
  auto swapped = values;
  std::swap(swapped[3], swapped[11]);
  CHECK(changed(swapped));
  std::rotate(swapped.begin(), swapped.begin() + 240, swapped.end());  // the samples in another order
  CHECK(changed(swapped));
  CHECK(sums_of(*source_of(values), 1, {0, 2, 1}).values != sums.values);
  CHECK(sums_of(*source_of(values), 1, {0, 1}).values != sums.values);
  CHECK(changed(std::vector<double>(values.size(), 0.0)));
  CHECK(sums_of(*source_of(values, {1, 2, 3}, DType::float64)).values != sums.values);
  const auto other_targets = sums_of(*source_of(values, {1, 2, 4}));
  CHECK(other_targets.targets != sums.targets);
  CHECK(other_targets.values == sums.values);
}

TEST_CASE("contents: the first value that no network can take is named with its place") {
  const auto with = [](double value, DType type = DType::float32, Transform transform = Transform::none) {
    auto values = some_values();
    if (transform == Transform::log1p)
      for (auto& each : values) each = std::floor(std::abs(10 * each));
    values[240 + 11 * 12 + 2 * 4 + 1] = value;  // sample 1, cell [11, 2, 0], channel 1
    return source_of(values, {1, 2, 3}, type, transform);
  };
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  CHECK(flaw_of(with(nan)) == "[data] tensor [1]: the value at [11, 2, 0] [z, y, x] of channel 1 is nan");
  CHECK(flaw_of(with(nan), {.slab_bytes = 200}) == "[data] tensor [1]: the value at [11, 2, 0] [z, y, x] of channel 1 is nan");
  CHECK(flaw_of(with(-inf)) == "[data] tensor [1]: the value at [11, 2, 0] [z, y, x] of channel 1 is -inf");
  CHECK(flaw_of(with(nan), {.finite = false}) == "");
  CHECK(flaw_of(with(inf, DType::float64)) == "[data] tensor [1]: the value at [11, 2, 0] [z, y, x] of channel 1 is inf");
  CHECK(flaw_of(with(-1e39, DType::float64)) ==
        "[data] tensor [1]: the value at [11, 2, 0] [z, y, x] of channel 1 is -1e+39, which float32 cannot hold");
  CHECK(flaw_of(with(1e39, DType::float64), {.dtype = DType::float64}) == "");
  CHECK(flaw_of(with(3.4028234663852886e38)) == "");
  const std::string negative = "is -1: counts, which become log(1 + x), must not be negative";
  for (const auto type : {DType::int64, DType::int32, DType::float32})
    CHECK(has(flaw_of(with(-1, type, Transform::log1p)), negative));
  CHECK(has(flaw_of(with(-1, DType::int64), {.transform = Transform::log1p}), negative));
  CHECK(flaw_of(with(-1, DType::int64)) == "");
  CHECK(flaw_of(source_of(some_values(), {1, nan, 3})) == "[data] tensor [1]: the target 'target 0' is nan");
  CHECK(has(flaw_of(source_of(some_values(), {1, -1e300, 3})), "the target 'target 0' is -1e+300, which float32 cannot hold"));
}

TEST_CASE("contents: samples that cannot be read are flaws, of which the first has the least number") {
  FunctionSamples samples{.size = 6, .extents = {20, 1, 1}};
  samples.values = [](std::int64_t sample, const Box& box, std::span<float> out) {
    if (sample >= 2) fail("[test] sample {} from {} on cannot be read", sample, box.begin[0]);
    std::fill(out.begin(), out.end(), 1.0F);
  };
  samples.targets = [](std::int64_t) { return std::vector<double>{0}; };
  const FunctionSource source(samples);
  std::vector<std::int64_t> six(6);
  std::iota(six.begin(), six.end(), 0);
  const auto alone = read_contents(source, six, 0, 1);
  CHECK(alone.flaw_at == 2);
  CHECK(alone.flaw == "[test] sample 2 from 0 on cannot be read");
  CHECK(read_contents(source, six, 1, 2).flaw_at == 3);
  CHECK(read_contents(source, six, 1, 6).flaw_at == -1);
  CHECK(read_contents(source, six, 1, 24, {.slab_bytes = 4}).flaw_at == -1);
  CHECK(read_contents(source, six, 7, 24, {.slab_bytes = 4}).flaw == "[test] sample 2 from 8 on cannot be read");
  CHECK(read_contents(source, six, 0, 1, {.finite = false}).flaw_at == 2);
}

TEST_CASE("contents: labels of cells are shown as they are read") {
  const auto source = from_tensors(from_vector(whole, some_values()),
                                   from_vector({count, 20, 3, 2}, std::vector<double>(360, 7), DType::uint8), {.per_cell = true});
  std::int64_t cells = 0;
  ContentsOptions options{.slab_bytes = 400};
  options.cells = [&](std::int64_t, const Box& box, const std::byte* labels) {
    for (std::int64_t i = 0; i < box.elements(); ++i) cells += static_cast<int>(labels[i]) == 7;
  };
  CHECK(read_contents(*source, every_sample, 0, 1, options).flaw == "");
  CHECK(cells == 360);
  options.cells = [](std::int64_t sample, const Box&, const std::byte*) { require(sample < 1, "[test] sample {}", sample); };
  CHECK(read_contents(*source, every_sample, 0, 1, options).flaw == "[test] sample 1");
}
