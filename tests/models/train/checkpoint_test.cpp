// Networks to files and back, on any grid; what does not fit is refused and changes nothing.

#include "models/train/checkpoint/checkpoint.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "comm/collectives/collectives.h"
#include "comm/hdf5/hdf5_file.h"
#include "models/networks/cosmoflow.h"
#include "models/train/session.h"
#include "ops/elementwise/elementwise.h"
#include "ops/loss/loss.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "tests/support/all_tests.h"
#include "tests/support/files.h"
#include "tests/support/ranks.h"
#include "tests/support/skip.h"
#include "tests/support/traffic.h"

using namespace mpigrad;
using namespace mpigrad::testing;
namespace fs = std::filesystem;

namespace {

CosmoFlowOptions small() { return {.batch_norm = true, .filters = 2}; }

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

// A network whose file is small.
class Tiny : public nn::Module {
 public:
  Tensor operator()(const Tensor& x) override {
    const auto y = x * parameter("scale", {2, 3}, nn::glorot_uniform(2, 3));
    const auto& mean = buffer("mean", {3}, 0.5);
    return building() ? y : y + mean;
  }
};

fs::path write_bytes(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return path;
}
std::string read_bytes(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

// Everything that a load of `file` gives, or nothing and why.
std::vector<double> loaded(const fs::path& file, std::string* why = nullptr) {
  Tiny net;
  net.build(Shape{2, 3}, {.seed = 7});
  Adam adam(net);
  AveragedWeights averages(net);
  LossScale scale;
  try {
    const auto info = load_checkpoint(file, net, {.optimizer = &adam, .averages = &averages, .loss_scale = &scale});
    std::vector<double> all{static_cast<double>(info.step),
                            static_cast<double>(info.epoch),
                            static_cast<double>(adam.steps()),
                            static_cast<double>(averages.updates()),
                            scale.value(),
                            static_cast<double>(scale.skipped()),
                            static_cast<double>(info.notes.size())};
    for (const auto& [name, text] : info.notes)
      for (const char c : name + text) all.push_back(c);
    auto tensors = adam.state();
    for (const auto& more : averages.state()) tensors.push_back(more);
    tensors.push_back({"scale", net.parameters()[0].value});
    for (const auto& [name, value] : net.buffers()) tensors.push_back({name, value});
    for (const auto& [name, value] : tensors)
      for (const double number : value.to_vector()) all.push_back(number);
    return all;
  } catch (const Error& error) {
    if (why) *why = error.what();
    return {};
  }
}

void save_tiny(const fs::path& file) {
  run_threads(1, [&](std::shared_ptr<Transport> transport) {
    Tiny net;
    net.build(Shape{2, 3}, {.seed = 5});
    Adam adam(net);
    AveragedWeights averages(net);
    LossScale scale;
    for (int step = 0; step < 3; ++step) {
      Tape tape(net);
      adam.step(tape.gradient(sum(net(ones({2, 3})))));
      averages.update();
    }
    save_checkpoint(file, net, Communicator(transport),
                    {.optimizer = &adam,
                     .averages = &averages,
                     .loss_scale = &scale,
                     .info = {.step = 3, .epoch = 1, .notes = {{"seed", "5"}, {"variant", "hybrid"}}}});
  });
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
    net.build(input, in_double), other.build(input, in_double);
    AveragedWeights averages(net), others(other);
    // Before the first step there is no average yet: weights are the network's.
    save_checkpoint(file, net, Communicator(transport), {.averages = &averages});
    (void)load_checkpoint(file, other, {.averaged = true});
    CHECK(other.parameters()[0].value.to_vector() == net.parameters()[0].value.to_vector());
    averages.update();
    save_checkpoint(file, net, Communicator(transport), {.averages = &averages, .overwrite = true});
    CHECK((load_checkpoint(file, other, {.averages = &others}), others.updates()) == 1);
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

    CosmoFlow plain({.filters = 2});
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

TEST_CASE("a flipped bit of a checkpoint is refused or changes nothing that is read") {
  if (without_hdf5("checkpoints")) return;
  Folder folder;
  const auto file = folder / "net.h5";
  save_tiny(file);
  const auto good = read_bytes(file);
  const auto expected = loaded(file);
  REQUIRE(!expected.empty());
  int refused = 0, unseen = 0;
  const auto flip = [&](std::size_t byte, int bit) {
    auto bytes = good;
    bytes[byte] = static_cast<char>(bytes[byte] ^ (1 << bit));
    const auto values = loaded(write_bytes(folder / "flipped.h5", bytes));
    ++(values.empty() ? refused : unseen);
    const bool right = values.empty() ||
                       (values.size() == expected.size() && std::memcmp(values.data(), expected.data(), 8 * values.size()) == 0);
    if (!right) FAIL_CHECK("bit " << bit << " of byte " << byte << " changes what is read");
  };
  // Every bit of the weights and of a note, where no format of HDF5's helps, and one bit of every byte of the file, or of every
  // thirteenth.
  const std::size_t step = all_tests() ? 1 : 13;
  const Hdf5Reader reader(file);
  const auto weights = reader.read<float>("parameters/scale");
  for (const std::string_view part : {std::string_view(reinterpret_cast<const char*>(weights.data()), 4 * weights.size()),
                                      std::string_view("variant=hybrid")}) {
    const auto at = good.find(part);
    REQUIRE(at != std::string::npos);
    const int before = unseen;
    for (std::size_t i = 0; i < 8 * part.size(); ++i) flip(at + i / 8, static_cast<int>(i % 8));
    CHECK(unseen == before);
  }
  const Philox random{11, 0};
  for (std::size_t byte = 0; byte < good.size(); byte += step) flip(byte, static_cast<int>(random.below(byte, 8)));
  CHECK(refused > 300);

  auto bytes = good;
  bytes[good.find(std::string_view(reinterpret_cast<const char*>(weights.data()), 8))] ^= 1;
  std::string why;
  CHECK(loaded(write_bytes(folder / "flipped.h5", bytes), &why).empty());
  CHECK(has(why, "flipped.h5 is damaged: the elements of parameters/scale are not those that were written"));
}

TEST_CASE("a checkpoint without checksums loads as unverified, one that has lost them does not") {
  if (without_hdf5("checkpoints")) return;
  Folder folder;
  const std::vector<float> scale{1, 2, 3, 4, 5, 6}, mean{7, 8, 9};
  const auto write = [&](const char* name, const std::string& format, bool one) {
    Hdf5Writer writer(folder / name, false);
    writer.write("parameters/scale", {2, 3}, DType::float32, scale.data());
    writer.write<float>("buffers/mean", mean);
    if (one) writer.attribute("buffers/mean", "checksum", std::string("0123456789abcdef"));
    writer.attribute("/", "format", format);
    writer.attribute("/", "step", std::int64_t{3});
    writer.attribute("/", "epoch", std::int64_t{1});
    writer.commit();
    return folder / name;
  };
  Tiny net;
  net.build(Shape{2, 3}, {.seed = 5});
  const auto info = load_checkpoint(write("old.h5", "mpigrad checkpoint 1", false), net);
  CHECK_FALSE(info.verified);
  CHECK(info.step == 3);
  CHECK(net.parameters()[0].value.to_vector() == std::vector<double>{1, 2, 3, 4, 5, 6});
  CHECK(has(error_text([&] { load_checkpoint(write("some.h5", "mpigrad checkpoint 1", true), net); }), "some.h5 is damaged"));
  CHECK(has(error_text([&] { load_checkpoint(write("none.h5", "mpigrad checkpoint 2", false), net); }),
            "none.h5 is damaged: buffers/mean has no checksum"));
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
    const auto error = error_text([&] { save_checkpoint(file, net, world, {.overwrite = true}); });
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
      save_checkpoint(folder.path / "whole.h5", net, world, {.overwrite = true});
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
      // A damaged one is noticed as any other is.
      auto bytes = read_bytes(file);
      bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 16);
      const auto broken = write_bytes(folder.path / "broken.h5", bytes);
      CHECK(has(error_text([&] { load_checkpoint(broken, other); }), "damaged"));
      // What float16 cannot hold is refused before there is a file.
      auto value = net.parameters()[0].value.to_vector();
      value[0] = 1e6;
      net.parameters()[0].value = from_vector(net.parameters()[0].value.shape(), value, type);
      CHECK(
          has(error_text([&] { save_checkpoint(folder.path / "none.h5", net, world, {.half = true}); }), "which float16 cannot"));
      CHECK_FALSE(fs::exists(folder.path / "none.h5"));
    });
}

