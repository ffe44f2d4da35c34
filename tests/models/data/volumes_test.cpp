// Samples of different extents: windows of them, deformed and changed, the same on every grid; folders of volumes; segmentation
// of whole volumes by windows.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>

#include "comm/distributed/redistribute.h"
#include "framework/tensor/random.h"
#include "models/data/data.h"
#include "models/data/sources/memory.h"
#include "models/data/sources/normalised.h"
#include "models/data/sources/pack.h"
#include "models/data/view_loader.h"
#include "models/data/volumes/volumes.h"
#include "models/evaluate/sliding_window.h"
#include "models/nn/layers.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/format_files.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;
namespace fs = std::filesystem;

namespace {

// Volumes of several extents whose cells hold where they are: channel a the coordinate along axis a, and labels that are random,
// but for one that is 7 in one cell alone.
class Scans : public data::Source {
 public:
  Scans() {
    type_.extents = {9, 12, 10}, type_.channels = 3, type_.same_extents = false;
    type_.targets = {.type = DType::int32, .shape = {}, .per_cell = true};
  }
  std::int64_t size() const override { return static_cast<std::int64_t>(extents.size()); }
  const data::SampleType& sample_type() const override { return type_; }
  Shape extents_of(std::int64_t sample) const override { return extents[static_cast<std::size_t>(sample)]; }
  void read(std::int64_t sample, const Box& box, std::byte* out) const override {
    cells(sample, box, [&, to = reinterpret_cast<float*>(out)](const std::array<std::int64_t, 3>& at) mutable {
      for (const auto place : at) *to++ = static_cast<float>(place + 1);
    });
  }
  void read_targets(std::int64_t sample, const Box& box, std::byte* out) const override {
    cells(sample, box, [&, to = reinterpret_cast<std::int32_t*>(out)](const auto& at) mutable { *to++ = label(sample, at); });
  }
  static std::int32_t label(std::int64_t sample, const std::array<std::int64_t, 3>& at) {
    if (at == std::array<std::int64_t, 3>{1, 2, 3}) return 7;
    const Philox random{11, static_cast<std::uint64_t>(sample)};
    return static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>((at[0] * 64 + at[1]) * 64 + at[2]), 3));
  }
  static inline const std::vector<Shape> extents{{7, 12, 5}, {9, 4, 10}, {3, 8, 9}, {8, 8, 8}, {2, 5, 4}};

 private:
  template <class F>
  void cells(std::int64_t sample, const Box& box, F f) const {
    const auto whole = whole_of(sample);
    for (int a = 0; a < 3; ++a)
      require(box.begin[a] >= 0 && box.begin[a] < box.end[a] && box.end[a] <= whole.end[a], "[test] {} of {}", to_string(box),
              whole.end);
    for (auto d = box.begin[0]; d < box.end[0]; ++d)
      for (auto h = box.begin[1]; h < box.end[1]; ++h)
        for (auto w = box.begin[2]; w < box.end[2]; ++w) f(std::array{d, h, w});
  }
  data::SampleType type_;
};

struct Batches {
  std::vector<Shape> shapes;
  std::vector<double> x, y;
  bool operator==(const Batches&) const = default;
};
Batches batches(const GridExtents& g, data::LoaderOptions options) {
  Batches result;
  run_threads(g.sample * g.depth * g.height * g.width, [&](std::shared_ptr<Transport> transport) {
    auto mine = options;
    mine.grid = make_grid(Communicator(transport), g);
    const data::Loader loader(std::make_shared<Scans>(), mine);
    for (std::int64_t e = 0; e < 2; ++e)
      for (const auto& [x, y] : loader.epoch(e)) {
        const auto all_x = gather_all(x), all_y = gather_all(y);
        if (transport->rank() != 0) continue;
        result.shapes.push_back(all_x.shape()), result.shapes.push_back(all_y.shape());
        const auto vx = all_x.to_vector(), vy = all_y.to_vector();
        result.x.insert(result.x.end(), vx.begin(), vx.end()), result.y.insert(result.y.end(), vy.begin(), vy.end());
      }
  });
  return result;
}

