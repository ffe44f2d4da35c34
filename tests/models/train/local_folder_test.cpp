// Owners of folders of a training's local copies, and removal of folders that are no longer needed.

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sstream>

#include "framework/base/joined.h"
#include "models/train/restart/checkpoint_saver.h"
#include "models/train/restart/local_copies.h"
#include "tests/models/train/small_training.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

namespace fs = std::filesystem;

// A disk, and folders of results next to it.
struct Place {
  Folder folder{};
  fs::path disk = folder / "disk";
  TrainingName training(const std::string& name, const std::string& results) const {
    const auto file = folder.path / results / "training-name";
    fs::create_directories(file.parent_path());
    std::ofstream(file) << name << "\n";
    return {name, file};
  }
  // Leaves the copies of a training that was killed.
  fs::path leave(const TrainingName& training) const {
    const auto path = local_folder(disk, training.name);
    const LocalFolder used(path, training);
    std::ofstream(path / "checkpoint.h5") << "a copy";
    return path;
  }
  std::string clear() const {
    return joined(clear_local_folders(disk, "own", [](const fs::path& results) { return fs::exists(results / "finished"); }),
                  "\n");
  }
};

int mode_of(const fs::path& path) {
  struct stat about {};
  return lstat(path.c_str(), &about) == 0 ? static_cast<int>(about.st_mode & 07777) : -1;
}
std::string refusal(const fs::path& path, const TrainingName& training) {
  const auto looked = error_text([&] { require_local_folder(path, training); });
  const auto taken = error_text([&] { const LocalFolder used(path, training); });
  CHECK(looked == taken);
  return taken;
}

}  // namespace

TEST_CASE("local folder: another training's, another user's, a link, or one that others may change is refused") {
  const Place place;
  const auto one = place.training("one", "run"), other = place.training("other", "run2");
  const auto path = local_folder(place.disk, "one");
  CHECK(refusal(path, one).empty());
  CHECK(mode_of(path) == 0700);
  CHECK(has(refusal(path, other), "is not of this training, other, but of one"));
  fs::permissions(path, fs::perms::all);
  CHECK(has(refusal(path, one), "may be changed by other users"));
  fs::permissions(path, fs::perms::owner_all);
  fs::permissions(path / ".training", fs::perms::all);
  CHECK(has(refusal(path, one), "may be changed by other users"));
  fs::rename(path, place.folder / "elsewhere");
  fs::create_directory_symlink(place.folder / "elsewhere", path);
  CHECK(has(refusal(path, one), "is a link"));
  fs::remove(path);
  fs::permissions(place.disk, fs::perms::all);
  CHECK(has(refusal(path, one), "other users can replace files in"));
  fs::permissions(place.disk, fs::perms::all | fs::perms::sticky_bit);
  CHECK(refusal(path, one).empty());
  if (geteuid() != 0) return count_skipped("local folder: another user's", "only root can give a folder away");
  REQUIRE(chown(path.c_str(), 65534, 65534) == 0);
  CHECK(has(refusal(path, one), "belongs to another user"));
}

TEST_CASE("local folder: copies of other trainings and other users are not taken, and copies are closed to others") {
  if (without_hdf5("local copies")) return;
  const Place place;
  const auto name = place.training("one", "run");
  const auto before = umask(0);
  check_on_ranks(2, "copies", [&](const Communicator& comm) {
    const auto mine = place.disk / fmt::format("node{}", comm.rank());
    Training t(comm);
    const auto save = [&](const std::string& note) {
      LocalCopies copies(comm, mine, name, {.partners = {1}});
      CheckpointSaver saver(comm);
      saver.stage(copies.file(5), t.net, {.optimizer = &*t.sgd, .info = {.step = 5, .notes = {{training_note, note}}}}, {},
                  [&] { copies.replicate(5); });
      saver.finish();
    };
    const auto found = [&] { return find_local_copy(comm, mine, name, 0, true).rank; };
    const auto file = mine / newest_checkpoint;
    save("one");
    require(mode_of(file) == 0600, "[test] rank {}: mode {:o}", comm.rank(), mode_of(file));
    require(found() == 0, "[test] no copy");
    comm.transport().barrier();
    fs::permissions(file, fs::perms::group_write, fs::perm_options::add);
    comm.transport().barrier();
    require(found() == -1, "[test] a copy that others may change");
    comm.transport().barrier();
    fs::remove(file);
    comm.transport().barrier();
    save("other");
    require(found() == -1, "[test] a copy of another training");
    comm.transport().barrier();
    fs::permissions(mine, fs::perms::all);
    comm.transport().barrier();
    require(has(error_text([&] { found(); }), "may be changed by other users"), "[test] a folder that others may change");
    fs::permissions(mine, fs::perms::owner_all);
  });
  umask(before);
}