TEST_CASE("checkpoint: weights of another network, as far as they go") {
  if (without_hdf5("checkpoint: weights of another network")) return;
  const Folder folder;
  // The same convolutions, another number of targets.
  const auto built = [](std::int64_t targets, std::uint64_t seed) {
    auto options = small();
    options.targets = targets;
    auto net = std::make_unique<CosmoFlow>(options);
    net->build(Shape{1, 16, 16, 16, 4}, {.seed = seed, .dtype = DType::float64});
    return net;
  };
  const auto value = [](CosmoFlow& net, const std::string& name) { return net.parameters().find(name).value.to_vector(); };
  const auto four = built(4, 1), two = built(2, 2);
  const auto file = folder / "four.h5";
  run_threads(1, [&](std::shared_ptr<Transport> transport) { save_checkpoint(file, *four, Communicator(transport)); });
  const auto before = everything(*two);
  CHECK(has(error_text([&] { load_checkpoint(file, *two); }), "linear3"));

  auto taken = take_weights(file, *two);
  CHECK(taken.left == std::vector<std::string>{"linear3.weight", "linear3.bias"});
  CHECK(taken.unused == std::vector<std::string>{"linear3.bias", "linear3.weight"});
  CHECK(taken.taken.size() + 2 == two->parameters().size() + two->buffers().size());
  CHECK(value(*two, "conv1.weight") == value(*four, "conv1.weight"));
  CHECK(value(*two, "linear2.weight") == value(*four, "linear2.weight"));

  // Patterns: what they name has to be there, and in this shape; what they do not name stays.
  const auto again = built(4, 3);
  const auto conv2 = value(*again, "conv2.weight");
  taken = take_weights(file, *again, {.patterns = {{"conv1.*"}, {"linear*"}}});
  CHECK(value(*again, "conv1.weight") == value(*four, "conv1.weight"));
  CHECK(value(*again, "linear3.bias") == value(*four, "linear3.bias"));
  CHECK(value(*again, "conv2.weight") == conv2);
  CHECK(std::find(taken.left.begin(), taken.left.end(), "conv2.weight") != taken.left.end());
  // Under other names.
  take_weights(file, *again, {.patterns = {{"linear2.bias", "linear2.bias"}, {"conv2.weig*", "conv2.weig*"}}});
  CHECK(value(*again, "conv2.weight") == value(*four, "conv2.weight"));
  const auto unchanged = everything(*again);
  const auto refused = [&](const std::vector<TakeOptions::Pattern>& patterns, CosmoFlow& net) {
    return error_text([&] { take_weights(file, net, {.patterns = patterns}); });
  };
  CHECK(has(refused({{"conv9.*"}}, *again), "nothing that is called 'conv9.*'"));
  CHECK(has(refused({{"conv1.*", "first.*"}}, *again), "has no parameters/first."));
  CHECK(has(refused({{"conv1.weight", "conv2.weight"}}, *again), "parameters/conv2.weight"));
  CHECK(has(refused({{"*.*", "a.*"}}, *again), "as many *"));
  CHECK(has(refused({{"linear3.*"}}, *two), "the network's linear3.weight is float64 [2, "));
  CHECK(everything(*again) == unchanged);
}

