// Samples of different extents: normalised samples, and folders of volumes with labels or a table of targets.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>

#include "framework/base/warning.h"
#include "framework/tensor/random.h"
#include "models/data/augment/geometry.h"
#include "models/data/compressed/compressed.h"
#include "models/data/data.h"
#include "models/data/sources/memory.h"
#include "models/data/sources/normalised.h"
#include "models/data/volumes/label_rules.h"
#include "models/data/volumes/nifti.h"
#include "models/data/volumes/volumes.h"
#include "models/data/window.h"
#include "tests/models/data/nifti_files.h"
#include "tests/models/data/scans.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/format_files.h"

using namespace mpigrad;
using namespace mpigrad::testing;
namespace fs = std::filesystem;

namespace {

std::string packed(const char* name) { return std::string(name) + (data::gzip_available() ? ".nii.gz" : ".nii"); }

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

}  // namespace

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

  // Zero cells stay zero, independent of the mean of the others; a constant channel becomes 0.
  const auto few =
      data::from_tensors(constant(from_vector({1, 1, 2, 3, 2}, std::vector<double>{0, 5, 2, 5, 4, 5, 6, 5, 0, 5, 4, 5})),
                         constant(from_vector({1, 1}, std::vector<double>{0})));
  const auto nonzero = data::normalised(few, data::Normalisation::nonzero);
  const auto values = nonzero->values(0, nonzero->whole());
  const double unit = std::sqrt(2.0);  // values 2, 4, 6, 4: mean 4, variance 2
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

TEST_CASE("volumes: channels with a scale are clipped and normalised by given numbers, others by their own") {
  const auto source =
      data::from_tensors(constant(from_vector({1, 1, 2, 2, 2}, std::vector<double>{-900, 1, 40, 3, 60, 1, 2000, 3})),
                         constant(from_vector({1, 1}, std::vector<double>{0})));
  const std::vector<data::IntensityScale> scales{{-100, 300, 50, 20}, {}};
  const auto seen = data::normalised(source, data::Normalisation::whole, scales);
  CHECK(seen->values(0, seen->whole()) == std::vector<double>{-7.5, -1, -0.5, 1, 0.5, -1, 12.5, 1});
  const auto none = data::normalised(source, data::Normalisation::none, scales);
  CHECK(none->values(0, none->whole()) == std::vector<double>{-7.5, 1, -0.5, 3, 0.5, 1, 12.5, 3});
  const auto broken =
      data::normalised(data::from_tensors(constant(from_vector({1, 1, 1, 1, 1}, std::vector<double>{std::nan("")})),
                                          constant(from_vector({1, 1}, std::vector<double>{0})), {.name = "broken"}),
                       data::Normalisation::whole, {{-1, 1, 0, 1}});
  CHECK(has(error_text([&] { (void)broken->values(0, broken->whole()); }), "broken [0]: a value is nan"));
  CHECK(has(error_text([&] {
              (void)data::normalised(source, data::Normalisation::whole, {{0, 1, 0, 1}});
            }),
            "1 scales of intensities for 2 channels"));
  CHECK(has(error_text([&] { (void)data::normalised(source, data::Normalisation::whole, {{2, 1, 0, 1}, {}}); }), "low to high"));
}