const Shape window{6, 6, 6};
data::LoaderOptions cropped(double foreground = 0) {
  return {.batch = 2, .seed = 5, .crop = data::Crop{.extents = window, .foreground = foreground}};
}

void write_volume(const fs::path& path, const std::vector<int>& xyz, int factor = 1) {
  std::vector<int> elements;
  for (int i = 0; i < xyz[0] * xyz[1] * xyz[2]; ++i) elements.push_back(factor * (i % 50));
  write_file(path, nifti_file(xyz, 4, elements, {}));
}
void write_labels(const fs::path& path, const fs::path& image, std::int32_t most = 2) {
  const auto header = data::read_nifti_header(image);
  std::vector<std::int32_t> labels;
  for (std::int64_t i = 0; i < header.extents.elements(); ++i) labels.push_back(static_cast<std::int32_t>(i) % (most + 1));
  data::write_nifti_labels(path, labels, header);
}

// Scores of a cell are a function of its own value alone.
class PerCell : public nn::Module {
 public:
  Tensor operator()(const Tensor& x) override { return conv_(x); }

 private:
  nn::Conv3d conv_{*this, "conv", {.out = 3, .kernel = 1}};
};

}  // namespace

TEST_CASE("volumes: a window holds the cells at its place, zeros outside the sample") {
  const auto source = std::make_shared<Scans>();
  const data::Loader loader(source, cropped());
  CHECK(loader.shape() == Shape{2, 6, 6, 6, 3});
  bool padded = false, inside = false;
  for (std::int64_t step = 0; step < loader.steps(); ++step) {
    const auto samples = loader.samples_of(3, step);
    const auto [x, y] = loader.batch(3, step);
    const auto values = x.to_vector(), labels = y.to_vector();
    std::size_t next = 0;
    for (const auto sample : samples) {
      const auto extents = source->extents_of(sample);
      const auto begin = data::draw_window(5, 3, sample, extents, {.extents = window}, nullptr);
      for (std::int64_t d = 0; d < 6; ++d)
        for (std::int64_t h = 0; h < 6; ++h)
          for (std::int64_t w = 0; w < 6; ++w, ++next) {
            const std::array<std::int64_t, 3> at{begin[0] + d, begin[1] + h, begin[2] + w};
            bool there = true;
            for (std::size_t a = 0; a < 3; ++a) there = there && at[a] >= 0 && at[a] < extents[static_cast<int>(a)];
            (there ? inside : padded) = true;
            for (std::size_t a = 0; a < 3; ++a) REQUIRE(values[3 * next + a] == (there ? static_cast<double>(at[a] + 1) : 0));
            REQUIRE(labels[next] == (there ? Scans::label(sample, at) : 0));
          }
      for (std::size_t a = 0; a < 3; ++a)
        if (const auto n = extents[static_cast<int>(a)]; n <= 6) CHECK(begin[a] == -((6 - n) / 2));
        else CHECK((begin[a] >= 0 && begin[a] <= n - 6));
    }
  }
  CHECK((padded && inside));
}

TEST_CASE("volumes: windows reach every place, and those with foreground hold some") {
  const Shape extents{8, 8, 8};
  data::ForegroundCells cells(std::make_shared<Scans>());
  std::set<std::array<std::int64_t, 3>> places;
  int aimed = 0;
  for (std::int64_t epoch = 0; epoch < 400; ++epoch) {
    places.insert(data::draw_window(1, epoch, 3, extents, {.extents = window}, nullptr));
    // Of three classes, one of which is a single cell: it lies in a third of the windows at least.
    const auto begin = data::draw_window(1, epoch, 3, extents, {.extents = {1, 1, 1}, .foreground = 1}, &cells);
    CHECK(Scans::label(3, begin) != 0);
    aimed += begin == std::array<std::int64_t, 3>{1, 2, 3};
  }
  CHECK(places.size() == 27);
  CHECK(aimed > 90);
  CHECK(aimed < 180);
}

