// Choices of GPU kernels, tested without a GPU: versions of cuDNN that compute wrongly, and the file of measured times.

#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "framework/base/warning.h"
#include "ops/backends/cudnn/cudnn_defects.h"
#include "ops/backends/cudnn/tuning_file.h"
#include "tests/support/files.h"

using namespace mpigrad;
using namespace mpigrad::testing;
using cuda::ConvCall;
using cuda::Order;
using cuda::TuningFile;

TEST_CASE("defects of cuDNN: the versions and calls that they concern") {
  const auto concerns = [](std::size_t version, const ConvCall& call) { return cuda::defect_of(version, call) != nullptr; };
  const ConvCall half{
      .type = DType::bfloat16, .order = Order::channels_first, .in_channels = 8, .out_channels = 16, .kernel = {3, 3, 3}};
  CHECK(!concerns(90701, half));
  CHECK(concerns(90800, half));
  CHECK(concerns(91400, half));
  CHECK(!concerns(91500, half));
  auto call = half;
  call.type = DType::float16;
  CHECK(concerns(91002, call));
  call.type = DType::float32;
  CHECK(!concerns(91002, call));
  call = half, call.order = Order::channels_last;
  CHECK(!concerns(91002, call));
  call.in_channels = call.out_channels = 1;  // for one channel these are the same
  CHECK(concerns(91002, call));
  call = half, call.kernel = {1, 1, 1};
  CHECK(!concerns(91002, call));
  call = half, call.flat = true;
  CHECK(!concerns(91002, call));

  const ConvCall tf32{.tf32 = true, .kernel = {1, 3, 3}};
  CHECK(!concerns(91001, tf32));
  CHECK(concerns(91002, tf32));
  CHECK(concerns(91501, tf32));
  CHECK(!concerns(91600, tf32));
  REQUIRE(cuda::defect_of(91501, tf32) != nullptr);
  const auto& defect = *cuda::defect_of(91501, tf32);
  CHECK(defect.float32_instead);
  CHECK(
      cuda::text_of(defect, 91501).starts_with("cuDNN 9.15.1 computes three-dimensional convolutions in TF32 wrongly (https://"));
  CHECK(cuda::text_of(defect, 91501).find("no defect is known in 9.16.0 and newer") != std::string::npos);

  // Two engines with errors in every version.
  ConvCall weight{.pass = cuda::Pass::weight, .type = DType::float64, .flat = true, .kernel = {1, 1, 3}, .pad_low = {0, 0, 2}};
  const auto concerns_engine = [&](std::int64_t engine) { return cuda::defect_of_engine(91900, weight, engine) != nullptr; };
  CHECK(!concerns(91900, weight));
  CHECK((concerns_engine(1) && concerns_engine(20)));
  CHECK((!concerns_engine(0) && !concerns_engine(2)));
  CHECK(cuda::text_of(*cuda::defect_of_engine(90000, weight, 1), 90000).find("wrongly (seen with 9.19.0: ") != std::string::npos);
  weight.pad_high = weight.pad_low;
  CHECK(!concerns_engine(1));
  weight.pad_high = {}, weight.pass = cuda::Pass::forward;
  CHECK(!concerns_engine(1));

  setenv("MPIGRAD_CUDNN_DEFECTS", "ignore", 1);
  CHECK(!concerns(91002, half));
  CHECK(!concerns(91002, tf32));
  setenv("MPIGRAD_CUDNN_DEFECTS", "", 1);
  CHECK(concerns(91002, half));
  unsetenv("MPIGRAD_CUDNN_DEFECTS");
}

