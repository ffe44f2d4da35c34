// With what a job goes on when hosts are lost, and processes that are watched.

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <string>
#include <vector>

#include "examples/tools/elastic/command.h"
#include "examples/tools/elastic/job.h"
#include "examples/tools/elastic/plan.h"
#include "framework/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

using namespace mpigrad;
using namespace mpigrad::elastic;

namespace {
std::vector<int> extents(const GridExtents& g) { return {g.sample, g.depth, g.height, g.width, g.channel, g.filter}; }
}  // namespace

TEST_CASE("elastic: the next grid keeps each group's memory as long as there is a group") {
  const GridExtents wanted{.sample = 4, .depth = 2, .height = 2};
  CHECK(extents(next_grid(wanted, 16)) == std::vector{4, 2, 2, 1, 1, 1});
  CHECK(extents(next_grid(wanted, 100)) == std::vector{4, 2, 2, 1, 1, 1});
  CHECK(extents(next_grid(wanted, 15)) == std::vector{3, 2, 2, 1, 1, 1});
  CHECK(extents(next_grid(wanted, 4)) == std::vector{1, 2, 2, 1, 1, 1});
  CHECK(extents(next_grid(wanted, 3)) == std::vector{1, 2, 1, 1, 1, 1});
  CHECK(extents(next_grid(wanted, 1)) == std::vector{1, 1, 1, 1, 1, 1});
  CHECK(extents(next_grid({.depth = 8}, 7)) == std::vector{1, 7, 1, 1, 1, 1});
  CHECK(extents(next_grid({.depth = 4, .channel = 2}, 7)) == std::vector{1, 3, 1, 1, 2, 1});
  CHECK(extents(next_grid({.sample = 2, .channel = 3, .filter = 2}, 11)) == std::vector{1, 1, 1, 1, 3, 2});
  CHECK(extents(next_grid({.sample = 2, .channel = 3, .filter = 2}, 5)) == std::vector{1, 1, 1, 1, 2, 2});
}

TEST_CASE("elastic: a command's grid is that of its flag, of --set or of its recipe") {
  const testing::Folder folder;
  const auto recipe = (folder.path / "run.toml").string(), base = (folder.path / "base.toml").string();
  std::ofstream(base) << "[grid]\nextents = \"depth=2\"\n";
  std::ofstream(recipe) << "include = \"base.toml\"\n[schedule]\nepochs = 3\n";
  const Words plain{"cosmoflow", "train", recipe, "--out", "run"};
  CHECK(grid_of(plain) == "depth=2");
  CHECK(grid_of({"cosmoflow", "train", "--out", recipe}) == std::nullopt);
  CHECK(grid_of({"cosmoflow", "train", recipe, "--set", "grid.extents=sample=4"}) == "sample=4");
  CHECK(grid_of({"cosmoflow", "train", recipe, "--set=grid.extents=sample=4", "--grid", "height=2"}) == "height=2");
  CHECK(testing::has(testing::error_text([&] {
                       grid_of({"cosmoflow", "train", "absent.toml"});
                     }),
                     "there is no recipe absent.toml"));
  CHECK(with_grid(plain, "depth=1") == Words{"cosmoflow", "train", recipe, "--out", "run", "--grid", "depth=1"});
  CHECK(with_grid({"cosmoflow", "--set", "grid.extents=sample=4", "--set", "seed=2", "--out", "run"}, "depth=1") ==
        Words{"cosmoflow", "--set", "seed=2", "--out", "run", "--grid", "depth=1"});
}

TEST_CASE("elastic: of all grids within the wanted one none is larger than the next") {
  const GridExtents wanted{.sample = 1, .depth = 3, .height = 4, .width = 2, .channel = 2};
  for (int ranks = 1; ranks < 48; ++ranks) {
    const auto e = extents(next_grid(wanted, ranks));
    const int size = e[0] * e[1] * e[2] * e[3] * e[4];
    CHECK(size <= ranks);
    int most = 0;
    for (int d = 1; d <= 3; ++d)
      for (int h = 1; h <= 4; ++h)
        for (int w = 1; w <= 2; ++w)
          for (int c = 1; c <= 2; ++c)
            if (d * h * w * c <= ranks) most = std::max(most, d * h * w * c);
    CHECK(size == most);
  }
}