TEST_CASE("volumes: a folder of images and labels, as stored and resampled") {
  const Folder folder;
  const auto images = folder.path / "images", labels = folder.path / "labels";
  fs::create_directory(images), fs::create_directory(labels);
  write_volume(images / "a.nii", {4, 6, 2});
  write_volume(images / "b.nii", {5, 3, 4}, 2);
  write_labels(labels / packed("a"), images / "a.nii"), write_labels(labels / "b.nii", images / "b.nii", 1);
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
  // Two of four cells along the width became one, and the first plane of the depth is unchanged if no plane lies before it.
  CHECK(resampled[0] == doctest::Approx((stored[0] + stored[1]) / 2));
  CHECK(resampled[12 + 1] == doctest::Approx(0.75 * (stored[2] + stored[3]) / 2 + 0.25 * (stored[24 + 2] + stored[24 + 3]) / 2));
  std::vector<std::int32_t> scored(static_cast<std::size_t>(fine.extents_of(0).elements()));
  fine.read_targets(0, fine.whole_of(0), reinterpret_cast<std::byte*>(scored.data()));
  CHECK(scored[0] == 0);  // of the cells 0 and 1, with equal weights, the first
  CHECK(scored[3 * 12] == 24 % 3);

  write_volume(images / "c.nii", {5, 3, 4});
  CHECK(has(error_text([&] { (void)data::VolumeFolder(images, labels); }), "c.nii has no labels"));
  write_labels(labels / "c.nii", images / "a.nii");
  CHECK(has(error_text([&] { (void)data::VolumeFolder(images, labels); }), "do not have the same cells: extents"));
  write_file(images / "c.nii", Bytes(40));
  CHECK(has(error_text([&] { (void)data::VolumeFolder(images, labels); }), "c.nii"));
  CHECK(has(error_text([&] { (void)data::VolumeFolder(folder.path, ""); }), "no volumes"));
  CHECK(has(error_text([&] { (void)data::VolumeFolder(folder.path / "none", ""); }), "not a folder"));
}

TEST_CASE("volumes: labels are resampled by the scores of their classes") {
  const Shape stored{5, 6, 7};
  std::vector<std::int32_t> labels;
  for (std::int64_t i = 0; i < stored.elements(); ++i)
    labels.push_back(static_cast<std::int32_t>(Philox{3}.below(static_cast<std::uint64_t>(i), 4)) - 1);  // -1: ignored
  for (const Shape& to : {Shape{9, 4, 7}, {5, 6, 7}, {2, 13, 3}, {1, 1, 1}}) {
    const auto resampled = augment::resized_labels(labels, stored, to);
    REQUIRE(static_cast<std::int64_t>(resampled.size()) == to.elements());
    std::array<std::vector<double>, 4> scores;
    for (std::int32_t label = -1; label < 3; ++label) {
      augment::WideSample of_label(stored, 1);
      for (std::size_t i = 0; i < labels.size(); ++i) of_label.values[i] = labels[i] == label ? 1 : 0;
      scores[static_cast<std::size_t>(label + 1)] =
          augment::resized(of_label, augment::whole(stored), to, augment::Filter::area).values;
    }
    for (std::size_t i = 0; i < resampled.size(); ++i) {
      const auto own = static_cast<std::size_t>(resampled[i] + 1);
      for (const auto& other : scores) CHECK(scores[own][i] >= other[i] - 1e-12);
    }
    if (to == stored) CHECK(resampled == labels);
  }
}

TEST_CASE("volumes: cubic interpolation leaves surroundings that are 0 as they are") {
  const Folder folder;
  const std::vector<int> xyz{12, 12, 12};
  std::vector<int> elements;
  for (int z = 0; z < 12; ++z)
    for (int y = 0; y < 12; ++y)
      for (int x = 0; x < 12; ++x)
        elements.push_back(std::min({x, y, z}) >= 4 && std::max({x, y, z}) < 8 ? 1000 + (7 * x + 3 * y + z) % 40 : 0);
  write_file(folder.path / "a.nii", nifti_file(xyz, 4, elements, {}));
  const auto opened = [&](bool cubic) {
    const auto spacing = data::VolumeFolder(folder.path, "").spacing_of(0);
    return std::make_shared<data::VolumeFolder>(
        folder.path, "",
        data::VolumesOptions{.spacing = std::array{0.6 * spacing[0], 0.6 * spacing[1], 0.6 * spacing[2]}, .cubic = cubic});
  };
  const auto linear = opened(false), cubic = opened(true);
  const auto a = linear->values(0, linear->whole_of(0)), b = cubic->values(0, cubic->whole_of(0));
  REQUIRE(a.size() == b.size());
  std::size_t zeros = 0, differ = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    zeros += a[i] == 0 ? 1 : 0, differ += std::abs(a[i] - b[i]) > 1 ? 1 : 0;
    if (a[i] == 0) CHECK(b[i] == 0);
  }
  CHECK(zeros > a.size() / 2);
  CHECK(differ > 100);
  // So the surroundings are not measured.
  const auto seen = data::normalised(cubic, data::Normalisation::nonzero);
  const auto values = seen->values(0, seen->whole_of(0));
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i] == 0) CHECK(values[i] == 0);
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
  CHECK(has(error_text(with("file,age\nb.nii.gz,7\n")), "has no targets for"));
  CHECK(has(error_text(with("file,age\na.nii,7\nb.nii,8\na.nii,7\n")), "'a.nii' is in two lines"));
  CHECK(has(error_text(with("file,age\na.nii,old\nb.nii,8\n")), "the target 'age' of 'a.nii' is 'old', not a number"));
  CHECK(has(error_text(with("file,age\na.nii,7\nb.nii\n")), "line 3: 1 cells for 2 columns"));
  CHECK(has(error_text(with("file,age\na.nii,\"7\n")), "a quote is not closed"));
  CHECK(has(error_text(with("\n")), "no line with the names of the columns"));
  CHECK(has(error_text(with("file\na.nii\n")), "a column for each target"));
}

