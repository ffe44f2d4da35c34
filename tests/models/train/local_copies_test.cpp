// Checkpoints on the disks of two nodes. Here each rank has a folder of its own, in the role of a node.

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "models/train/restart/checkpoint_saver.h"
#include "models/train/restart/local_copies.h"
#include "tests/models/networks/split_networks.h"
#include "tests/models/train/small_training.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

namespace fs = std::filesystem;

const TrainingName one{"one", fs::temp_directory_path() / "none" / "training-name"};

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void save(Training& t, const Communicator& comm, LocalCopies& copies, std::int64_t step) {
  CheckpointSaver saver(comm);
  const SaveOptions options{.optimizer = &*t.sgd, .info = {.step = step, .notes = {{training_note, one.name}}}};
  saver.stage(copies.file(step), t.net, options, {}, [&] { copies.replicate(step); });
  saver.finish();
}

// A split network with all weights and moments stored in parts, and the optimizer that does so.
struct PartsTraining {
  PartsTraining(const Communicator& comm, const GridExtents& grid)
      : world(comm), training(network(), make_grid(comm, grid), {.split = ChannelSplit::filters, .sharded_weights = true}),
        adam(*training.net, AdamAttributes{.learning_rate = 0.002, .epsilon = 1e-2}) {}
  static SplitNetwork network() {
    for (auto& each : split_networks())
      if (each.name == "CosmoFlow with batch norm") return each;
    fail("[test] there is no such network");
  }
  void save(LocalCopies& copies, std::int64_t step) {
    CheckpointSaver saver(world);
    saver.stage_part(
        copies.file(step), *training.net,
        {.optimizer = &adam, .info = {.step = step, .notes = {{"task", "parts"}, {training_note, one.name}}}},
        [&] { copies.replicate(step); }, [&] { copies.remove_others(step); });
    saver.finish();
  }

  Communicator world;
  SplitTraining training;
  Adam adam;
};

std::size_t files_in(const fs::path& folder) {
  const fs::directory_iterator entries(folder);
  return static_cast<std::size_t>(
      std::count_if(begin(entries), end(entries), [](const auto& entry) { return entry.path().extension() == ".h5"; }));
}

}  // namespace

TEST_CASE("local copies: the partner has rank 0's bytes, and whoever has the newest gives it to all") {
  if (without_hdf5("local copies")) return;
  const Folder folder;
  check_on_ranks(3, "local", [&](const Communicator& comm) {
    const auto disk_of = [&](int rank) { return folder.path / fmt::format("node{}", rank); };
    const auto mine = disk_of(comm.rank());
    Training t(comm);
    {
      LocalCopies copies(comm, mine, one, {.partners = {2}});
      save(t, comm, copies, 5);
      save(t, comm, copies, 7);
    }
    comm.transport().barrier();
    const auto file = [&](int rank) { return disk_of(rank) / newest_checkpoint; };
    require(bytes_of(file(0)).size() > 1000 && bytes_of(file(0)) == bytes_of(file(2)), "[test] another file");
    require(!fs::exists(file(1)), "[test] rank 1 was not asked");

    // Rank 0 is on a new node now.
    const auto before = bytes_of(file(2));
    comm.transport().barrier();
    if (comm.rank() == 0) fs::remove_all(disk_of(0));
    comm.transport().barrier();
    require(find_local_copy(comm, mine, one, 7, true).rank == -1, "[test] what is shared is as new");
    const auto found = find_local_copy(comm, mine, one, 6, true);
    require(found.rank == 2 && found.file == mine / newest_checkpoint, "[test] the newest copy");
    for (const int rank : {0, 1, 2}) require(bytes_of(file(rank)) == before, "[test] not given to rank {}", rank);
    require(load_checkpoint(found.file, t.net, {.optimizer = &*t.sgd}).step == 7, "[test] another step");

    // A damaged file does not count as a copy.
    comm.transport().barrier();
    if (comm.rank() != 1) fs::resize_file(file(comm.rank()), 100);
    require(find_local_copy(comm, mine, one, 0, true).rank == 1, "[test] a damaged copy was taken");
    if (comm.rank() == 1) fs::remove(file(1));
    comm.transport().barrier();
    if (comm.rank() != 1) fs::remove(file(comm.rank()));
    require(find_local_copy(comm, mine, one, -1, true).rank == -1, "[test] there is none");
  });
}

TEST_CASE("local copies: what the partner cannot write is an error, and the next one arrives") {
  if (without_hdf5("local copies")) return;
  const Folder folder;
  check_on_ranks(2, "local", [&](const Communicator& comm) {
    const auto mine = folder.path / fmt::format("node{}", comm.rank());
    Training t(comm);
    LocalCopies copies(comm, mine, one, {.partners = {1}});
    const auto blocked = folder.path / "node1" / newest_checkpoint;
    if (comm.rank() == 1) fs::create_directories(blocked / "in the way");
    comm.transport().barrier();
    const auto text = error_text([&] { save(t, comm, copies, 5); });
    require(text.find("the copy of rank 1") != std::string::npos, "[test] got '{}'", text);
    comm.transport().barrier();
    if (comm.rank() == 1) fs::remove_all(blocked);
    comm.transport().barrier();
    save(t, comm, copies, 6);
    require(comm.rank() != 1 || read_checkpoint_info(copies.file(6)).step == 6, "[test] the next one");
  });
}