TEST_CASE("tuning file: answers outlive the process, whoever writes them") {
  const Folder folder;
  const auto path = (folder.path / "caches" / "tuning.txt").string();
  {
    TuningFile one(path), other(path);
    CHECK(!one.find("a problem"));
    one.add("a problem", "engine 1");
    other.add("a problem", "engine 2");  // too late
    other.add("another", "engine 3");
    CHECK(*one.find("a problem") == "engine 1");
    CHECK(*other.find("a problem") == "engine 1");
  }
  TuningFile later(path);
  CHECK(*later.find("a problem") == "engine 1");
  CHECK(*later.find("another") == "engine 3");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      TuningFile mine(path);
      for (int i = 0; i < 50; ++i) mine.add("key " + std::to_string(i), "thread " + std::to_string(t));
    });
  for (auto& thread : threads) thread.join();
  TuningFile all(path);
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  for (int i = 0; i < 50; ++i) {
    const auto key = "key " + std::to_string(i);
    REQUIRE(all.find(key));
    const auto once = text.str().find("\n" + key + "\t");
    REQUIRE(once != std::string::npos);
    CHECK(text.str().find("\n" + key + "\t", once + 1) == std::string::npos);
  }
}

TEST_CASE("tuning file: what is damaged is as if it were not there, and what cannot be written is said once") {
  const Folder folder;
  const auto path = (folder / "tuning.txt").string();
  std::ofstream(path) << "whole\tengine 7\tok\ncut off\tengine\nno tab\n\tok\nlast\teng";
  TuningFile file(path);
  CHECK(*file.find("whole") == "engine 7");
  for (const char* key : {"cut off", "no tab", "last", ""}) CHECK(!file.find(key));
  file.add("last", "engine 1");
  TuningFile again(path);
  CHECK(*again.find("last") == "engine 1");
  CHECK(*again.find("whole") == "engine 7");

  detail::take_warnings();
  TuningFile nowhere(path + "/below/a file");
  nowhere.add("a problem", "engine 1");
  nowhere.add("another", "engine 1");
  CHECK(*nowhere.find("a problem") == "engine 1");
  const auto warnings = detail::take_warnings();
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].find("are not kept") != std::string::npos);

  // A file that another user may have written is not trusted and not changed; new files are closed to other users.
  const auto shared = (folder / "shared/tuning.txt").string();
  TuningFile made(shared);
  made.add("a problem", "engine 1");
  CHECK(std::filesystem::status(shared).permissions() ==
        (std::filesystem::perms::owner_read | std::filesystem::perms::owner_write));
  std::filesystem::create_symlink(shared, folder / "link");
  for (const auto& [name, opened] :
       {std::pair(shared, shared), {shared, (folder / "shared").string()}, {(folder / "link").string(), ""}}) {
    if (!opened.empty())
      std::filesystem::permissions(opened, std::filesystem::perms::others_write, std::filesystem::perm_options::add);
    TuningFile foreign(name);
    CHECK(!foreign.find("a problem"));
    foreign.add("a problem", "engine 2");
    foreign.add("another", "engine 2");
    CHECK(*foreign.find("a problem") == "engine 2");
    CHECK(detail::take_warnings().size() == 1);
    if (!opened.empty())
      std::filesystem::permissions(opened, std::filesystem::perms::others_write, std::filesystem::perm_options::remove);
  }
  TuningFile believed(shared);
  CHECK(*believed.find("a problem") == "engine 1");
  CHECK(!believed.find("another"));

  // An umask of 002 made the cache folder writable for the group: the library revokes this. Other folders keep their mode.
  for (const bool closes : {true, false}) {
    const auto mine = folder / (closes ? "cache" : "group"), answers = mine / "tuning.txt";
    std::filesystem::create_directory(mine);
    std::ofstream(answers) << "a problem\tengine 1\tok\n";
    std::filesystem::permissions(mine, std::filesystem::perms(0775));
    std::filesystem::permissions(answers, std::filesystem::perms(0664));
    CHECK(TuningFile(answers.string(), closes).find("a problem").has_value() == closes);
    CHECK(std::filesystem::status(mine).permissions() == std::filesystem::perms(closes ? 0700 : 0775));
    CHECK(std::filesystem::status(answers).permissions() == std::filesystem::perms(closes ? 0600 : 0664));
    CHECK(detail::take_warnings().size() == (closes ? 0 : 1));
  }

  TuningFile none("");
  none.add("a problem", "engine 1");
  CHECK(*none.find("a problem") == "engine 1");
  CHECK(detail::take_warnings().empty());
}