TEST_CASE("checkpoint: frozen parameters stay, the others learn as if they were all that there is") {
  for (const int ranks : {1, 2})
    check_on_ranks(ranks, "frozen", [](const Communicator& comm) {
      Session session(comm);
      CosmoFlow net(small());
      const GridExtents extents{.depth = comm.size()};
      net.build(activation_layout(session.grid(extents), {4, 16, 16, 16, 4}), {.seed = 5, .dtype = DType::float64});
      auto& parameters = net.parameters();
      require(parameters.freeze("conv*") > 2 && parameters.freeze("linear1.weight") == 1, "[test] patterns");
      require(has(error_text([&] { parameters.freeze("none*"); }), "none is called"), "[test] a pattern of nothing");
      Adam adam(net, AdamAttributes{.learning_rate = 0.01, .weight_decay = 0.1});
      std::vector<std::vector<double>> before;
      for (const auto& value : parameters.tensors()) before.push_back(value.to_vector());
      train(session, extents, net, adam, 0, 2);
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        const bool same = parameters[i].value.to_vector() == before[i];
        require(same == parameters[i].frozen, "[test] {} {}", parameters[i].name, same ? "stayed" : "changed");
      }
      // The same gradients for the others, micro-batches added up.
      const auto x = constant(random_normal({4, 16, 16, 16, 4}, {9}, 0, 1, DType::float64,
                                            activation_layout(session.grid(extents), {4, 16, 16, 16, 4})));
      net.set_step(7);
      const auto gradients = [&] {
        Tape first(net);
        first.gradient(sum(square(net(x))), {.accumulate = true});
        Tape second(net);
        return second.gradient(sum(net(x)), {.accumulate = false});
      };
      const auto frozen = gradients();
      parameters.freeze("*", false);
      const auto all = gradients();
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        const bool was = parameters[i].name.starts_with("conv") || parameters[i].name == "linear1.weight";
        const auto found = frozen[i].to_vector();
        if (was) require(found == std::vector<double>(found.size(), 0.0), "[test] {}: a gradient", parameters[i].name);
        else require(found == all[i].to_vector(), "[test] {}: another gradient", parameters[i].name);
      }
    });
}

