// Notes of segmentation networks in weights.

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "models/trainer/segmentation/parts.h"
#include "tests/support/errors.h"

using namespace mpigrad;
using namespace mpigrad::trainer;
using mpigrad::testing::error_text;

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