TEST_CASE("volumes: windows are the same on every grid, whatever happens to them") {
  for (int kind = 0; kind < 3; ++kind) {
    auto options = cropped(0.5);
    options.flips = kind > 0, options.transpositions = kind > 0;
    options.shuffle = true;
    if (kind == 2) options.elastic = data::Elastic{.amplitude = 1.7, .spacing = 3}, options.intensity = {0.3, 0.2, 0.5};
    const auto expected = batches({}, options);
    CHECK(expected.shapes.size() == 12);
    for (const GridExtents& g : {GridExtents{.depth = 2},
                                 {.sample = 2},
                                 {.height = 3},
                                 {.sample = 2, .depth = 2, .width = 2},
                                 {.depth = 3, .height = 2},
                                 {.width = 6},
                                 {.depth = 2, .height = 2, .width = 2}})
      CHECK(batches(g, options) == expected);
  }
}

TEST_CASE("volumes: an elastic deformation moves cells smoothly and no further than it says") {
  auto options = cropped();
  options.samples = {3}, options.batch = 1;
  options.crop->extents = {8, 8, 8};
  const auto plain = batches({}, options);
  options.elastic = data::Elastic{.amplitude = 0, .spacing = 4};
  CHECK(batches({}, options) == plain);
  options.elastic->amplitude = 1.5;
  const auto moved = batches({}, options);
  double furthest = 0;
  for (std::int64_t d = 2; d < 6; ++d)
    for (std::int64_t h = 2; h < 6; ++h)
      for (std::int64_t w = 2; w < 6; ++w) {  // of the others' places some lie outside
        const auto cell = static_cast<std::size_t>((d * 8 + h) * 8 + w);
        std::array<std::int64_t, 3> nearest{};
        for (std::size_t a = 0; a < 3; ++a) {
          const double there = moved.x[3 * cell + a] - 1, here = plain.x[3 * cell + a] - 1;
          furthest = std::max(furthest, std::abs(there - here));
          nearest[a] = static_cast<std::int64_t>(std::floor(there + 0.5));
        }
        CHECK(moved.y[cell] == Scans::label(3, nearest));
      }
  CHECK(furthest > 0.3);
  CHECK(furthest <= 1.5 + 1e-5);
}

TEST_CASE("volumes: contrast, brightness and noise change values and no labels") {
  auto options = cropped();
  options.batch = 1, options.samples = {3};
  const auto plain = batches({}, options);
  options.intensity = {.contrast = 0.4, .brightness = 0.7, .noise = 0};
  const auto linear = batches({}, options);
  CHECK(linear.y == plain.y);
  const auto cells = static_cast<std::size_t>(window.elements()) * 3;
  std::set<long> factors;
  for (std::size_t epoch = 0; epoch < 2; ++epoch) {
    const auto *before = plain.x.data() + epoch * cells, *after = linear.x.data() + epoch * cells;
    const auto other =
        static_cast<std::size_t>(std::find_if(before, before + cells, [&](double v) { return v != before[0]; }) - before);
    const double factor = (after[other] - after[0]) / (before[other] - before[0]), shift = after[0] - factor * before[0];
    CHECK(std::abs(factor - 1) <= 0.4 + 1e-5);
    CHECK(std::abs(shift) <= 0.7 + 1e-5);
    factors.insert(std::lround(1e6 * factor));
    for (std::size_t i = 0; i < cells; ++i) REQUIRE(after[i] == doctest::Approx(factor * before[i] + shift).epsilon(1e-5));
  }
  CHECK(factors.size() == 2);
  options.intensity = {.contrast = 0, .brightness = 0, .noise = 2};
  const auto noisy = batches({}, options);
  double sum = 0, squares = 0;
  for (std::size_t i = 0; i < cells; ++i) sum += noisy.x[i] - plain.x[i], squares += std::pow(noisy.x[i] - plain.x[i], 2);
  const double deviation = std::sqrt(squares / static_cast<double>(cells));
  CHECK(deviation > 0);
  CHECK(deviation < 2.3);
  CHECK(std::abs(sum / static_cast<double>(cells)) < 5 * deviation / std::sqrt(static_cast<double>(cells)));
}