TEST_CASE("local copies: of split weights and a sharded optimizer each rank has its part, and its partner too") {
  if (without_hdf5("local copies")) return;
  const Folder folder;
  const auto disk_of = [&](int rank) { return folder.path / fmt::format("node{}", rank); };
  const GridExtents grid{.sample = 2, .channel = 2};
  check_on_ranks(4, "parts", [&](const Communicator& comm) {
    const auto mine = disk_of(comm.rank());
    const auto meet = [&] { comm.transport().barrier(); };
    PartsTraining t(comm, grid);
    LocalCopiesOptions options{.parts = true, .partners = {2, 3, 0, 1}};
    {
      LocalCopies copies(comm, mine, one, options);
      t.training.train(t.adam, 0, 1), t.save(copies, 1);
      t.training.train(t.adam, 1, 2), t.save(copies, 2);
      require(files_in(mine) == 2, "[test] {} files: this rank's part and that of whom it is the partner of", files_in(mine));
      meet();
      const auto replica = disk_of((comm.rank() + 2) % 4) / copies.file(2).filename();
      require(bytes_of(replica) == bytes_of(copies.file(2)), "[test] another file");
    }
    const auto saved = everything_of(*t.training.net, &t.adam);
    meet();

    // Rank 1 is on a new node now, and one byte of rank 0's part has changed: rank 2 has it whole.
    if (comm.rank() == 1) fs::remove_all(mine);
    if (comm.rank() == 0)
      for (const auto& entry : fs::directory_iterator(mine))
        if (entry.path().filename().string().starts_with("part-2-0-")) {
          auto bytes = bytes_of(entry.path());
          bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
          std::ofstream(entry.path(), std::ios::binary) << bytes;
        }
    meet();
    require(find_local_copy(comm, mine, one, 2, true).rank == -1, "[test] what is shared is as new");
    const auto found = find_local_copy(comm, mine, one, 1, true);
    require(found.rank == 2 && found.file == mine / newest_checkpoint && found.lacking.empty(), "[test] rank {}: {}", found.rank,
            found.lacking);
    require(files_in(mine) == 1, "[test] parts are left beside the whole");
    t.training.train(t.adam, 2, 3);
    const auto info = load_checkpoint(found.file, *t.training.net, {.optimizer = &t.adam});
    require(info.step == 2 && info.notes.at("task") == "parts", "[test] other notes");
    require(t.adam.steps() == 2, "[test] {} steps", t.adam.steps());
    require(everything_of(*t.training.net, &t.adam) == saved, "[test] other bits");

    // A part that both have lost.
    {
      LocalCopies copies(comm, mine, one, options);
      t.save(copies, 3), t.save(copies, 4);
      require(files_in(mine) == 2, "[test] what is older than whole copies stays");
    }
    meet();
    if (comm.rank() % 2 == 1) fs::remove_all(mine);
    meet();
    const auto lost = find_local_copy(comm, mine, one, 3, true);
    require(lost.rank == -1 && lost.file.empty(), "[test] a copy of which a part is lost");
    require(lost.lacking == "[checkpoint] the local copies of step 4 are incomplete: no node has the part of rank 1 of 4",
            "[test] got '{}'", lost.lacking);
  });
}

TEST_CASE("local copies: parts of four ranks go on on two") {
  if (without_hdf5("local copies")) return;
  const Folder folder;
  Trained expected;
  check_on_ranks(4, "four", [&](const Communicator& comm) {
    PartsTraining t(comm, {.sample = 2, .channel = 2});
    t.training.train(t.adam, 0, 2);
    LocalCopies copies(comm, folder.path / fmt::format("node{}", comm.rank()), one, {.parts = true, .partners = {1, 0, 3, 2}});
    t.save(copies, 2);
    auto all = everything_of(*t.training.net, &t.adam);
    if (comm.rank() == 0) expected = std::move(all);
  });
  // The nodes of ranks 0 and 3 are lost.
  check_on_ranks(2, "two", [&](const Communicator& comm) {
    PartsTraining t(comm, {.channel = 2});
    const auto found = find_local_copy(comm, folder.path / fmt::format("node{}", 1 + comm.rank()), one, 0, true);
    require(found.rank == 0 && found.lacking.empty(), "[test] rank {}: {}", found.rank, found.lacking);
    load_checkpoint(found.file, *t.training.net, {.optimizer = &t.adam});
    require(everything_of(*t.training.net, &t.adam) == expected, "[test] other bits");
  });
}