TEST_CASE("checkpoint: nothing is reduced for frozen parameters") {
  Traffic traffic{.type = DType::float64};
  const auto reduced = [&](bool freeze) {
    traffic.reduced = 0;
    run_threads(2, [&](std::shared_ptr<Transport> transport) {
      const Communicator comm(std::make_shared<CountingTransport>(std::move(transport), traffic));
      Session session(comm);
      CosmoFlow net(small());
      net.build(activation_layout(session.grid({.sample = 2}), {4, 16, 16, 16, 4}), {.seed = 5, .dtype = DType::float64});
      if (freeze) net.parameters().freeze("conv*"), net.parameters().freeze("norm*");
      Adam adam(net, AdamAttributes{});
      const auto before = traffic.reduced.load();
      comm.transport().barrier();
      train(session, {.sample = 2}, net, adam, 0, 1);
      comm.transport().barrier();
      require(traffic.reduced >= before, "[test] counted");
    });
    return traffic.reduced.load();
  };
  CosmoFlow net(small());
  net.build(Shape{4, 16, 16, 16, 4}, {.dtype = DType::float64});
  std::int64_t frozen = 0;
  for (std::size_t i = 0; i < net.parameters().size(); ++i) {
    const auto& parameter = net.parameters()[i];
    if (parameter.name.starts_with("conv") || parameter.name.starts_with("norm")) frozen += parameter.value.elements();
  }
  // 2 n (P - 1) numbers of an allreduce, once for each element that is free; statistics of norms are as they were, less those of
  // backward passes that nobody asks for.
  CHECK(reduced(false) - reduced(true) >= 2 * frozen);
}