TEST_CASE("volumes: what cannot be is refused") {
  const auto source = std::make_shared<Scans>();
  CHECK(has(error_text([&] { (void)data::Loader(source, {}); }), "differ in their extents"));
  CHECK(has(error_text([&] { (void)data::pack(*source, "/nowhere/at/all.h5"); }), "differ in their extents"));
  CHECK(has(error_text([&] { (void)data::ViewLoader(source, {.batch = 1, .views = {{{}, 1}}}); }), "differ in their extents"));
  auto options = cropped();
  options.shifts = true;
  CHECK(has(error_text([&] { (void)data::Loader(source, options); }), "periodic shifts"));
  options = cropped(2);
  CHECK(has(error_text([&] { (void)data::Loader(source, options); }), "from 0 to 1"));
  options = cropped();
  options.crop->extents = {6, 0, 6};
  CHECK(has(error_text([&] { (void)data::Loader(source, options); }), "at least 1 each"));
  options = cropped();
  options.elastic = data::Elastic{.amplitude = -1};
  CHECK(has(error_text([&] { (void)data::Loader(source, options); }), "amplitude"));
  options = cropped();
  options.transpositions = true, options.crop->extents = {6, 6, 5};
  CHECK(has(error_text([&] { (void)data::Loader(source, options); }), "for cubes"));
}

TEST_CASE("volumes: normalised samples have mean 0 and deviation 1, box by box") {
  const auto source = data::normalised(std::make_shared<Scans>(), data::Normalisation::whole);
  CHECK(source->type() == DType::float32);
  const auto whole = source->values(0, source->whole_of(0));
  for (std::size_t c = 0; c < 3; ++c) {
    double sum = 0, squares = 0;
    for (std::size_t i = c; i < whole.size(); i += 3) sum += whole[i], squares += whole[i] * whole[i];
    const auto n = static_cast<double>(whole.size()) / 3;
    CHECK(sum / n == doctest::Approx(0).scale(1).epsilon(1e-6));
    CHECK(squares / n == doctest::Approx(1).epsilon(1e-5));
  }
  const auto part = source->values(0, {{2, 3, 1}, {3, 4, 2}});
  for (std::size_t c = 0; c < 3; ++c) CHECK(part[c] == whole[static_cast<std::size_t>((2 * 12 + 3) * 5 + 1) * 3 + c]);

  // Cells that are 0 stay, whatever the mean of the others; a constant channel becomes 0.
  const auto few =
      data::from_tensors(constant(from_vector({1, 1, 2, 3, 2}, std::vector<double>{0, 5, 2, 5, 4, 5, 6, 5, 0, 5, 4, 5})),
                         constant(from_vector({1, 1}, std::vector<double>{0})));
  const auto nonzero = data::normalised(few, data::Normalisation::nonzero);
  const auto values = nonzero->values(0, nonzero->whole());
  const double unit = std::sqrt(2.0);  // of 2, 4, 6, 4: mean 4, variance 2
  const std::vector<double> expected{0, -2 / unit, 0, 2 / unit, 0, 0};
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(values[2 * i] == doctest::Approx(expected[i]).epsilon(1e-6));
    CHECK(values[2 * i + 1] == 0);
  }
  const auto broken = data::from_tensors(constant(from_vector({1, 1, 1, 2, 1}, std::vector<double>{0, std::nan("")})),
                                         constant(from_vector({1, 1}, std::vector<double>{0})), {.name = "broken"});
  const auto refused = data::normalised(broken, data::Normalisation::whole);
  CHECK(has(error_text([&] { (void)refused->values(0, refused->whole()); }), "broken [0]: a value is nan"));
}

