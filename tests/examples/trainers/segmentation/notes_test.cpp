// Notes of segmentation networks in weights, dataset.json, and regions.

#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "models/evaluate/window_sums.h"
#include "models/trainer/segmentation/dataset.h"
#include "models/trainer/segmentation/parts.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

using namespace mpigrad;
using namespace mpigrad::trainer;
using mpigrad::testing::error_text;
using mpigrad::testing::has;

namespace {

SegmentationProgram program() {
  return {.name = "unet3d",
          .network = {},
          .settings = {{.name = "variant", .value = "mlperf", .rule = one_of({"mlperf", "lbann"})},
                       {.name = "filters", .value = std::vector<std::int64_t>{}, .rule = whole(1, 65536)},
                       {.name = "norm", .value = "", .rule = one_of({"instance", "batch"})},
                       {.name = "groups", .value = 8},
                       {.name = "momentum", .value = 0.9}},
          .note_names = {{"groups", "norm_groups"}, {"momentum", ""}},
          .summaries = {{"evaluate", {"filters"}}}};
}

// Of a file of weights with this note.
segmenting::Trained read(const std::string& note) {
  CheckpointInfo info;
  info.notes["unet3d"] = note;
  return segmenting::trained_of(program(), "w.h5", info);
}

const std::string network = R"("norm":"instance","norm_groups":4,"classes":3,"channels":1,"window":[40,56,40])";

}  // namespace

TEST_CASE("the note of a segmentation network is read and written as earlier versions wrote it") {
  const std::string note =
      R"({"variant":"lbann","filters":[12,24,48,96],)" + network + R"(,"normalisation":"whole","spacing":[1.0,0.5,2.0]})";
  const auto trained = read(note);
  CHECK(trained.problem.get<std::vector<std::int64_t>>("filters") == std::vector<std::int64_t>{12, 24, 48, 96});
  CHECK(trained.problem.get<std::int64_t>("groups") == 4);
  CHECK(trained.problem.get<double>("momentum") == 0.9);
  CHECK(trained.problem.extents == Shape{40, 56, 40});
  CHECK(trained.problem.outputs == 3);
  CHECK(segmenting::to_note(program(), trained) == note);
  CHECK(segmenting::summary_of(program(), "evaluate", trained.problem).dump() == R"({"filters":[12,24,48,96]})");
  CHECK(segmenting::summary_of(program(), "train", trained.problem).size() == 5);
}

TEST_CASE("a setting that a note does not have gets its default; values that are none are refused") {
  CHECK(read("{" + network + R"(,"normalisation":"none"})").problem.get<std::string>("variant") == "mlperf");
  const std::string refused = "[weights] w.h5: the note 'unet3d' does not describe a network";
  for (const auto* part :
       {R"("variant":"resnet")", R"("filters":[0,4,4])", R"("filters":["wide"])", R"("variant":["mlperf","lbann"])"})
    CHECK(error_text([&] { read(fmt::format(R"({{{},{},"normalisation":"none"}})", part, network)); }) == refused);
  CHECK(error_text([&] { read("{" + network + "}"); }) == refused);
  CHECK(error_text([&] {
          segmenting::trained_of(program(), "w.h5", {});
        }).starts_with("[weights] w.h5 holds no weights of this program"));
  auto other = program();
  other.settings.front().name = "window";
  auto trained = read("{" + network + R"(,"normalisation":"none"})");
  trained.problem.values["window"] = "wide";
  CHECK(error_text([&] { segmenting::to_note(other, trained); }) ==
        "[trainer] two entries of the weights' note are called 'window'");
}

TEST_CASE("the note keeps rules for labels and whether channels are files") {
  auto trained = read("{" + network + R"(,"normalisation":"none"})");
  CHECK_FALSE(trained.channel_files);
  const auto plain = segmenting::to_note(program(), trained);
  CHECK(plain.find("label") == std::string::npos);
  trained.label_map = {"255=1"}, trained.ignored = {7, 9}, trained.channel_files = true;
  const auto again = read(segmenting::to_note(program(), trained));
  CHECK(again.label_map == trained.label_map);
  CHECK(again.ignored == trained.ignored);
  CHECK(again.channel_files);
  CHECK(again.classes() == 3);
  trained.regions = segmenting::regions_of({"whole=1+2+3", "core=2+3", "enhancing=3"}, {}), trained.label_classes = 5;
  const auto of_regions = read(segmenting::to_note(program(), trained));
  CHECK(of_regions.regions == trained.regions);
  CHECK(of_regions.classes() == 5);
  trained.regions.pop_back();
  CHECK(has(error_text([&] { read(segmenting::to_note(program(), trained)); }), "does not describe a network"));
  CHECK(!error_text([&] { read("{" + network + R"(,"normalisation":"none","label_map":3})"); }).empty());
}

