// Networks to files and back, on any grid; files that do not fit are refused and change nothing.

#include "models/train/checkpoint/checkpoint.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "comm/collectives/collectives.h"
#include "comm/hdf5/hdf5_file.h"
#include "framework/base/new_file.h"
#include "ops/elementwise/elementwise.h"
#include "tests/models/train/checkpoint_helpers.h"
#include "tests/support/files.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;
using namespace mpigrad::testing::checkpoints;
namespace fs = std::filesystem;

namespace {

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

const nn::BuildOptions in_double{.seed = 5, .dtype = DType::float64};
const Shape input{4, 16, 16, 16, 4};

}  // namespace

TEST_CASE("a checkpoint resumes training on another grid where it stopped") {
  if (without_hdf5("checkpoints")) return;
  Folder folder;
  const auto file = folder.path / "net.h5";

  std::vector<double> uninterrupted;
  run_threads(1, [&](std::shared_ptr<Transport> transport) {
    CosmoFlow net(small());
    net.build(input, in_double);
    Adam adam(net, {.learning_rate = 1e-3});
    train(Session(transport), {}, net, adam, 0, 5);
    uninterrupted = everything(net);
  });
  run_threads(2, [&](std::shared_ptr<Transport> transport) {
    CosmoFlow net(small());
    net.build(input, in_double);
    Adam adam(net, {.learning_rate = 1e-3});
    train(Session(transport), {.depth = 2}, net, adam, 0, 3);
    save_checkpoint(
        file, net, Communicator(transport),
        {.optimizer = &adam, .info = {.step = 3, .epoch = 1, .notes = {{"variant", "hybrid"}, {"formula", "a = b"}}}});
  });
  run_threads(3, [&](std::shared_ptr<Transport> transport) {
    CosmoFlow net(small());
    net.build(input, {.seed = 6, .dtype = DType::float64});
    Adam adam(net, {.learning_rate = 1e-3});
    const auto info = load_checkpoint(file, net, {.optimizer = &adam});
    // Dropout uses the seed of build(), which is not in the checkpoint: rebuild with the same seed.
    CosmoFlow same(small());
    same.build(input, in_double);
    Adam again(same, {.learning_rate = 1e-3});
    load_checkpoint(file, same, {.optimizer = &again});
    if (transport->rank() == 0) {
      CHECK(info.step == 3);
      CHECK(info.epoch == 1);
      CHECK(info.notes.at("variant") == "hybrid");
      CHECK(info.notes.at("formula") == "a = b");
      CHECK(again.steps() == 3);
      CHECK(everything(net) == everything(same));
    }
    train(Session(transport), {.height = 3}, same, again, 3, 5);
    if (transport->rank() == 0) CHECK(largest_difference(everything(same), uninterrupted) < 1e-9);
  });
}

TEST_CASE("averaged weights travel with a checkpoint") {
  if (without_hdf5("checkpoints")) return;
  Folder folder;
  const auto file = folder.path / "net.h5";
  run_threads(1, [&](std::shared_ptr<Transport> transport) {
    CosmoFlow net(small()), other(small());
    net.build(input, in_double), other.build(input, in_double);
    AveragedWeights averages(net), others(other);
    // Before the first step there is no average yet, so the averages are the network's weights.
    save_checkpoint(file, net, Communicator(transport), {.averages = &averages});
    (void)load_checkpoint(file, other, {.averaged = true});
    CHECK(other.parameters()[0].value.to_vector() == net.parameters()[0].value.to_vector());
    averages.update();
    save_checkpoint(file, net, Communicator(transport), {.averages = &averages});
    CHECK((load_checkpoint(file, other, {.averages = &others}), others.updates()) == 1);
    CHECK(others.state()[0].value.to_vector() == averages.state()[0].value.to_vector());
  });
}

