// Checkpoints that are written during training.

#include <doctest/doctest.h>

#include <chrono>
#include <future>
#include <thread>

#include "models/train/restart/checkpoint_saver.h"
#include "tests/models/train/small_training.h"
#include "tests/support/files.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

std::vector<double> weights_of(nn::Module& net) {
  std::vector<double> result;
  for (const auto& value : net.parameters().tensors())
    for (const double x : value.to_vector()) result.push_back(x);
  return result;
}

}  // namespace

TEST_CASE("checkpoint saver: a file has what was staged, whatever training does meanwhile, and one is written at a time") {
  if (without_hdf5("checkpoint saver")) return;
  for (const int ranks : {1, 2}) {
    const Folder folder;
    std::promise<void> gate;
    const auto opened = gate.get_future().share();
    check_on_ranks(ranks, "saver", [&](const Communicator& comm) {
      Training t(comm);
      t.options.fit.epochs = 1;
      CheckpointSaver saver(comm);
      saver.reserve(t.net, {.optimizer = &*t.sgd});
      const auto staged = weights_of(t.net);
      const SaveOptions options{.optimizer = &*t.sgd, .info = {.step = 5, .notes = {{"a", "b"}}}};
      bool before = false, after = false;
      require(saver.stage(
                  folder / "c.h5", t.net, options, [&] { opened.wait(), before = true; }, [&] { after = true; }),
              "[test] nothing was under way");
      t.run();  // changes the weights
      require(weights_of(t.net) != staged, "[test] nothing was learnt");
      require(!saver.stage(folder / "d.h5", t.net, options), "[test] two at a time");
      require(!std::filesystem::exists(folder / "c.h5"), "[test] written before its time");
      comm.transport().barrier();
      if (comm.rank() == 0) gate.set_value();
      saver.finish();
      require(comm.rank() != 0 || (before && after && saver.durable() == 1), "[test] callbacks");
      require(!std::filesystem::exists(folder / "d.h5"), "[test] skipped, and there all the same");
      const auto info = load_checkpoint(folder / "c.h5", t.net, {.optimizer = &*t.sgd});
      require(weights_of(t.net) == staged && info.step == 5 && info.notes.at("a") == "b", "[test] another checkpoint");
      // The next checkpoint uses the same memory.
      require(saver.stage(folder / "e.h5", t.net, options), "[test] the one before is durable");
      saver.finish();
      load_checkpoint(folder / "e.h5", t.net, {.optimizer = &*t.sgd});
      require(weights_of(t.net) == staged, "[test] other weights");
    });
  }
}

TEST_CASE("checkpoint saver: what goes wrong with a file all ranks learn, and the file before it stays") {
  if (without_hdf5("checkpoint saver")) return;
  const Folder folder;
  check_on_ranks(2, "saver", [&](const Communicator& comm) {
    Training t(comm);
    CheckpointSaver saver(comm);
    const SaveOptions options{.optimizer = &*t.sgd};
    require(saver.stage(folder / "c.h5", t.net, options), "[test] the first");
    saver.finish();
    const auto gone = folder.path / "gone" / "c.h5";
    require(saver.stage(gone, t.net, options), "[test] staged, whatever the folder is");
    require(has(error_text([&] { saver.finish(); }), "gone"), "[test] no error where it is waited for");
    require(saver.stage(gone, t.net, options), "[test] staged again");
    std::string error;
    for (int i = 0; i < 30000 && error.empty(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      error = error_text([&] { saver.stage(folder / "c.h5", t.net, options); });
    }
    require(has(error, "gone"), "[test] no error where the next is staged");
    load_checkpoint(folder / "c.h5", t.net, {.optimizer = &*t.sgd});
    require(saver.stage(folder / "c.h5", t.net, options), "[test] afterwards");
    saver.finish();
  });
}

TEST_CASE("checkpoint saver: of a training every one that is due is written or counted as skipped, and the last is there") {
  if (without_hdf5("checkpoint saver")) return;
  const Folder folder, elsewhere;
  check_on_ranks(2, "training", [&](const Communicator& comm) {
    Training t(comm);
    t.options.fit.epochs = 6, t.options.folder = folder.path, t.options.checkpoint_steps = 1, t.options.keep = 3;
    const auto result = t.run();
    require(result.checkpoints + result.skipped_checkpoints == 18 && result.checkpoints >= 2, "[test] {} written, {} skipped",
            result.checkpoints, result.skipped_checkpoints);
    const auto found = find_checkpoints(folder.path);
    require(found.skipped.empty() && read_checkpoint_info(found.files.front()).step == 18, "[test] the last one");
    // If its folder vanishes during training, all ranks end with an error.
    Training other(comm);
    other.options = t.options;
    std::int64_t steps = 0;
    other.hooks.loss = [&](const Tensor& y, const Tensor& target) {
      if (++steps == 4 && comm.rank() == 0) std::filesystem::rename(folder.path, elsewhere.path / "moved");
      comm.transport().barrier();
      return mse(y, target);
    };
    const auto error = error_text([&] { other.run(); });
    require(has(error, folder.path.string()), "[test] got '{}'", error);
    // Earlier files are whole, in the folder's new place.
    comm.transport().barrier();
    const auto before = find_checkpoints(elsewhere.path / "moved");
    require(before.skipped.empty() && !before.files.empty(), "[test] no checkpoint is left");
    load_checkpoint(before.files.front(), other.net, {.optimizer = &*other.sgd});
  });
  std::filesystem::create_directories(folder.path);
}
