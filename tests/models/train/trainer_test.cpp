// Whole trainings: calls, written files, kept state and reasons to end; and generated samples.

#include "models/train/trainer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>

#include "comm/together.h"
#include "framework/base/joined.h"
#include "framework/optim/optimizer.h"
#include "models/data/sources/function.h"
#include "models/data/sources/memory.h"
#include "models/nn/layers.h"
#include "models/train/checkpoint/checkpoint.h"
#include "models/train/profile.h"
#include "models/train/tensorboard/events.h"
#include "ops/elementwise/elementwise.h"
#include "ops/loss/loss.h"
#include "tests/models/train/small_training.h"
#include "tests/support/distributed.h"
#include "tests/support/files.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

std::vector<std::string> lines_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

}  // namespace

TEST_CASE("trainer: the table, checkpoints and hooks, and going on from a checkpoint") {
  if (without_hdf5("trainer: the table, checkpoints and hooks, and going on from a checkpoint")) return;
  const Folder folder;
  check_on_ranks(2, "trainer", [&](const Communicator& comm) {
    Training t(comm);
    std::int64_t evaluated = 0, told = 0;
    t.options.fit.epochs = 3, t.options.folder = folder.path, t.options.values = {"half", "number"},
    t.options.checkpoint_every = 2;
    t.options.notes = {{"program", "test"}};
    t.hooks.evaluate = [&] { return ++evaluated, std::vector{0.5 / static_cast<double>(evaluated), 7.0}; };
    t.hooks.after_epoch = [&](const EpochRow& row) { told += row.report.epoch + 1; };
    const auto result = t.run();
    require(evaluated == 3 && told == 6 && result.epochs.size() == 3 && result.epochs_behind == 3, "[test] hooks");
    require(result.epochs[0].report.loss > result.epochs[2].report.loss && result.stopped.empty(), "[test] losses");
    require(result.epochs[1].values == std::vector{0.25, 7.0} && t.net.step() == 9, "[test] values, {} steps", t.net.step());
    comm.transport().barrier();

    // Two more epochs, after the second.
    Training again(comm);
    again.options = t.options, again.hooks = t.hooks;
    load_checkpoint(folder.path / "checkpoint.h5", again.net, {.optimizer = &*again.sgd});
    again.options.fit.first_epoch = 2, again.options.fit.epochs = 4;
    const auto more = again.run();
    require(more.epochs.size() == (comm.rank() == 0 ? 4 : 2), "[test] {} rows", more.epochs.size());
    require(std::abs(more.epochs[comm.rank() == 0 ? 2 : 0].report.loss - result.epochs[2].report.loss) < 1e-12, "[test] goes on");
  });
  const auto lines = lines_of(folder.path / "metrics.csv");
  REQUIRE(lines.size() == 5);
  CHECK(lines[0] ==
        "epoch,train_loss,half,number,learning_rate,samples_per_second,seconds,waiting_seconds,loss_scale,skipped_steps");
  CHECK(lines[2].starts_with("2,"));
  CHECK(lines[2].find(",0.25,7,0.02,") != std::string::npos);
  CHECK(read_checkpoint_info(folder.path / "checkpoint.h5").notes.at("program") == "test");
}

TEST_CASE("trainer: a resumed training with a larger batch reports further steps, for TensorBoard in order") {
  if (without_hdf5("trainer: a resumed training with a larger batch reports further steps, for TensorBoard in order")) return;
  const Folder folder;
  check_on_ranks(2, "trainer", [&](const Communicator& comm) {
    std::vector<std::int64_t> steps;
    const auto train_until = [&](std::int64_t epochs, std::int64_t batch) {
      Training t(comm, batch);
      t.options.fit.epochs = epochs, t.options.folder = folder.path, t.options.checkpoint_every = 1;
      t.hooks.after_epoch = [&](const EpochRow& row) { steps.push_back(row.report.steps); };
      if (!steps.empty()) {
        const auto info = load_checkpoint(folder.path / "checkpoint.h5", t.net, {.optimizer = &*t.sgd});
        t.options.fit.first_epoch = info.epoch;
      }
      t.run();
      comm.transport().barrier();
    };
    train_until(2, 4), train_until(4, 12), train_until(5, 12), train_until(6, 4);
    require(steps == std::vector<std::int64_t>{3, 6, 7, 8, 9, 18}, "[test] steps {}", joined(steps, " "));
  });
  if (tensorboard::available())
    for (const auto first : {0, 6, 8, 15}) CHECK(std::filesystem::exists(folder.path / tensorboard::event_file_name(first)));
}