TEST_CASE("elastic: templates become words") {
  using Words = std::vector<std::string>;
  CHECK(fill("srun  -n {ranks} --nodelist={hosts}", {{"ranks", "4"}, {"hosts", "a,b"}}) ==
        Words{"srun", "-n", "4", "--nodelist=a,b"});
  CHECK(fill("sh -c 'ping -c 1 {host}' \"\"", {{"host", "a"}}) == Words{"sh", "-c", "ping -c 1 a", ""});
  CHECK(fill("'{host}'x", {{"host", "a b"}}) == Words{"a bx"});
  CHECK_THROWS_AS(fill("mpiexec {rank}", {{"ranks", "4"}}), Error);
  CHECK_THROWS_AS(fill("mpiexec {ranks", {{"ranks", "4"}}), Error);
  CHECK_THROWS_AS(fill("sh -c 'ping", {}), Error);
}

TEST_CASE("elastic: srun gets the type that the MPI library needs, and a type that Slurm lacks is refused") {
  const std::string list = "MPI plugin types are...\n\tcray_shasta\n\tnone\n\tpmi2\n";
  const std::string old = "srun: MPI types are...\nsrun: none\nsrun: pmi2\n";  // Slurm 20
  CHECK(srun_with_type("", list) == "srun");
  CHECK(srun_with_type("pmi2", list) == "srun --mpi=pmi2");
  CHECK(srun_with_type("pmi2", old) == "srun --mpi=pmi2");
  CHECK(srun_with_type("pmix", "") == "srun --mpi=pmix");  // no list
  CHECK_THROWS_AS(srun_with_type("pmix", list), Error);
}

TEST_CASE("elastic: ranks start by the mpiexec of their own MPI where several are installed") {
  const auto debian = [](const char*) { return true; };
  const auto none = [](const char*) { return false; };
  const auto *hydra = "HYDRA build details:", *open = "mpiexec (OpenRTE) 4.1.4";
  CHECK(mpiexec_for("MPICH", hydra, false, debian) == "mpiexec -n {ranks}");
  CHECK(mpiexec_for("MPICH", open, false, debian) == "mpiexec.mpich -n {ranks}");
  CHECK(mpiexec_for("MPICH", open, true, none) == "mpiexec -n {ranks} -ppn {ranks_per_host} -hosts {hosts}");
  CHECK(mpiexec_for("Open MPI", hydra, false, debian) == "mpiexec.openmpi -n {ranks} --oversubscribe --bind-to none");
  CHECK(mpiexec_for("Open MPI", "mpiexec (Open MPI) 5.0.11", true, debian) ==
        "mpiexec -n {ranks} --oversubscribe --bind-to none --map-by ppr:{ranks_per_host}:node --host {hosts}");
  CHECK(mpiexec_for("", open, false, debian) == "mpiexec -n {ranks}");
}

TEST_CASE("elastic: hosts on which ranks die more often than is forgiven go") {
  Hosts hosts({"a", "b"}, 2, 1);
  CHECK(hosts.accuse("a").empty());
  CHECK(hosts.accuse("b").empty());
  CHECK_FALSE(hosts.accuse("a").empty());
  CHECK(hosts.names() == std::vector<std::string>{"b"});
  CHECK_FALSE(hosts.accuse("b").empty());  // the last one stays with a rank less
  CHECK(hosts.ranks() == 1);
  CHECK(hosts.accuse("b").empty());
  CHECK(hosts.accuse("b").empty());  // with one rank there is no less
  CHECK(hosts.ranks() == 1);
  CHECK_FALSE(hosts.drop("b"));
}

TEST_CASE("elastic: a job's end, its lines and its signals") {
  std::vector<std::string> lines;
  const auto look = [&](const std::string& line) { lines.push_back(line); };
  Job ended({"sh", "-c", "echo one >&2; echo two >&2; exit 7"});
  REQUIRE(ended.watch(60, look));
  CHECK(ended.code() == 7);
  CHECK(lines == std::vector<std::string>{"one", "two"});

  const auto watch_until_trap = [&](Job& job) {
    lines.clear();
    for (int i = 0; lines.empty() && i < 1200; ++i) CHECK_FALSE(job.watch(0.05, look));
  };
  Job asked({"sh", "-c", "trap 'exit 75' TERM; echo ready >&2; while :; do sleep 0.05; done"});
  watch_until_trap(asked);
  asked.signal(SIGTERM);
  REQUIRE(asked.watch(60, {}));
  CHECK(asked.code() == 75);

  Job deaf({"sh", "-c", "trap '' TERM; echo ready >&2; sleep 600 & while :; do sleep 0.05; done"});
  watch_until_trap(deaf);
  deaf.kill();
  CHECK(deaf.code() == 128 + SIGKILL);

  CHECK_THROWS_AS(Job({"/no/such/program"}), Error);
  CHECK(succeeds({"true"}, 60));
  CHECK_FALSE(succeeds({"false"}, 60));
  const auto start = std::chrono::steady_clock::now();
  CHECK_FALSE(succeeds({"sleep", "600"}, 0.2));
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(300));
}
