// Files and folders of other users, and links, are refused; new files are closed to other users.

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "framework/base/own_files.h"
#include "tests/support/files.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

namespace fs = std::filesystem;

int mode_of(const fs::path& path) {
  struct stat about {};
  return lstat(path.c_str(), &about) == 0 ? static_cast<int>(about.st_mode & 07777) : -1;
}
std::string refused_file(const fs::path& path) {
  return error_text([&] { static_cast<void>(open_own_file(path, "who", O_RDONLY)); });
}
std::string refused_folder(const fs::path& path) {
  return error_text([&] { static_cast<void>(open_own_folder(path, "who")); });
}
std::string refused_place(const fs::path& path) {
  return error_text([&] { require_safe_place(path, "who"); });
}

}  // namespace

TEST_CASE("own files: what is made is closed to others under any umask") {
  const Folder folder;
  const auto before = umask(0);
  static_cast<void>(make_own_folder(folder / "a/b", "who"));
  static_cast<void>(make_own_file(folder / "a/b/file", "who", O_WRONLY));
  umask(before);
  CHECK(mode_of(folder / "a") == 0700);
  CHECK(mode_of(folder / "a/b") == 0700);
  CHECK(mode_of(folder / "a/b/file") == 0600);
}

TEST_CASE("own files: links, pipes, other kinds and what others may change are refused") {
  const Folder folder;
  const auto file = folder / "file", inner = folder / "inner";
  std::ofstream(file) << "text";
  fs::create_directory(inner);
  CHECK(refused_file(file).empty());
  CHECK(refused_folder(inner).empty());
  CHECK(has(refused_file(inner), "[who] " + inner.string() + " is not a regular file"));
  CHECK(has(refused_folder(file), " is not a folder"));
  CHECK(has(refused_file(folder / "none"), "cannot be opened: No such file"));
  fs::create_symlink(file, folder / "link");
  fs::create_directory_symlink(inner, folder / "links");
  CHECK(has(refused_file(folder / "link"), "is a link"));
  CHECK(has(refused_folder(folder / "links"), "is a link"));
  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK(has(refused_file(folder / "pipe"), "is not a regular file"));
  for (const auto bits : {fs::perms::group_write, fs::perms::others_write}) {
    fs::permissions(file, bits, fs::perm_options::add), fs::permissions(inner, bits, fs::perm_options::add);
    CHECK(has(refused_file(file), "may be changed by other users"));
    CHECK(has(refused_folder(inner), "may be changed by other users"));
    fs::permissions(file, bits, fs::perm_options::remove), fs::permissions(inner, bits, fs::perm_options::remove);
  }
  CHECK(refused_file(file).empty());
  if (geteuid() != 0) return count_skipped("own files: another user's", "only root can give a file away");
  REQUIRE(chown(file.c_str(), 65534, 65534) == 0);
  REQUIRE(chown(inner.c_str(), 65534, 65534) == 0);
  CHECK(has(refused_file(file), "belongs to another user (uid 65534"));
  CHECK(has(refused_folder(inner), "belongs to another user (uid 65534"));
}

TEST_CASE("own files: a shared folder without a sticky bit is no safe place") {
  const Folder folder;
  CHECK(refused_place(folder.path).empty());
  CHECK(refused_place(folder / "not/there").empty());
  fs::permissions(folder.path, fs::perms::all);
  CHECK(has(refused_place(folder.path), "its mode is 777"));
  CHECK(has(refused_place(folder / "not/there"), "its mode is 777"));
  fs::permissions(folder.path, fs::perms::all | fs::perms::sticky_bit);
  CHECK(refused_place(folder.path).empty());
  fs::permissions(folder.path, fs::perms::owner_all);
}

TEST_CASE("own files: a place of another user's is none, a place or a file of root's is one") {
  if (geteuid() != 0) return count_skipped("own files: another user's place", "only root can give a folder away");
  const Folder folder;
  const auto file = folder / "file", other = folder / "other";
  std::ofstream(file) << "text";
  std::ofstream(other) << "text";
  fs::create_directory(folder / "place");
  REQUIRE(chown((folder / "place").c_str(), 65533, 65533) == 0);
  for (const auto mode : {0755, 01777}) {
    fs::permissions(folder / "place", static_cast<fs::perms>(mode));
    CHECK(has(refused_place(folder / "place/not there"), "another user (uid 65533) can replace files in"));
  }
  REQUIRE(chown(other.c_str(), 65533, 65533) == 0);
  fs::permissions(folder.path, static_cast<fs::perms>(0755));
  const auto process = fork();
  if (process == 0) {
    const bool left = seteuid(65534) == 0;
    const bool right = left && has(refused_file(file), "belongs to another user") && refused_place(folder.path).empty() &&
                       error_text([&] { static_cast<void>(open_trusted_file(file, "who")); }).empty() &&
                       has(error_text([&] { static_cast<void>(open_trusted_file(other, "who")); }), "belongs to another user");
    _exit(right ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(process, &status, 0) == process);
  CHECK(status == 0);
}

TEST_CASE("own files: the group loses the right to write to what is this user's, and to nothing else") {
  const Folder folder;
  const auto after = [&](const fs::path& path, int mode) {
    fs::permissions(path, static_cast<fs::perms>(mode));
    close_to_group(path);
    return mode_of(path);
  };
  const auto file = folder / "file", inner = folder / "inner";
  std::ofstream(file) << "text";
  fs::create_directory(inner);
  CHECK(after(file, 0664) == 0600);
  CHECK(after(file, 0644) == 0644);
  CHECK(after(file, 0666) == 0666);
  CHECK(after(inner, 0775) == 0700);
  CHECK(after(inner, 01775) == 01775);
  CHECK(after(inner, 0777) == 0777);
  fs::permissions(file, static_cast<fs::perms>(0664));
  fs::create_symlink(file, folder / "link");
  close_to_group(folder / "link");
  fs::create_hard_link(file, folder / "second");
  close_to_group(file);
  CHECK(mode_of(file) == 0664);
  if (geteuid() != 0) return count_skipped("own files: the mode of another user's", "only root can give a folder away");
  REQUIRE(chown(inner.c_str(), 65534, 65534) == 0);
  CHECK(after(inner, 0775) == 0775);
}