TEST_CASE("trainer: rank 0 alone shows progress, with the values by their names, and makes the folder") {
  const Folder folder;
  const auto text_of = [&](const std::function<std::string(const EpochRow&)>& text) {
    std::FILE* stream = std::tmpfile();
    check_on_ranks(2, "trainer", [&](const Communicator& comm) {
      Training t(comm);
      t.options.fit.epochs = 2, t.options.folder = folder.path / "runs" / "first", t.options.values = {"half", "number"};
      t.options.progress = {.stream = stream, .terminal = false};
      t.hooks.evaluate = [] { return std::vector{0.5, 7.0}; };
      t.hooks.text = text;
      t.run();
    });
    std::rewind(stream);
    std::string shown(1 << 12, '\0');
    shown.resize(std::fread(shown.data(), 1, shown.size(), stream));
    std::fclose(stream);
    return shown;
  };
  const auto shown = text_of(nullptr);
  CHECK(std::count(shown.begin(), shown.end(), '\n') == 2);
  CHECK(shown.find("  half 0.5, number 7\nepoch 2/2 3/3") != std::string::npos);
  CHECK(std::filesystem::exists(folder.path / "runs" / "first" / "metrics.csv"));
  CHECK(text_of([](const EpochRow&) { return "as asked"; }).find("  as asked\n") != std::string::npos);
}

TEST_CASE("trainer: when it ends") {
  check_on_ranks(2, "trainer", [&](const Communicator& comm) {
    const auto epochs = [&](const std::function<void(Training&)>& change) {
      Training t(comm);
      t.options.fit.epochs = 9;
      change(t);
      const auto result = t.run();
      require(static_cast<std::int64_t>(result.epochs.size()) == result.epochs_behind, "[test] rows");
      return fmt::format("{} {}", result.epochs_behind, result.stopped);
    };
    const auto measured = [](Training& t, std::vector<double> values) {
      t.options.values = {"score"}, t.options.monitor = "score", t.options.patience = 2;
      t.hooks.evaluate = [values, at = std::make_shared<std::size_t>(0)] { return std::vector{values[(*at)++]}; };
    };
    const auto expect = [](const std::string& found, const std::string& wanted) {
      require(found == wanted, "[test] '{}' instead of '{}'", found, wanted);
    };
    expect(epochs([&](Training& t) { measured(t, {3, 2, 2, 2.5, 1, 0, 0, 0, 0}); }), "4 score was no better for 2 epochs");
    expect(epochs([&](Training& t) {
             measured(t, {3, 4, 1, 5, 4, 5, 6, 0, 0}), t.options.larger_is_better = true;
           }),
           "6 score was no better for 2 epochs");
    expect(epochs([&](Training& t) { measured(t, {9, 8, 7, 6, 5, 4, 3, 2, 1}); }), "9 ");
    expect(epochs([](Training& t) {
             t.hooks.stop = [](const EpochRow& row) { return std::string(row.report.epoch == 2 ? "three are enough" : ""); };
           }),
           "3 three are enough");
    expect(epochs([](Training& t) { t.options.most_minutes = 1e-9; }), "1 0:00 are over");
    expect(epochs([](Training& t) { t.options.patience = 8; }), "9 ");
    expect(epochs([](Training& t) { t.options.monitor = "not reported"; }), "9 ");
    expect(epochs([&](Training& t) {
             measured(t, {NAN, 2, 1, NAN, 0.5, NAN, NAN, 0, 0});
           }),
           "7 score was no better for 2 epochs");
    // Ranks that measure other values stop when rank 0 does.
    expect(epochs([&](Training& t) {
             measured(t, comm.rank() == 0 ? std::vector<double>{3, 2, 2, 2.5, 1, 0, 0, 0, 0}
                                          : std::vector<double>{9, 8, 7, 6, 5, 4, 3, 2, 1});
           }),
           "4 score was no better for 2 epochs");
    const auto refused = [&](const std::string& words, const std::function<void(Training&)>& change) {
      const auto text = error_text([&] { epochs(change); });
      require(text.find(words) != std::string::npos, "[test] '{}' has not '{}'", text, words);
    };
    refused("there is no value other", [](Training& t) { t.options.patience = 1, t.options.monitor = "other"; });
    refused("cannot be the name of a column", [](Training& t) { t.options.values = {"error, mean"}; });
    refused("need a folder", [](Training& t) { t.options.checkpoint_every = 1; });
    refused("there is no loss", [](Training& t) { t.hooks.loss = nullptr; });
    refused("2 values of an epoch, 1 names", [&](Training& t) {
      t.options.values = {"score"};
      t.hooks.evaluate = [] { return std::vector{1.0, 2.0}; };
    });
    // An error on one rank is an error on all.
    const auto text = error_text([&] { together(comm, [&] { require(comm.rank() != 1, "[test] rank 1 alone"); }); });
    require(text == "[test] rank 1 alone", "[test] '{}'", text);
  });
}

