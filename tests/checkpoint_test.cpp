// Networks to files and back, on any grid; what does not fit is refused and changes nothing.

#include "models/checkpoint.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "comm/hdf5/hdf5_file.h"
#include "models/cosmoflow.h"
#include "models/session.h"
#include "ops/loss.h"
#include "ops/random.h"
#include "tests/support/files.h"
#include "tests/support/ranks.h"
#include "tests/support/skip.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

CosmoFlowOptions small() { return {.batch_norm = true, .filter_divisor = 8}; }

// Steps [first, last) of a training run whose data depend on the step alone.
void train(const Session& session, const GridExtents& extents, CosmoFlow& net, Optimizer& optimizer, int first, int last) {
  const auto grid = session.grid(extents);
  const auto layout = activation_layout(grid, {4, 16, 16, 16, 4});
  const auto targets = split_layout(grid, {4, 4}, {0, -1, -1, -1});
  for (int step = first; step < last; ++step) {
    net.set_step(step);
    const Philox random{3, static_cast<std::uint64_t>(step)};
    const auto x = constant(random_normal(layout->global, random, 0, 1, DType::float64, layout));
    const auto y = constant(random_uniform(targets->global, random.child(1), -1, 1, DType::float64, targets));
    Tape tape(net);
    const auto loss = mse(net(x), y);
    optimizer.step(tape.gradient(loss));
  }
}

std::vector<double> everything(CosmoFlow& net) {
  std::vector<double> values;
  const auto append = [&](const Tensor& x) {
    for (const double value : x.to_vector()) values.push_back(value);
  };
  for (std::size_t i = 0; i < net.parameters().size(); ++i) append(net.parameters()[i].value);
  for (const auto& [name, value] : net.buffers()) append(value);
  return values;
}

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
    // Dropout draws from the seed of build(), which a checkpoint does not carry: rebuild with it.
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
    net.build(input, in_double);
    other.build(input, in_double);
    AveragedWeights averages(net), others(other);
    averages.update();
    save_checkpoint(file, net, Communicator(transport), {.averages = &averages});
    load_checkpoint(file, other, {.averages = &others});
    CHECK(others.updates() == 1);
    CHECK(others.state()[0].value.to_vector() == averages.state()[0].value.to_vector());
  });
}

TEST_CASE("checkpoints that do not fit are refused") {
  if (without_hdf5("checkpoints")) return;
  Folder folder;
  const auto file = folder.path / "net.h5";
  run_threads(2, [&](std::shared_ptr<Transport> transport) {
    const Communicator world(transport);
    CosmoFlow net(small());
    net.build(input, in_double);
    save_checkpoint(file, net, world);
    // An error of rank 0 arrives on both.
    const auto exists = error_text([&] { save_checkpoint(file, net, world); });
    const auto nowhere = error_text([&] { save_checkpoint(folder.path / "no" / "such" / "net.h5", net, world); });
    save_checkpoint(file, net, world, {.overwrite = true});
    if (world.rank() == 1) {
      CHECK(exists.find("exists") != std::string::npos);
      CHECK(!nowhere.empty());
      return;
    }
    const auto before = everything(net);
    Adam adam(net);
    CHECK(error_text([&] { load_checkpoint(file, net, {.optimizer = &adam}); }).find("holds no optimizer") != std::string::npos);

    CosmoFlow plain({.filter_divisor = 8});
    plain.build(input, in_double);
    CHECK(error_text([&] { load_checkpoint(file, plain); }).find("buffers/norm1.running_mean, which the network does not have") !=
          std::string::npos);
    const auto bare = folder.path / "bare.h5";
    {
      Hdf5Writer writer(bare, false);
      writer.attribute("/", "format", std::string("something else"));
      writer.commit();
    }
    CHECK(error_text([&] { load_checkpoint(bare, net); }).find("not a checkpoint") != std::string::npos);

    CosmoFlow wide({.batch_norm = true, .filter_divisor = 4});
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