TEST_CASE("dataset.json of both versions of nnU-Net, and the folders of a data set") {
  const testing::Folder folder;
  const auto& path = folder.path;
  const auto dataset = [&](const std::string& text) {
    std::ofstream(path / "dataset.json") << text;
    return segmenting::read_dataset_file(path);
  };
  CHECK_FALSE(segmenting::data_folders(path, true));
  CHECK(dataset("{}").path.empty());  // no imagesTr
  std::filesystem::create_directory(path / "imagesTr");
  CHECK(error_text([&] { (void)segmenting::data_folders(path, true); }).ends_with("has imagesTr/ and no labelsTr/"));
  std::filesystem::create_directory(path / "labelsTr");
  CHECK(segmenting::data_folders(path, true)->labels == path / "labelsTr");
  CHECK(segmenting::data_folders(path, false)->images == path / "imagesTr");
  std::filesystem::create_directory(path / "imagesTs");
  CHECK(segmenting::data_folders(path, false)->images == path / "imagesTs");
  CHECK(segmenting::data_folders(path, true)->images == path / "imagesTr");

  auto file = dataset(
      R"({"channel_names": {"0": "T1", "1": "T2"}, "labels": {"background": 0, "core": 1, "edge": 2, "ignore": 3},
          "numTraining": 40, "file_ending": ".nii.gz"})");
  CHECK(file.classes == 3);
  CHECK(file.ignored == std::vector<std::int64_t>{3});
  CHECK(file.channels == 2);
  CHECK(file.images == 40);
  file = dataset(
      R"({"modality": {"0": "MRI"}, "labels": {"0": "background", "1": "Anterior", "2": "Posterior"}, "numTraining": 260})");
  CHECK(file.classes == 3);
  CHECK(file.ignored.empty());
  CHECK(file.channels == 1);
  file = dataset(R"({"channel_names": {"1": "CT", "0": "T1"}})");
  CHECK(file.modalities == std::vector<std::string>{"T1", "CT"});
  file = dataset(R"({"labels": {"background": 0, "whole": [1, 2, 3], "core": [2, 3]}})");
  CHECK(file.classes == 4);
  CHECK(file.regions == std::vector<std::string>{"whole=1+2+3", "core=2+3"});
  CHECK(file.region_order.empty());
  file = dataset(
      R"({"labels": {"background": 0, "whole": [1, 2, 3], "core": [2, 3], "enhancing": 3, "ignore": 4}, "regions_class_order": [1, 2, 3]})");
  CHECK(file.regions == std::vector<std::string>{"whole=1+2+3", "core=2+3", "enhancing=3"});
  CHECK(file.region_order == std::vector<std::int64_t>{1, 2, 3});
  CHECK(file.ignored == std::vector<std::int64_t>{4});
  for (const char* text : {"", "[", "3", R"({"labels": {"a": null}})", R"({"labels": {"a": "b"}})", R"({"numTraining": []})"})
    CHECK(has(error_text([&] { (void)dataset(text); }), "dataset.json"));
  CHECK(has(error_text([&] { (void)dataset(std::string(1000, '[')); }), "brackets in brackets"));
}

TEST_CASE("regions: orders, classes of probabilities, and what is refused") {
  const std::vector<std::string> texts{"core=3+2", "enhancing=3", "whole=1+2+3"};
  const auto regions = segmenting::regions_of(texts, {});
  std::vector<std::string> sorted;
  std::vector<std::int64_t> written;
  for (const auto& region : regions) sorted.push_back(segmenting::text_of(region)), written.push_back(region.written);
  CHECK(sorted == std::vector<std::string>{"whole=1+2+3", "core=2+3", "enhancing=3"});
  CHECK(written == std::vector<std::int64_t>{1, 2, 3});
  CHECK(segmenting::classes_of(regions) == 4);
  // Later regions win; none above 1/2 is background.
  const std::vector<std::pair<std::vector<float>, int>> cells{{{0.4F, 0.5F, 0.1F}, 0},
                                                              {{0.6F, 0.4F, 0.2F}, 1},
                                                              {{0.9F, 0.7F, 0.3F}, 2},
                                                              {{0.9F, 0.7F, 0.8F}, 3},
                                                              {{0.2F, 0.1F, 0.6F}, 3}};
  for (const auto& [p, label] : cells) CHECK(segmentation::class_of(p, segmenting::written_by(regions), 0.5F) == label);
  CHECK(segmenting::cells_of(regions[1], {0, 1, 2, 3}) == std::vector<std::int32_t>{0, 0, 1, 1});
  const auto refused = [&](const std::vector<std::string>& of, const std::vector<std::int64_t>& order, const char* text) {
    CHECK(has(error_text([&] { (void)segmenting::regions_of(of, order); }), text));
  };
  refused({"whole"}, {}, "is not NAME=CLASS");
  refused({"whole=1+"}, {}, "is not NAME=CLASS");
  refused({"whole=0+1"}, {}, "is not NAME=CLASS");
  refused({"a=1", "a=2"}, {}, "two regions are called a");
  refused({"a=1", "b=1"}, {}, "the classes of another one");
  refused({"whole=1+2"}, {}, "labels.region_order says");
  refused(texts, {2, 3}, "2 classes for 3 regions");
  refused({"core=2+3", "whole=1+2+3"}, {2, 1}, "no cell would get 2");
  refused({"core=2+3", "whole=1+2+3"}, {1, 2}, "which the region does not have");
}
