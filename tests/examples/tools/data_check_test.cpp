// The pass over the data of trainers: what it finds is the same on every number of ranks, and weights recognise the data that
// they were trained on by their contents.

#include <doctest/doctest.h>

#include <cmath>

#include "models/data/sources/memory.h"
#include "models/data/sources/open.h"
#include "models/trainer/infer.h"
#include "models/trainer/samples.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/hdf5_files.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

constexpr std::int64_t count = 8;
std::vector<double> values_of(double seed) {
  std::vector<double> values(count * 24);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(seed + static_cast<double>(i));
  return values;
}
data::SourcePtr source_of(const std::vector<double>& values, double target = 1) {
  return data::from_tensors(from_vector({count, 2, 3, 4, 1}, values), from_vector({count}, std::vector<double>(count, target)));
}

constexpr trainer::SplitNotes names{.samples = "samples", .fraction = "test fraction", .seed = "seed", .kept = "test samples"};

// What weights know that were trained on `source`.
CheckpointInfo trained_on(const Communicator& world, const data::Source& source) {
  const auto split = data::split_train_test(source.size(), 0.25, 3);
  CheckpointInfo info;
  info.notes = {{"samples", std::to_string(source.size())},
                {"test fraction", "0.25"},
                {"seed", "3"},
                {"test samples", trainer::fingerprint(source, split.test)}};
  const auto training = trainer::read_data(world, source, split.train, {}),
             kept = trainer::read_data(world, source, split.test, {});
  trainer::add_contents(info.notes, "/some/where/universes/", training, &kept);
  return info;
}

CheckpointInfo older(CheckpointInfo info) {
  for (const auto* note : {trainer::training_contents_note, trainer::kept_contents_note, trainer::data_note})
    info.notes.erase(note);
  return info;
}

}  // namespace

TEST_CASE("data check: contents and the first flaw are the same on every number of ranks") {
  const auto source = source_of(values_of(1));
  auto flawed = values_of(1);
  flawed[24 * 5 + 13] = std::nan(""), flawed[24 * 6] = std::nan("");
  const auto bad = source_of(flawed);
  std::vector<std::int64_t> all = trainer::all_samples(*source);
  trainer::DataContents alone;
  on_ranks(1, [&](const Communicator& world) { alone = trainer::read_data(world, *source, all, {}); });
  CHECK(alone.samples == count);
  CHECK(alone.bytes == count * 24 * 4 + count * 4);
  for (const int ranks : {1, 2, 3, 11})
    check_on_ranks(ranks, "the data are read", [&](const Communicator& world) {
      const auto contents = trainer::read_data(world, *source, all, {});
      require(contents.values == alone.values && contents.targets == alone.targets && contents.bytes == alone.bytes,
              "[test] other contents");
      const auto text = error_text([&] { trainer::read_data(world, *bad, all, {}); });
      require(text == "[data] tensor [5]: the value at [1, 0, 1] [z, y, x] is nan", "[test] {}", text);
      require(error_text([&] { trainer::check_data(world, *bad, all, {}); }) == text, "[test] another text");
    });
}

TEST_CASE("data check: a filter that this HDF5 does not have is named before the first step") {
  if (without_hdf5("data check: a filter")) return;
  const Folder folder;
  write_filtered(folder / "packed.h5", "volume", {2, 1, 2, 2, 1}, "squeezer");
  const auto source = data::open_source(folder / "packed.h5");
  check_on_ranks(2, "a filter is missing", [&](const Communicator& world) {
    const auto text = error_text([&] { trainer::read_data(world, *source, {0, 1}, {}); });
    require(has(text, "packed.h5: dataset 'volume' is packed by the filter 'squeezer' (number 40001)"), "[test] {}", text);
  });
}

TEST_CASE("data check: weights recognise the data that they were trained on by the contents") {
  const auto source = source_of(values_of(1)), relabelled = source_of(values_of(1), 2), other = source_of(values_of(2));
  for (const int ranks : {1, 2})
    check_on_ranks(ranks, "data are recognised", [&](const Communicator& world) {
      const auto info = trained_on(world, *source);
      const auto part_of = [&](const CheckpointInfo& of, const data::Source& data, const std::string& part) {
        trainer::InferOptions o;
        o.data = "here", o.weights = "weights.h5", o.scored = true, o.part = part;
        return trainer::part_of(world, o, of, data, names, {});
      };
      const auto kept = data::split_train_test(count, 0.25, 3).test;
      for (const auto& same : {source, relabelled}) {
        const auto part = part_of(info, *same, "auto");
        require(part.kept && part.samples == kept && part.trained_on == 0, "[test] kept samples are not found");
        const auto all = part_of(info, *same, "all");
        require(!all.kept && all.samples.size() == count && all.trained_on == count - 2, "[test] not all samples");
      }
      // The same names, number and extents.
      const auto fresh = part_of(info, *other, "auto");
      require(!fresh.kept && fresh.samples.size() == count && fresh.trained_on == 0, "[test] new samples are left out");
      require(has(error_text([&] { part_of(info, *other, "test"); }), "here is not what weights.h5 was trained on"),
              "[test] taken");
      // What the training learned from, and nothing else.
      const auto split = data::split_train_test(count, 0.25, 3);
      const auto learned = part_of(info, *trainer::chosen(source, split.train, "", {}), "auto");
      require(!learned.kept && learned.samples.size() == 6 && learned.trained_on == 6,
              "[test] the training's samples are a test");
      require(part_of(info, *trainer::chosen(other, split.train, "", {}), "auto").trained_on == 0, "[test] others are no test");
      // Names are all that older weights know.
      require(part_of(older(info), *other, "auto").kept, "[test] names are not enough for older weights");
      auto renamed = older(info);
      renamed.notes["test samples"] = "others";
      require(!part_of(renamed, *source, "auto").kept, "[test] other names");
    });
}

TEST_CASE("data check: going on with other data is refused, and both are named") {
  const auto source = source_of(values_of(1)), other = source_of(values_of(2)), relabelled = source_of(values_of(1), 2);
  check_on_ranks(1, "training goes on", [&](const Communicator& world) {
    const auto info = trained_on(world, *source);
    auto now = [&](const data::SourcePtr& data) {
      auto notes = trained_on(world, *data).notes;
      notes[trainer::data_note] = "others";
      return notes;
    };
    const auto same = [&](const CheckpointInfo& of, const trainer::Notes& notes) {
      return error_text([&] { trainer::require_same_contents(world, "checkpoint.h5", of, notes); });
    };
    require(same(info, now(source)).empty(), "[test] {}", same(info, now(source)));
    for (const auto& data : {other, relabelled}) {
      const auto text = same(info, now(data));
      require(has(text,
                  "checkpoint.h5 was trained on other samples: contents of training samples of 'universes' 6 samples, values ") &&
                  has(text, ", now of 'others' 6 samples, values "),
              "[test] {}", text);
    }
    // Of older checkpoints names and numbers decide.
    require(same(older(info), now(other)).empty(), "[test] older checkpoints");
    auto fewer = older(info);
    fewer.notes["samples"] = "9";
    require(has(same(fewer, now(source)), ": samples of 'unknown' 9, now of 'others' 8; "), "[test] {}",
            same(fewer, now(source)));
  });
}