TEST_CASE("trainer: losses by their names, with their default options and with others") {
  const auto x = random_normal({6, 3}, {.key = 1}, 0, 1, DType::float64), t = random_normal({6, 3}, {.key = 2}, 0, 1, x.dtype());
  const auto labels = from_vector({6}, {0, 1, 2, 0, 1, 2}, DType::int64);
  const auto check = [](const LossFunction& loss, const Tensor& scores, const Tensor& truth, const Tensor& expected) {
    CHECK(loss(scores, truth).to_vector() == expected.to_vector());
  };
  check(mse, x, t, mse(x, t));
  check({mse, Reduction::sum}, x, t, mse(x, t, Reduction::sum));
  check(cross_entropy, x, labels, cross_entropy(x, labels));
  check({cross_entropy, {.ignore_index = 2}}, x, labels, cross_entropy(x, labels, {.ignore_index = 2}));
  CHECK(!LossFunction());
}

TEST_CASE("trainer: a step is the same however its samples are cut into micro-batches") {
  // Six volumes of 8 cells; label 2 is ignored; it is most frequent in the last volumes.
  const auto volumes = random_normal({6, 2, 2, 2, 1}, {.key = 1}, 0, 1, DType::float64);
  std::vector<double> labels(48);
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = i % 8 < i / 8 ? 2 : static_cast<double>(i % 2);
  const auto source = data::from_tensors(volumes, from_vector({6, 2, 2, 2}, labels, DType::int64), {.per_cell = true});
  struct Pointwise : nn::Module {
    Tensor operator()(const Tensor& x) override { return conv(x); }
    nn::Conv3d conv{*this, "conv", {.out = 3, .kernel = 1}};
  };
  const CrossEntropyOptions some{.ignore_index = 2};
  for (const bool ignores : {false, true})
    for (const double clip : {0.0, 0.05})
      check_on_ranks(2, "micro-batches", [&](const Communicator& comm) {
        std::vector<double> expected;
        double expected_loss = 0;
        for (const auto& [batch, parts] : {std::pair<std::int64_t, std::int64_t>{6, 1}, {3, 2}, {4, 2}, {2, 3}, {5, 2}})
          for (const bool scaled : {false, true}) {
            data::LoaderOptions options{.grid = make_grid(comm, {.depth = comm.size()}), .batch = batch, .dtype = DType::float64};
            options.target_dtype = DType::int64;
            const data::Loader loader(source, options);
            Pointwise net;
            net.build(loader.layout(), {.seed = 3, .dtype = DType::float64});
            SGD sgd(net, SGDAttributes{.learning_rate = 1});
            LossScale loss_scale({.ranks = comm.size()});
            double epoch_loss = 0;
            FitOptions fit_options{.clip_norm = clip, .loss_scale = scaled ? &loss_scale : nullptr, .accumulate = parts};
            if (ignores) fit_options.weight = [&](const Tensor& y) { return cross_entropy_weight(y, 3, some); };
            fit_options.after_epoch = [&](const EpochReport& report) { return epoch_loss = report.loss, std::string(); };
            fit(net, sgd, loader, {cross_entropy, ignores ? some : CrossEntropyOptions()}, comm, fit_options);
            std::vector<double> weights;
            for (const auto& each : net.parameters().tensors())
              for (const double value : each.to_vector()) weights.push_back(value);
            if (expected.empty()) expected = weights, expected_loss = epoch_loss;
            require(std::abs(epoch_loss - expected_loss) < 1e-12, "[test] batches of {}: loss {} instead of {}", batch,
                    epoch_loss, expected_loss);
            for (std::size_t i = 0; i < weights.size(); ++i)  // 1e-6 is the term added to a clipped norm
              require(std::abs(weights[i] - expected[i]) < (clip > 0 ? 1e-5 : 1e-12), "[test] batches of {}: {} instead of {}",
                      batch, weights[i], expected[i]);
          }
        Training t(comm);
        t.options.fit.weight = [](const Tensor&) { return -1.0; };
        require(has(error_text([&] { t.run(); }), "a micro-batch's weight is a number of 0 or more, got -1"), "[test] weight");
      });
}

