#include "framework/base/new_file.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <csignal>
#include <optional>
#include <regex>
#include <set>

#include "tests/support/files.h"

using namespace mpigrad;
using namespace mpigrad::testing;
namespace fs = std::filesystem;

namespace {

std::string text_in(const fs::path& path) {
  std::ifstream stream(path);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void put(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }

// Things that are not regular files, with the word for each in messages.
void make_odd_files(const Folder& folder) {
  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  fs::create_directory(folder / "folder");
  const int made = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  (folder / "socket").string().copy(address.sun_path, sizeof(address.sun_path) - 1);
  REQUIRE(bind(made, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  close(made);
}

TEST_CASE("new file: it replaces a link and writes to nothing else") {
  const Folder folder;
  put(folder / "theirs", "precious");
  fs::create_symlink("theirs", folder / "link");
  fs::create_symlink("nowhere", folder / "dangling");
  fs::create_hard_link(folder / "theirs", folder / "hard");
  for (const char* name : {"link", "dangling", "hard"}) {
    write_new_file(folder / name, "new", "test");
    CHECK(fs::is_regular_file(fs::symlink_status(folder / name)));
    CHECK(text_in(folder / name) == "new");
  }
  CHECK(text_in(folder / "theirs") == "precious");
  CHECK_FALSE(fs::exists(folder / "nowhere"));
  make_odd_files(folder);
  const auto before = folder.files();
  for (const char* name : {"pipe", "folder", "socket"}) {
    CHECK_THROWS_AS(write_new_file(folder / name, "new", "test"), FileInTheWay);
    CHECK(has(error_text([&] { write_new_file(folder / name, "new", "test"); }),
              fmt::format("[test] {} is in the way: a {}, not a regular file", (folder / name).string(), name)));
  }
  CHECK(folder.files() == before);
  CHECK(has(error_text([&] { NewFile(folder / "no/such", "test"); }), "such cannot be written: No such file or directory"));
}

TEST_CASE("new file: the temporary name is hidden, random and taken once, and the umask counts") {
  const Folder folder;
  const auto long_name = std::string(250, 'n');
  std::set<std::string> names;
  for (int i = 0; i < 8; ++i) {
    NewFile file(folder / (i < 7 ? "a.csv" : long_name.c_str()), "test");
    const auto name = file.temporary().filename().string();
    CHECK(std::regex_match(name, std::regex("\\.(a\\.csv|n{200})\\.[0-9a-f]{16}\\.part")));
    names.insert(name);
    CHECK(folder.files() == 1);
    file.write("begun");
  }
  CHECK(names.size() == 8);
  CHECK(folder.files() == 0);
  const auto mask = umask(027);
  write_new_file(folder / "a.csv", "", "test");
  close(open_growing_file(folder / "b.csv", O_WRONLY, "test"));
  umask(mask);
  for (const char* name : {"a.csv", "b.csv"})
    CHECK((fs::status(folder / name).permissions() & fs::perms::mask) == static_cast<fs::perms>(0640));
  {  // another process takes the temporary name meanwhile
    NewFile file(folder / "a.csv", "test");
    fs::remove(file.temporary());
    fs::create_symlink("b.csv", file.temporary());
    CHECK(has(error_text([&] { file.commit(); }), "was removed or replaced"));
  }
  CHECK(fs::is_regular_file(fs::symlink_status(folder / "a.csv")));
}

TEST_CASE("new file: what an interrupted attempt left is removed, what another one is writing is not") {
  const Folder folder, other;
  const auto abandoned = folder / ".a.csv.0123456789abcdef.part";
  put(abandoned, "half");
  // For a file of another host, an age of one day decides.
  fs::last_write_time(abandoned, fs::file_time_type::clock::now() - std::chrono::hours(25));
  const std::set<std::string> kept{".b.csv.0123456789abcdef.part", ".a.csv.0123456789abcdeg.part", "a.csv.part",
                                   ".a.csv.0123.part", ".a.csv.0123456789abcdee.part"};
  for (const auto& name : kept) put(folder / name.c_str(), "theirs");
  fs::create_symlink("a.csv.part", folder / ".a.csv.1111111111111111.part");
  fs::create_directory(folder / ".a.csv.2222222222222222.part");
  // The lock is removed together with the file.
  auto busy = std::make_optional<NewFile>(other / "a.csv", "test");
  const auto living = folder.path / busy->temporary().filename();
  fs::rename(busy->temporary(), living);
  write_new_file(folder / "a.csv", "", "test");
  CHECK_FALSE(fs::exists(abandoned));
  CHECK(fs::exists(living));
  busy.reset();
  write_new_file(folder / "a.csv", "", "test");
  CHECK_FALSE(fs::exists(living));
  for (const auto& name : kept) CHECK(text_in(folder / name.c_str()) == "theirs");
  CHECK(folder.files() == kept.size() + 3);
}

TEST_CASE("new file: a full disk leaves what was there") {
  const Folder folder;
  put(folder / "a", "before");
  const auto previous = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit limit{10, old.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  const auto full = error_text([&] { write_new_file(folder / "a", std::string(20, 'x'), "test"); });
  const auto grown = error_text([&] { GrowingFile(folder / "b", O_WRONLY | O_TRUNC, "test").write(std::string(20, 'x')); });
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, previous);
  CHECK(has(full, "a could not be written completely: File too large"));
  CHECK(has(grown, "b could not be written completely: File too large"));
  CHECK(text_in(folder / "a") == "before");
  CHECK(folder.files() == 2);
}

TEST_CASE("growing file: regular, of this user, with one name, or nothing is changed") {
  const Folder folder;
  {
    GrowingFile file(folder / "own", O_WRONLY | O_TRUNC, "test");
    file.write("one\n"), file.write("two\n");
    CHECK(text_in(folder / "own") == "one\ntwo\n");
  }
  GrowingFile(folder / "own", O_WRONLY | O_APPEND, "test").write("three\n");
  CHECK(text_in(folder / "own") == "one\ntwo\nthree\n");
  GrowingFile(folder / "own", O_WRONLY | O_TRUNC, "test").write("new\n");
  CHECK(text_in(folder / "own") == "new\n");

  put(folder / "theirs", "precious");
  fs::create_symlink("theirs", folder / "link");
  fs::create_symlink("nowhere", folder / "dangling");
  fs::create_hard_link(folder / "theirs", folder / "hard");
  make_odd_files(folder);
  const auto refused = [&](const char* name, const std::string& what) {
    for (const int flags : {O_WRONLY | O_TRUNC, O_RDWR | O_APPEND}) {
      CHECK_THROWS_AS(open_growing_file(folder / name, flags, "test"), FileInTheWay);
      CHECK(has(error_text([&] { open_growing_file(folder / name, flags, "test"); }),
                fmt::format("[test] {} is in the way: {}", (folder / name).string(), what)));
    }
  };
  refused("link", "a link, not a regular file"), refused("dangling", "a link, not a regular file");
  refused("hard", "a file with 2 names (hard links)");
  for (const char* name : {"pipe", "folder", "socket"}) refused(name, fmt::format("a {}, not a regular file", name));
  CHECK(text_in(folder / "theirs") == "precious");
  CHECK_FALSE(fs::exists(folder / "nowhere"));
  if (geteuid() != 0) return;  // only root can change the owner of a file
  put(folder / "foreign", "precious");
  REQUIRE(chown((folder / "foreign").c_str(), 4711, 4711) == 0);
  refused("foreign", "a file of another user");
  CHECK(text_in(folder / "foreign") == "precious");
  close(open_growing_file(folder / "foreign", O_RDWR, "test", true));
}

}  // namespace
