// Launching of programs: options, the GPU and the threads of each rank, exit codes.

#include "comm/launch.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>

#include "framework/cuda/cuda.h"
#include "tests/support/errors.h"

using namespace mpigrad;

TEST_CASE("launch: options are taken out of the command line") {
  const auto take = [](std::vector<std::string> words) {
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    int argc = static_cast<int>(words.size());
    const auto options = take_launch_options(argc, argv.data());
    std::string rest;
    for (int i = 0; i < argc; ++i) rest += std::string(argv[static_cast<std::size_t>(i)]) + " ";
    return fmt::format("{} {}{}{} | {}", options.transport, options.ranks, options.device.empty() ? "" : " ", options.device,
                       rest);
  };
  CHECK(take({"prog", "--a", "--transport", "threads", "b", "--ranks=4"}) == "threads 4 | prog --a b ");
  CHECK(take({"prog", "--transport=mpi", "--ranksx", "1"}) == "mpi 0 | prog --ranksx 1 ");
  CHECK(take({"prog", "--", "--ranks", "4"}) == " 0 | prog -- --ranks 4 ");
  CHECK_THROWS_WITH(take({"prog", "--ranks"}), "[launch] --ranks needs a value");
  CHECK_THROWS_WITH(take({"prog", "--ranks", "0"}), "[launch] --ranks is a number of ranks, 1 or more, got '0'");
  CHECK_THROWS_WITH(take({"prog", "--transport=carrier-pigeon"}), "[launch] --transport is threads or mpi, got 'carrier-pigeon'");
  CHECK(take({"prog", "--device", "cuda", "--ranks=2"}) == " 2 cuda | prog ");
  CHECK(take({"prog", "--device=cpu", "--devices", "x"}) == " 0 cpu | prog --devices x ");
  CHECK_THROWS_WITH(take({"prog", "--device"}), "[launch] --device needs a value");
  CHECK_THROWS_WITH(take({"prog", "--device", "gpu"}), "[launch] --device is cpu or cuda, got 'gpu'");
  setenv("MPIGRAD_DEVICE", "cuda", 1);
  CHECK(take({"prog"}) == " 0 cuda | prog ");
  CHECK(take({"prog", "--device", "cpu"}) == " 0 cpu | prog ");
  setenv("MPIGRAD_DEVICE", "tpu", 1);
  CHECK_THROWS_WITH(take({"prog"}), "[launch] MPIGRAD_DEVICE is cpu or cuda, got 'tpu'");
  unsetenv("MPIGRAD_DEVICE");
  setenv("MPIGRAD_TRANSPORT", "threads", 1);
  setenv("MPIGRAD_RANKS", "3", 1);
  CHECK(take({"prog"}) == "threads 3 | prog ");
  CHECK(take({"prog", "--ranks", "5"}) == "threads 5 | prog ");
  unsetenv("MPIGRAD_TRANSPORT");
  unsetenv("MPIGRAD_RANKS");
  CHECK(resolve_launch_options({.transport = "", .ranks = 4}).transport == "threads");
  CHECK(resolve_launch_options({.transport = "threads", .ranks = 0}).ranks == 1);
}

TEST_CASE("launch: a GPU is refused in one line where there is none, and the rest works") {
  CHECK(resolve_launch_options({.transport = "threads", .ranks = 2, .device = ""}).device == "cpu");
  const LaunchOptions options{.transport = "threads", .ranks = 2, .device = "cuda"};
  if (cuda::available()) {
    CHECK(resolve_launch_options(options).device == "cuda");
  } else {
    const auto text = testing::error_text([&] { resolve_launch_options(options); });
    CHECK(text == "[launch] --device cuda: " + cuda::unavailable());
    CHECK(text.find('\n') == std::string::npos);
    std::string words[] = {"prog", "--device=cuda", "--transport=threads", "--ranks=3"};
    char* argv[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(), nullptr};
    int argc = 4;
    bool ran = false;
    CHECK(launch(argc, argv, [&](std::shared_ptr<Transport>) {
            ran = true;
            return 0;
          }) == 2);  // prints the line once
    CHECK_FALSE(ran);
  }
  run_threads(5, [](std::shared_ptr<Transport> t) {
    require(gpu_of_rank(*t, 2) == t->rank() % 2 && gpu_of_rank(*t, 8) == t->rank(), "[test] GPU of rank {}", t->rank());
    require(testing::error_text([&] { gpu_of_rank(*t, 0); }) == fmt::format("[launch] there is no GPU for rank {}", t->rank()),
            "[test] no GPU");
  });
}

TEST_CASE("launch: exit codes, and the threads of each rank") {
  const auto run = [](const char* ranks, const std::function<int(std::shared_ptr<Transport>)>& body) {
    std::string words[] = {"prog", "--transport", "threads", "--ranks", ranks};
    char* argv[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(), words[4].data(), nullptr};
    int argc = 5;
    return launch(argc, argv, body);
  };
  CHECK(run("3", [](std::shared_ptr<Transport>) { return 0; }) == 0);
  CHECK(run("3", [](std::shared_ptr<Transport> t) { return t->rank() == 2 ? 7 : 0; }) == 7);
  CHECK(run("3", [](std::shared_ptr<Transport> t) {
          if (t->rank() == 1) fail("[test] this line is expected once on standard error");
          t->barrier();
          return 0;
        }) == 1);
  CHECK(run("none", [](std::shared_ptr<Transport>) { return 0; }) == 2);
  unsetenv("OMP_NUM_THREADS");
  const int cores = threads_of_rank(*dry_world(0, 100, nullptr));
  CHECK(cores >= 1);
  for (int ranks : {1, 2, 3})
    run_threads(ranks, [&](std::shared_ptr<Transport> t) {
      require(set_threads_of_rank(*t) == std::max(1, cores / t->size()), "[test] threads of {} ranks", t->size());
    });
  setenv("MPIGRAD_THREADS", "5", 1);
  CHECK(threads_of_rank(*dry_world(0, 1, nullptr)) == 5);
  unsetenv("MPIGRAD_THREADS");
}