TEST_CASE("volumes: a folder of images and labels, as stored and resampled") {
  const Folder folder;
  const auto images = folder.path / "images", labels = folder.path / "labels";
  fs::create_directory(images), fs::create_directory(labels);
  write_volume(images / "a.nii", {4, 6, 2});
  write_volume(images / "b.nii", {5, 3, 4}, 2);
  write_labels(labels / "a.nii.gz", images / "a.nii"), write_labels(labels / "b.nii", images / "b.nii", 1);
  const data::VolumeFolder source(images, labels);
  CHECK(source.size() == 2);
  CHECK_FALSE(source.sample_type().same_extents);
  CHECK(source.extents() == Shape{4, 6, 5});
  CHECK(source.extents_of(1) == Shape{4, 3, 5});
  CHECK(source.values(1, {{1, 2, 3}, {2, 3, 5}}) == std::vector<double>{2.0 * (28 % 50), 2.0 * (29 % 50)});
  std::vector<std::int32_t> read(2);
  source.read_targets(0, {{1, 0, 1}, {2, 1, 3}}, reinterpret_cast<std::byte*>(read.data()));
  CHECK(read == std::vector<std::int32_t>{25 % 3, 26 % 3});
  source.check(0, 1);
  CHECK_FALSE(data::VolumeFolder(images, "").target_type().per_cell);

  const data::VolumeFolder fine(images, labels, {.spacing = {{0.5, 1, 2}}});
  CHECK(fine.extents_of(0) == Shape{4, 6, 2});
  CHECK(fine.spacing_of(0) == std::array{0.5, 1.0, 2.0});
  const auto stored = source.values(0, source.whole_of(0)), resampled = fine.values(0, fine.whole_of(0));
  // Two cells of four along the width became one, and the first plane of the depth stays where nothing lies before it.
  CHECK(resampled[0] == doctest::Approx((stored[0] + stored[1]) / 2));
  CHECK(resampled[12 + 1] == doctest::Approx(0.75 * (stored[2] + stored[3]) / 2 + 0.25 * (stored[24 + 2] + stored[24 + 3]) / 2));
  std::vector<std::int32_t> nearest(static_cast<std::size_t>(fine.extents_of(0).elements()));
  fine.read_targets(0, fine.whole_of(0), reinterpret_cast<std::byte*>(nearest.data()));
  CHECK(nearest[0] == 1 % 3);
  CHECK(nearest[3 * 12] == 25 % 3);

  write_volume(images / "c.nii", {5, 3, 4});
  CHECK(has(error_text([&] { (void)data::VolumeFolder(images, labels); }), "c.nii has no labels"));
  write_labels(labels / "c.nii", images / "a.nii");
  CHECK(has(error_text([&] { (void)data::VolumeFolder(images, labels); }), "not of the same cells: extents"));
  write_file(images / "c.nii", Bytes(40));
  CHECK(has(error_text([&] { (void)data::VolumeFolder(images, labels); }), "c.nii"));
  CHECK(has(error_text([&] { (void)data::VolumeFolder(folder.path, ""); }), "no volumes"));
  CHECK(has(error_text([&] { (void)data::VolumeFolder(folder.path / "none", ""); }), "not a folder"));
}

TEST_CASE("volumes: a table of targets beside a folder of images") {
  const Folder folder;
  write_volume(folder.path / "a.nii", {4, 6, 2});
  write_volume(folder.path / "b.nii.gz", {4, 6, 2}, 2);
  const auto table = folder.path / "targets.csv";
  const auto with = [&](const std::string& text) {
    std::ofstream(table) << text;
    return [&] { return data::VolumeFolder(folder.path, "", {.targets = table}); };
  };
  const auto source = with(
      "\xef\xbb\xbf"
      "file,age,\"score, \"\"raw\"\"\"\r\n\r\nb.nii.gz,7,-1e3\r\na.nii,71.5,0.25\r\nelse.nii,1,2")();
  CHECK(source.target_names() == std::vector<std::string>{"age", "score, \"raw\""});
  CHECK(source.targets(0) == std::vector{71.5, 0.25});
  CHECK(source.targets(1) == std::vector{7.0, -1e3});
  const data::Loader loader(std::make_shared<data::VolumeFolder>(source), {.batch = 2});
  CHECK(loader.batch(0, 0).y.to_vector() == std::vector{71.5, 0.25, 7.0, -1e3});
  CHECK(has(error_text(with("file,age\nb.nii.gz,7\n")), "names no targets of"));
  CHECK(has(error_text(with("file,age\na.nii,7\nb.nii,8\na.nii,7\n")), "'a.nii' stands in two lines"));
  CHECK(has(error_text(with("file,age\na.nii,old\nb.nii,8\n")), "the target 'age' of 'a.nii' is 'old', not a number"));
  CHECK(has(error_text(with("file,age\na.nii,7\nb.nii\n")), "line 3: 1 cells for 2 columns"));
  CHECK(has(error_text(with("file,age\na.nii,\"7\n")), "a quote is not closed"));
  CHECK(has(error_text(with("\n")), "no line names the columns"));
  CHECK(has(error_text(with("file\na.nii\n")), "one for each target"));
}