TEST_CASE("local folder: what ended trainings have left is removed, what may be resumed stays") {
  const Place place;
  const auto killed = place.leave(place.training("killed", "killed"));
  const auto ended = place.leave(place.training("ended", "ended"));
  std::ofstream(place.folder / "ended/finished") << "";
  const auto gone = place.leave(place.training("gone", "gone"));
  fs::remove_all(place.folder / "gone");
  const auto renamed = place.leave(place.training("renamed", "before"));
  fs::rename(place.folder / "before", place.folder / "after");
  const auto replaced = place.leave(place.training("replaced", "again"));
  place.training("newer", "again");
  const auto nameless = place.leave(place.training("nameless", "nameless"));
  fs::remove(place.folder / "nameless/training-name");
  // As if a file system were not mounted.
  const auto unmounted = place.leave(place.training("unmounted", "mount/run"));
  fs::rename(place.folder / "mount", place.folder / "hidden");
  fs::create_directory(place.folder / "mount");
  const auto own = place.leave({"own", place.folder / "none/training-name"});
  const auto unknown = place.disk / "mpigrad-unknown";
  fs::create_directory(unknown);
  fs::create_directory(place.disk / "others");
  const auto live = place.training("live", "live");
  std::ofstream(place.folder / "live/finished") << "";
  place.leave(live);
  {
    const LocalFolder used(local_folder(place.disk, "live"), live);
    const auto told = place.clear();
    INFO(told);
    for (const auto& path : {ended, gone, replaced, nameless}) {
      CHECK(!fs::exists(path));
      CHECK(has(told, path.string() + ": local copies of the training in "));
    }
    for (const auto& path : {killed, renamed, unmounted, unknown}) {
      CHECK(fs::exists(path));
      CHECK(has(told, path.string()));
    }
    for (const auto& path : {own, local_folder(place.disk, "live"), place.disk / "others"}) {
      CHECK(fs::exists(path));
      CHECK(!has(told, path.string() + ":"));
    }
    CHECK(has(told, "which has finished: removed"));
    CHECK(has(told, "are kept: --resume can continue from them"));
  }
  CHECK(has(place.clear(), "mpigrad-live: local copies of the training in"));
  CHECK(!fs::exists(local_folder(place.disk, "live")));
  // The kernel cannot tell which processes of other hosts live.
  const auto mark = killed / ".training";
  std::ifstream file(mark);
  std::stringstream text;
  text << file.rdbuf();
  auto changed = text.str();
  changed.replace(changed.find('\n') + 1, changed.find('\n', changed.find('\n') + 1) - changed.find('\n') - 1, "another-host");
  std::ofstream(mark) << changed;
  fs::remove_all(place.folder / "killed");
  const auto told = place.clear();
  CHECK(!has(told, killed.string()));
  CHECK(has(told, place.disk.string() + ": folders of local copies of other hosts are kept"));
  CHECK(has(told, ": 1 of host another-host"));
  CHECK(fs::exists(killed));
}

TEST_CASE("local folder: copies stay where their path of results means another place") {
  const Place place;
  // As in two containers with the same host name and different folders at the same path.
  const auto training = place.training("one", "work/run");
  const auto path = place.leave(training);
  fs::rename(place.folder / "work", place.folder / "first");
  CHECK(has(place.clear(), "are kept: that path meant another place"));
  for (const auto* name : {"one", "another"}) {
    place.training(name, "work/run");
    std::ofstream(place.folder / "work/run/finished") << "";
    CHECK(has(place.clear(), "are kept: that path meant another place"));
  }
  fs::remove(place.folder / "work/run/training-name");
  CHECK(has(place.clear(), "are kept: that path meant another place"));
  fs::remove_all(place.folder / "work/run");
  CHECK(has(place.clear(), "are kept: that path meant another place"));
  fs::remove_all(place.folder / "work");
  fs::rename(place.folder / "first", place.folder / "work");
  CHECK(has(place.clear(), "are kept: --resume"));
  std::ofstream(place.folder / "work/run/finished") << "";
  const auto fails = [](const fs::path& results) -> bool { throw fs::filesystem_error("unreadable", results, {}); };
  CHECK(has(joined(clear_local_folders(place.disk, "own", fails), "\n"), "is kept, as nothing is known of its training"));
  CHECK(has(joined(clear_local_folders(path / "checkpoint.h5", "own", fails), "\n"), "cannot be listed"));
  CHECK(clear_local_folders(place.folder / "none", "own", fails).empty());
  CHECK(has(place.clear(), "which has finished: removed"));
  CHECK(!fs::exists(path));
}

TEST_CASE("local folder: pipes and names of other users beside the results are not read") {
  const Place place;
  const auto path = place.leave(place.training("one", "run"));
  fs::remove_all(place.folder / "run");
  for (const auto* name : {"pipe", "other"}) fs::create_directory(place.folder / name);
  REQUIRE(mkfifo((place.folder / "pipe/training-name").c_str(), 0600) == 0);
  std::ofstream(place.folder / "other/training-name") << "one\n";
  if (geteuid() == 0) REQUIRE(chown((place.folder / "other").c_str(), 65534, 65534) == 0);
  else fs::remove(place.folder / "other/training-name");
  CHECK(has(place.clear(), "which is no longer there: removed"));
  CHECK(!fs::exists(path));
  // The file of its name is a pipe: the training is not known.
  const auto second = place.training("two", "run");
  const auto kept = place.leave(second);
  fs::remove(second.file);
  REQUIRE(mkfifo(second.file.c_str(), 0600) == 0);
  CHECK(has(place.clear(), "are kept: --resume"));
  CHECK(fs::exists(kept));
}