TEST_CASE("sources: samples that a function makes") {
  const auto source = ramps(5);
  CHECK(source->size() == 5);
  CHECK(source->name_of_sample(3) == "ramp [3]");
  CHECK(source->targets(3) == std::vector{0.1 * 3, 1.0});
  const auto part = source->values(2, {{1, 0, 1}, {3, 3, 2}});
  CHECK(part[0] == doctest::Approx(0.226));
  CHECK(part[1] == doctest::Approx(1.226));
  CHECK(part[11] == doctest::Approx(1.261));
  const auto text = [](const auto& f) { return error_text(f); };
  CHECK(text([&] { source->name_of_sample(5); }) == "[data] sample 5 of 5");
  data::FunctionSamples bad{.size = 1, .extents = {1, 1, 1}};
  CHECK(text([&] { data::FunctionSource{bad}; }).find("needs a function for values") != std::string::npos);
  bad.values = [](std::int64_t, const Box&, std::span<float>) { fail("[test] out of luck"); };
  bad.targets = [](std::int64_t) { return std::vector{1.5, 2.0}; };
  const data::FunctionSource broken(bad);
  CHECK(text([&] { broken.values(0, broken.whole()); }) == "[test] out of luck");
  CHECK(text([&] { broken.targets(0); }) == "[data] sample [0] has 2 targets for 1 names");
  bad.targets = [](std::int64_t) { return std::vector{1.5}; };
  bad.classes = true;
  CHECK(text([&] { data::FunctionSource(bad).check(0, 1); }) == "[data] sample [0]: 1.5 is not a class");
}

TEST_CASE("profile: ops of all ranks in a trace, and the costliest in a table") {
  const Folder folder;
  const auto path = folder.path / "trace.json";
  std::string table;
  run_threads(3, [&](std::shared_ptr<Transport> transport) {
    Training training{Communicator(transport)};
    StepProfile profile(training.world, {.first_step = 1, .steps = 3});
    training.options.fit.epochs = 2;
    training.options.fit.profile = &profile;
    (void)training.run();
    CHECK(profile.complete());
    const auto text = profile.write(path);
    if (transport->rank() == 0) table = text;
    else CHECK(text.empty());
    CHECK(has(error_text([&] { profile.write(folder.path / "no" / "where.json"); }), "where.json cannot be written"));
  });
  const auto lines = lines_of(path);
  // One object in each line: three steps and some convolutions and messages of each rank, and the names of the lanes.
  for (int rank = 0; rank < 3; ++rank) {
    std::map<std::string, int> found;
    for (const auto& line : lines) {
      if (!has(line, fmt::format("\"pid\":{}", rank))) continue;
      for (const char* name : {"\"name\":\"step ", "\"name\":\"conv_weight ", "\"name\":\"exchange ", "thread_name"})
        found[name] += has(line, name) ? 1 : 0;
      if (has(line, "\"name\":\"exchange ")) CHECK(has(line, "\"tid\":2"));
      if (has(line, "\"name\":\"conv_weight ")) CHECK(has(line, "\"tid\":1"));
      CHECK(line.front() == '{');
    }
    CHECK(found["\"name\":\"step "] == 3);
    CHECK(found["\"name\":\"conv_weight "] == 3);
    CHECK(found["\"name\":\"exchange "] == 3);
    CHECK(found["thread_name"] == 4);
  }
  CHECK(has(table, "3 steps of "));
  for (const char* op : {"conv_weight", "exchange", "between ops", "GFLOP/s"}) CHECK(has(table, op));
}