TEST_CASE("volumes: rules for labels, by file and as a source of its own") {
  const auto rules = data::label_rules({"255=1", "7=0", "-4=2"}, {3, -2});
  std::vector<std::int32_t> labels{0, 255, 7, -4, 3, -2, 5, 5000, 255};
  rules.apply(labels, "l.nii");
  CHECK(labels == std::vector<std::int32_t>{0, 1, 0, 2, data::ignored_label, data::ignored_label, 5, 5000, 1});
  labels = {-1};
  CHECK(has(error_text([&] { rules.apply(labels, "l.nii"); }),
            "l.nii: a label is -1; labels that no rule names must not be negative"));
  CHECK(has(error_text([&] { data::LabelRules().apply(labels, "l.nii"); }), "l.nii: a label is -1"));
  // Exchanged labels: every stored label is looked up once.
  labels = {1, 2, 1};
  data::label_rules({"1=2", "2=1"}, {}).apply(labels, "");
  CHECK(labels == std::vector<std::int32_t>{2, 1, 2});
  for (const char* text : {"", "255", "255=", "=1", "a=1", "1=b", "1=2=3", "1.5=2", "99999999999=1"})
    CHECK(has(error_text([&] { (void)data::label_rules({text}, {}); }), "is no rule for labels"));
  CHECK(has(error_text([&] { (void)data::label_rules({"1=-1"}, {}); }), "classes count from 0"));
  CHECK(has(error_text([&] { (void)data::label_rules({"1=2", "1=3"}, {}); }), "two rules name the label 1"));
  CHECK(has(error_text([&] { (void)data::label_rules({"1=2"}, {1}); }), "two rules name the label 1"));

  const auto scans = std::make_shared<Scans>();  // one cell has label 7
  const auto source = data::relabelled(scans, data::label_rules({"7=1"}, {2}));
  const auto whole = source->whole_of(0);
  std::vector<std::int32_t> before(static_cast<std::size_t>(whole.elements())), after = before;
  scans->read_targets(0, whole, reinterpret_cast<std::byte*>(before.data()));
  source->read_targets(0, whole, reinterpret_cast<std::byte*>(after.data()));
  for (std::size_t i = 0; i < before.size(); ++i) CHECK(after[i] == (before[i] == 7 ? 1 : before[i] == 2 ? -1 : before[i]));
  CHECK(source->values(0, {{1, 2, 3}, {2, 3, 4}}) == scans->values(0, {{1, 2, 3}, {2, 3, 4}}));
  // Ignored cells are no foreground.
  data::ForegroundCells foreground(source);
  for (const auto& cells : foreground.of(0))
    for (const auto cell : cells) CHECK(after[static_cast<std::size_t>(cell)] == 1);
}

