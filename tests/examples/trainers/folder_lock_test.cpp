// Folders that one process at a time has: locks that are held, left over, or of another host.

#include "models/trainer/folder/folder_lock.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "framework/base/new_file.h"
#include "models/trainer/tool/together.h"
#include "tests/support/files.h"

namespace mpigrad::tool {
namespace {

constexpr FolderLockOptions quick{.beat = 0.05, .quiet = true};

// The file of a process on another host.
std::string of_another_host(int beats) {
  return fmt::format("process 7 on elsewhere, since then\nanother kernel\n{:010}\n", beats);
}

TEST_CASE("folder lock: one at a time, and nothing of it remains") {
  const testing::Folder folder;
  {
    const FolderLock lock(folder.path);
    CHECK(lock.held());
    CHECK(has_files(folder.path) == false);
    CHECK_THROWS_WITH_AS(
        FolderLock(folder.path),
        doctest::Contains(
            fmt::format("another process is at work in {}: process {} on ", folder.path.string(), getpid()).c_str()),
        UsageError);
    const FolderLock of_a_file(folder.path, {.of = "a.h5"});
    CHECK_THROWS_WITH_AS(FolderLock(folder.path, {.of = "a.h5"}), doctest::Contains("/a.h5: process "), UsageError);
  }
  CHECK(folder.files() == 0);
  const FolderLock again(folder.path);
  CHECK_THROWS_AS(FolderLock(folder.path / "none"), Error);
}

TEST_CASE("folder lock: what a killed process has left is taken at once") {
  const testing::Folder folder;
  const auto file = folder.path / ".lock";
  std::string text;
  {
    const FolderLock lock(folder.path);
    std::ifstream stream(file);
    text.assign(std::istreambuf_iterator<char>(stream), {});
  }
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t child = fork();
  if (child == 0) {  // calls of the kernel alone: the thread sanitizer lets a child of threads do no more
    const int lock = open(file.c_str(), O_RDWR | O_CREAT, 0666);
    const bool locked = flock(lock, LOCK_EX) == 0 && ::write(lock, text.data(), text.size()) > 0;
    if (!locked || ::write(ready[1], "", 1) != 1) _exit(1);
    for (;;) pause();
  }
  char byte = 0;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  CHECK_THROWS_AS(FolderLock(folder.path), UsageError);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]), close(ready[1]);
  REQUIRE(std::filesystem::exists(file));
  const FolderLock lock(folder.path, {.beat = 1000, .quiet = true});  // it waits for no sign of life
  CHECK(lock.held());
}

TEST_CASE("folder lock: a process that is just ending is waited for") {
  const testing::Folder folder;
  auto first = std::make_unique<FolderLock>(folder.path);
  std::thread ends([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    first.reset();
  });
  const FolderLock second(folder.path, {.patience = 300});
  ends.join();
  CHECK(second.held());
}

TEST_CASE("folder lock: of another host signs of life count") {
  const testing::Folder folder;
  const auto file = folder.path / ".lock";
  write_new_file(file, of_another_host(3), "test");
  {
    const FolderLock lock(folder.path, quick);  // there came none
    CHECK(lock.held());
  }
  CHECK(folder.files() == 0);
  // A file system that keeps a dead host's flock: this one is held by another descriptor.
  {
    auto dead = std::make_unique<FolderLock>(folder.path, FolderLockOptions{.beat = 1000});
    std::ofstream(file) << of_another_host(3);
    const FolderLock lock(folder.path, quick);
    CHECK(lock.held());
    CHECK_FALSE(dead->held());
    dead.reset();
    CHECK(lock.held());  // the one that lost the folder removes nothing of it
  }
  CHECK(folder.files() == 0);
  std::atomic<bool> ends = false;
  write_new_file(file, of_another_host(0), "test");
  std::thread alive([&] {
    for (int beats = 1; !ends; ++beats) {
      write_new_file(file, of_another_host(beats), "test");
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  CHECK_THROWS_WITH_AS(FolderLock(folder.path, {.beat = 5, .quiet = true}), doctest::Contains("process 7 on elsewhere"),
                       UsageError);
  ends = true;
  alive.join();
}

TEST_CASE("folder lock: signs of life are written, and a removed folder is noticed") {
  const testing::Folder folder;
  const auto inside = folder.path / "run";
  std::filesystem::create_directory(inside);
  const FolderLock lock(inside, quick);
  const auto beats = [&] {
    std::ifstream stream(inside / ".lock");
    std::string line, last;
    while (std::getline(stream, line)) last = line;
    return last;
  };
  const auto first = beats();
  for (int i = 0; i < 10000 && beats() == first; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  CHECK(beats() != first);
  std::filesystem::remove_all(inside);
  CHECK_FALSE(lock.held());
  std::filesystem::create_directory(inside);
  const FolderLock other(inside);
  CHECK_FALSE(lock.held());
  CHECK(other.held());
}

}  // namespace
}  // namespace mpigrad::tool