TEST_CASE("volumes: windows over a volume begin at its begin and end at its end, and overlap as they should") {
  using segmentation::window_places;
  CHECK(window_places(10, 10, 0.5) == std::vector<std::int64_t>{0});
  CHECK(window_places(7, 10, 0.5) == std::vector<std::int64_t>{-1});
  CHECK(window_places(20, 10, 0.5) == std::vector<std::int64_t>{0, 5, 10});
  CHECK(window_places(11, 10, 0) == std::vector<std::int64_t>{0, 1});
  for (const double overlap : {0.0, 0.25, 0.5, 0.9, 0.99})
    for (std::int64_t n = 11; n < 60; n += 7) {
      const auto places = window_places(n, 10, overlap);
      CHECK(places.front() == 0);
      CHECK(places.back() == n - 10);
      for (std::size_t i = 1; i < places.size(); ++i) {
        CHECK(places[i] > places[i - 1]);
        CHECK(static_cast<double>(places[i] - places[i - 1]) <= std::max(1.0, 10 * (1 - overlap)) + 1);
      }
    }
}

TEST_CASE("volumes: what a network says of single cells, it says of any volume through any windows on any grid") {
  const auto source = std::make_shared<Scans>();
  for (std::int64_t sample = 0; sample < source->size(); ++sample) {
    std::vector<float> expected;
    for (const GridExtents& g : {GridExtents{}, {.depth = 2}, {.height = 2, .width = 2}, {.depth = 3}})
      run_threads(g.depth * g.height * g.width, [&](std::shared_ptr<Transport> transport) {
        PerCell net;
        net.build(Shape{1, 4, 5, 3, 3}, {.seed = 9});
        net.train();
        const auto grid = make_grid(Communicator(transport), g);
        const bool first = transport->rank() == 0;
        if (g.depth * g.height * g.width == 1) {
          const auto values = source->values(sample, source->whole_of(sample));
          const auto w = net.parameters()[0].value.to_vector(), b = net.parameters()[1].value.to_vector();
          for (std::size_t i = 0; i < values.size(); i += 3) {
            std::array<double, 3> p{};
            double sum = 0;
            for (std::size_t k = 0; k < 3; ++k) {
              p[k] = b[k];
              for (std::size_t c = 0; c < 3; ++c) p[k] += w[3 * k + c] * values[i + c];
              p[k] = std::exp(p[k]), sum += p[k];
            }
            for (const double each : p) expected.push_back(static_cast<float>(each / sum));
          }
        }
        for (const bool gaussian : {true, false})
          for (const std::int64_t batch : {1, 3}) {
            const auto p = segmentation::sliding_window(
                net, *source, sample, {.window = {4, 5, 3}, .overlap = 0.4, .gaussian = gaussian, .batch = batch, .grid = grid});
            if (!first) continue;
            REQUIRE(p.size() == expected.size());
            double most = 0;
            for (std::size_t i = 0; i < p.size(); ++i) most = std::max(most, std::abs(static_cast<double>(p[i] - expected[i])));
            CHECK(most < 1e-5);
          }
        if (first) CHECK(net.training());
      });
    const auto labels = segmentation::most_likely(expected, 3);
    for (std::size_t i = 0; i < labels.size(); ++i) {
      const auto place = static_cast<std::size_t>(labels[i]);
      for (std::size_t k = 0; k < 3; ++k) REQUIRE(expected[3 * i + place] >= expected[3 * i + k]);
    }
  }
}