TEST_CASE("volumes: rules name negative labels of NIfTI files") {
  const Folder folder;
  const auto image = folder / "a.nii", labels = folder / "l" / "a.nii";
  write_volume(image, {3, 1, 1});
  fs::create_directory(folder / "l");
  write_file(labels, nifti_file({3, 1, 1}, 4, {-1, 0, -5}, {}));
  const auto read = [&](const data::LabelRules& rules) {
    const data::VolumeFolder source(image, folder / "l", {.labels = rules});
    std::vector<std::int32_t> values(3);
    source.read_targets(0, source.whole_of(0), reinterpret_cast<std::byte*>(values.data()));
    CHECK(source.stored_labels(0) == values);
    return values;
  };
  CHECK(read(data::label_rules({"-1=2"}, {-5})) == std::vector<std::int32_t>{2, 0, data::ignored_label});
  CHECK(has(error_text([&] { read({}); }), "a.nii: a label is -1; labels that no rule names must not be negative"));
  CHECK(has(error_text([&] { read(data::label_rules({}, {-1})); }), "a.nii: a label is -5"));
}

TEST_CASE("volumes: channels in files of their own, named as nnU-Net names them") {
  const Folder folder;
  const auto images = folder.path / "imagesTr", labels = folder.path / "labelsTr";
  fs::create_directory(images), fs::create_directory(labels);
  for (const char* name : {"a", "b_0001"})
    for (int c = 0; c < 3; ++c) write_volume(images / fmt::format("{}_{:04}.nii", name, c), {4, 3, 2}, c + 1);
  write_labels(labels / "a.nii", images / "a_0000.nii"), write_labels(labels / packed("b_0001"), images / "b_0001_0000.nii");
  write_volume(images / "._a_0000.nii", {1, 1, 1});  // hidden, as archives of other systems have them
  const auto open = [&](const fs::path& of_labels, const data::VolumesOptions& options = {}) {
    return data::VolumeFolder(images, of_labels, options);
  };
  const auto source = open(labels);
  CHECK(source.size() == 2);
  CHECK(source.channels() == 3);
  CHECK(source.channel_files());
  const auto values = source.values(1, source.whole_of(1));
  for (std::size_t i = 0; i < values.size(); ++i) CHECK(values[i] == static_cast<double>((i % 3 + 1) * (i / 3)));
  CHECK(source.label_file(0) == "a.nii");
  CHECK(source.label_file(1) == "b_0001.nii");
  std::vector<std::int32_t> read(24);
  source.read_targets(0, source.whole_of(0), reinterpret_cast<std::byte*>(read.data()));
  CHECK(read[5] == 5 % 3);

  // Without labels the caller says whether files are channels.
  CHECK(open("", {.channel_files = true}).size() == 2);
  CHECK(open("").size() == 6);
  CHECK(open("").label_file(1) == "a_0001.nii");
  // Labels with the names of images: no channels, whatever the names.
  for (const char* name : {"a_0000", "a_0001", "a_0002", "b_0001_0000", "b_0001_0001", "b_0001_0002"})
    write_labels(labels / fmt::format("{}.nii", name), images / fmt::format("{}.nii", name));
  CHECK(open(labels).size() == 6);
  for (const auto& entry : fs::directory_iterator(labels))
    if (entry.path().filename().string().starts_with("a_") || entry.path().filename().string().starts_with("b_0001_"))
      fs::remove(entry.path());

  fs::remove(images / "a_0001.nii");
  CHECK(has(error_text([&] { open(labels); }), "imagesTr/a has no file a_0001 of channel 1"));
  write_volume(images / "a_0001.nii", {4, 3, 3});
  CHECK(has(error_text([&] { open(labels); }), "a_0001.nii do not have the same cells: extents"));
  write_file(images / "a_0001.nii", nifti_file({4, 3, 2, 2}, 2, std::vector<int>(48)));
  CHECK(has(error_text([&] { open(labels); }), "a_0001.nii has 2 channels; a file of one channel has one"));
  fs::remove(images / "a_0001.nii"), write_volume(images / "a_0001.nii.gz", {4, 3, 2}), write_volume(images / "c.nii", {4, 3, 2});
  CHECK(has(error_text([&] { open(labels); }), "c.nii has no number of its channel, as c_0000 has"));
}