TEST_CASE("checkpoints that do not fit are refused") {
  if (without_hdf5("checkpoints")) return;
  Folder folder;
  const auto file = folder.path / "net.h5", bare = folder.path / "bare.h5", text = folder.path / "notes.h5";
  Hdf5Writer writer(bare, false);
  writer.attribute("/", "format", std::string("something else"));
  writer.commit();
  write_new_file(text, "of the parameters", "test");
  run_threads(2, [&](std::shared_ptr<Transport> transport) {
    const Communicator world(transport);
    CosmoFlow net(small());
    net.build(input, in_double);
    // A damaged checkpoint is replaced like a whole one; other files stay. An error of rank 0 is thrown on both.
    save_checkpoint(file, net, world, {.info = {.step = 1}});
    save_checkpoint(file, net, world, {.info = {.step = 2}});
    CHECK(read_checkpoint_info(file).step == 2);
    barrier(world);
    if (world.rank() == 0) std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
    const auto foreign = error_text([&] { save_checkpoint(bare, net, world); });
    const auto no_hdf5 = error_text([&] { save_checkpoint(text, net, world); });
    CHECK(read_bytes(text) == "of the parameters");
    const auto nowhere = error_text([&] { save_checkpoint(folder.path / "no" / "such" / "net.h5", net, world); });
    save_checkpoint(file, net, world);
    if (world.rank() == 1) {
      CHECK_MESSAGE(has(foreign, "bare.h5 is in the way: it is not a checkpoint"), foreign);
      CHECK_MESSAGE(has(no_hdf5, "notes.h5 is in the way: it is not a checkpoint"), no_hdf5);
      CHECK(!nowhere.empty());
      return;
    }
    const auto before = everything(net);
    Adam adam(net);
    CHECK(error_text([&] { load_checkpoint(file, net, {.optimizer = &adam}); }).find("holds no optimizer") != std::string::npos);

    CosmoFlow plain({.filters = 2});
    plain.build(input, in_double);
    CHECK(error_text([&] { load_checkpoint(file, plain); }).find("buffers/norm1.running_mean, which the network does not have") !=
          std::string::npos);
    CHECK(error_text([&] { load_checkpoint(bare, net); }).find("not a checkpoint") != std::string::npos);

    CosmoFlow wide({.batch_norm = true, .filters = 4});
    wide.build(input, in_double);
    CHECK(error_text([&] { load_checkpoint(file, wide); }).find("parameters/conv1.weight in") != std::string::npos);
    CosmoFlow single(small());
    single.build(input, {.seed = 5});
    CHECK(error_text([&] { load_checkpoint(file, single); }).find("is float64") != std::string::npos);

    const auto truncated = folder.path / "truncated.h5";
    std::filesystem::copy_file(file, truncated);
    std::filesystem::resize_file(truncated, std::filesystem::file_size(file) / 2);
    CHECK(error_text([&] { load_checkpoint(truncated, net); }).find("truncated.h5") != std::string::npos);
    CHECK(error_text([&] { load_checkpoint(folder.path / "missing.h5", net); }).find("missing.h5") != std::string::npos);
    CHECK(everything(net) == before);
  });
}

TEST_CASE("weights that are not the same on all ranks are not saved, and an older file stays") {
  if (without_hdf5("checkpoints")) return;
  Folder folder;
  const auto file = folder / "net.h5";
  run_threads(3, [&](std::shared_ptr<Transport> transport) {
    const Communicator world(transport);
    CosmoFlow net(small());
    net.build(input, in_double);
    save_checkpoint(file, net, world);
    const auto before = read_bytes(file);
    barrier(world);
    auto& drifted = net.parameters()[3];
    if (world.rank() == 1) drifted.value.mutable_data<double>()[0] += 1e-15;
    const auto error = error_text([&] { save_checkpoint(file, net, world); });
    CHECK_MESSAGE(has(error, "net.h5 is not written: " + drifted.name + " is not the same on all 3 ranks"), error);
    CHECK_MESSAGE(has(error, "hashes: ranks 0,2 "), error);
    CHECK(read_bytes(file) == before);
    CHECK(folder.files() == 1);
  });
}

TEST_CASE("weights in float16 are half as large and read as the network's own type") {
  if (without_hdf5("weights in float16 are half as large and read as the network's own type")) return;
  const Folder folder;
  for (const auto type : {DType::float32, DType::float64})
    run_threads(1, [&](std::shared_ptr<Transport> transport) {
      const Communicator world(transport);
      const auto file = folder.path / fmt::format("half_{}.h5", name_of(type));
      CosmoFlow net(small()), other(small());
      net.build(Shape{1, 16, 16, 16, 4}, {.seed = 5, .dtype = type});
      other.build(Shape{1, 16, 16, 16, 4}, {.seed = 6, .dtype = type});
      save_checkpoint(folder.path / "whole.h5", net, world);
      save_checkpoint(file, net, world, {.info = {.step = 3}, .half = true});
      CHECK(2 * fs::file_size(file) < 1.2 * static_cast<double>(fs::file_size(folder.path / "whole.h5")));
      CHECK(Hdf5Reader(file).describe("parameters/" + net.parameters()[0].name).stored == "float16");
      const auto info = load_checkpoint(file, other);
      CHECK(info.step == 3);
      CHECK(info.verified);
      for (std::size_t i = 0; i < net.parameters().size(); ++i) {
        const auto a = net.parameters()[i].value, b = other.parameters()[i].value;
        CHECK(b.dtype() == type);
        CHECK(cast(cast(a, DType::float16), type).to_vector() == b.to_vector());
      }
      // A damaged file is detected like any other.
      auto bytes = read_bytes(file);
      bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 16);
      const auto broken = write_bytes(folder.path / "broken.h5", bytes);
      CHECK(has(error_text([&] { load_checkpoint(broken, other); }), "damaged"));
      // Values beyond float16 are refused before a file is created.
      auto value = net.parameters()[0].value.to_vector();
      value[0] = 1e6;
      net.parameters()[0].value = from_vector(net.parameters()[0].value.shape(), value, type);
      CHECK(
          has(error_text([&] { save_checkpoint(folder.path / "none.h5", net, world, {.half = true}); }), "which float16 cannot"));
      CHECK_FALSE(fs::exists(folder.path / "none.h5"));
    });
}
