// Checkpoints on the disks of two nodes. Here each rank has a folder of its own, as if it were a node.

#include <doctest/doctest.h>

#include <fstream>
#include <sstream>

#include "models/train/restart/checkpoint_saver.h"
#include "models/train/restart/local_copies.h"
#include "tests/support/cases/small_training.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

namespace fs = std::filesystem;

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void save(Training& t, const Communicator& comm, LocalCopies& copies, std::int64_t step) {
  CheckpointSaver saver(comm);
  const SaveOptions options{.optimizer = &*t.sgd, .info = {.step = step}, .overwrite = true};
  saver.stage(copies.file(), t.net, options, {}, [&] { copies.replicate(); });
  saver.finish();
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
      LocalCopies copies(comm, mine, 2);
      save(t, comm, copies, 5);
      save(t, comm, copies, 7);
    }
    comm.transport().barrier();
    const auto file = [&](int rank) { return disk_of(rank) / newest_checkpoint; };
    require(bytes_of(file(0)).size() > 1000 && bytes_of(file(0)) == bytes_of(file(2)), "[test] another file");
    require(!fs::exists(file(1)), "[test] rank 1 was not asked");

    // Rank 0's node is another one now.
    const auto before = bytes_of(file(2));
    comm.transport().barrier();
    if (comm.rank() == 0) fs::remove_all(disk_of(0));
    comm.transport().barrier();
    require(find_local_copy(comm, mine, 7, true).rank == -1, "[test] what is shared is as new");
    const auto found = find_local_copy(comm, mine, 6, true);
    require(found.rank == 2 && found.file == mine / newest_checkpoint, "[test] the newest copy");
    for (const int rank : {0, 1, 2}) require(bytes_of(file(rank)) == before, "[test] not given to rank {}", rank);
    require(load_checkpoint(found.file, t.net, {.optimizer = &*t.sgd}).step == 7, "[test] another step");

    // A damaged one is no copy.
    comm.transport().barrier();
    if (comm.rank() != 1) fs::resize_file(file(comm.rank()), 100);
    require(find_local_copy(comm, mine, 0, true).rank == 1, "[test] a damaged copy was taken");
    if (comm.rank() == 1) fs::remove(file(1));
    comm.transport().barrier();
    if (comm.rank() != 1) fs::remove(file(comm.rank()));
    require(find_local_copy(comm, mine, -1, true).rank == -1, "[test] there is none");
  });
}

TEST_CASE("local copies: what the partner cannot write is an error, and the next one arrives") {
  if (without_hdf5("local copies")) return;
  const Folder folder;
  check_on_ranks(2, "local", [&](const Communicator& comm) {
    const auto mine = folder.path / fmt::format("node{}", comm.rank());
    Training t(comm);
    LocalCopies copies(comm, mine, 1);
    const auto blocked = folder.path / "node1" / fmt::format("{}.part", newest_checkpoint);
    if (comm.rank() == 1) fs::create_directories(blocked / "in the way");
    comm.transport().barrier();
    const auto text = error_text([&] { save(t, comm, copies, 5); });
    require(text.find("the copy of rank 1") != std::string::npos, "[test] got '{}'", text);
    comm.transport().barrier();
    if (comm.rank() == 1) fs::remove_all(blocked);
    comm.transport().barrier();
    save(t, comm, copies, 6);
    require(comm.rank() != 1 || read_checkpoint_info(copies.file()).step == 6, "[test] the next one");
  });
}