TEST_CASE("volumes: a cache has what the files have, for their options and until they change") {
  const Folder folder;
  const auto image = folder / "images" / "a.nii", labels = folder / "labels" / "a.nii", cache = folder / "new" / "cache";
  fs::create_directory(folder / "images"), fs::create_directory(folder / "labels");
  const auto write = [&](float factor) {
    std::vector<float> values;
    for (int i = 0; i < 5 * 6 * 7; ++i) values.push_back(factor * static_cast<float>(i % 50));
    write_file(image, placed_file({5, 6, 7}, values, {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0}));
  };
  write(1), write_labels(labels, image, 3);
  const auto read = [&](data::VolumesOptions options, Box box, const fs::path& to) {
    options.cache = to;
    const data::VolumeFolder source(folder / "images", folder / "labels", options);
    auto numbers = source.values(0, box);
    std::vector<std::int32_t> classes(static_cast<std::size_t>(box.elements()));
    source.read_targets(0, box, reinterpret_cast<std::byte*>(classes.data()));
    numbers.insert(numbers.end(), classes.begin(), classes.end());
    return numbers;
  };
  const auto files = [&] { return std::distance(fs::directory_iterator(cache), fs::directory_iterator()); };
  const data::VolumesOptions finer{.spacing = std::array{1.0, 0.6, 1.0}};
  const std::vector<data::VolumesOptions> kinds{
      {}, finer, {.spacing = finer.spacing, .cubic = true}, {.orientation = "LPS"}, {.labels = data::label_rules({"3=2"}, {1})}};
  const Box box{{2, 1, 1}, {5, 4, 3}}, whole{{0, 0, 0}, {7, 6, 5}};
  for (const auto& kind : kinds)
    for (int again = 0; again < 2; ++again) {
      CHECK(read(kind, box, cache) == read(kind, box, ""));
      if (!kind.spacing) CHECK(read(kind, whole, cache) == read(kind, whole, ""));
    }
  CHECK(files() == 8);  // values of kinds 1 and 5, and labels of kinds 2 and 3, are the same

  // They are read from there; files that have changed are not, even with the size and the time of change that they had.
  const auto before = read({}, box, "");
  const auto changed_in_cache = [&](int by) {
    for (const auto& entry : fs::directory_iterator(cache)) {
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      std::vector<char> cells(4 * 5 * 6 * 7);  // of labels; the first cells of larger volumes
      file.read(cells.data(), static_cast<std::streamsize>(cells.size()));
      for (auto& cell : cells) cell = static_cast<char>(cell ^ by);
      file.seekp(0), file.write(cells.data(), static_cast<std::streamsize>(cells.size()));
    }
  };
  changed_in_cache(1);
  CHECK(read({}, box, cache) != before);
  changed_in_cache(1);
  CHECK(read({}, box, cache) == before);
  const auto time = fs::last_write_time(image);
  write(2), fs::last_write_time(image, time);
  CHECK(read({}, box, "") != before);
  CHECK(read({}, box, cache) == read({}, box, ""));
  CHECK(files() == 8);

  // A file that is not whole, or of another state, is written again; one that others may change is refused.
  changed_in_cache(1);
  for (const auto& entry : fs::directory_iterator(cache)) fs::resize_file(entry.path(), entry.file_size() - 1);
  CHECK(read({}, box, cache) == read({}, box, ""));
  changed_in_cache(1);
  for (const auto& entry : fs::directory_iterator(cache)) {
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-2, std::ios::end), file.put('?');
  }
  CHECK(read({}, box, cache) == read({}, box, ""));
  CHECK(files() == 8);
  for (const auto& entry : fs::directory_iterator(cache)) fs::permissions(entry.path(), fs::perms(0666));
  CHECK(has(error_text([&] { (void)read({}, box, cache); }), "may be changed by other users"));
  // Without room (here: without the folder) there is one warning, and volumes are read.
  data::VolumesOptions options{.cache = cache};
  const data::VolumeFolder source(folder / "images", "", options);
  fs::remove_all(cache);
  (void)detail::take_warnings();
  for (int i = 0; i < 2; ++i) CHECK(source.values(0, box) == data::VolumeFolder(folder / "images", "").values(0, box));
  const auto warnings = detail::take_warnings();
  REQUIRE(warnings.size() == 1);
  CHECK(has(warnings.front(), "the cache of volumes does not grow any more: [data] "));
  CHECK(has(error_text([&] { (void)read({}, box, image); }), "a.nii is not a folder"));
}
