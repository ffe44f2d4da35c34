// The emulated NCCL by itself, between threads: it must move and sum data correctly, and refuse calls that NCCL refuses or does
// not check.

#include <doctest/doctest.h>
#include <nccl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace {

// Runs the body on ranks as threads.
void with_ranks(int ranks, const std::function<void(ncclComm_t, int)>& body) {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      ncclComm_t c{};
      if (ncclCommInitRank(&c, ranks, id, r) != ncclSuccess) std::abort();
      body(c, r);
      ncclCommDestroy(c);
    });
  for (auto& thread : threads) thread.join();
}

// The output of a process that runs the body, before it dies. After so many seconds a call counts as one that hangs.
std::string last_words(const std::function<void()>& body, int hangs_after) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const auto child = fork();
  if (child == 0) {
    dup2(ends[1], 2);
    setenv("MPIGRAD_EMULATED_NCCL_SECONDS", std::to_string(hangs_after).c_str(), 1);
    body();
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char buffer[512];
  for (ssize_t n = 0; (n = read(ends[0], buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<std::size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFSIGNALED(status));
  return text;
}

}  // namespace

TEST_CASE("emulated NCCL: collectives, messages in groups, parts") {
  const std::size_t n = 100000;
  std::vector<std::vector<float>> sums(3), all(3), mine(3), moved(3);
  std::vector<int> part(3);
  with_ranks(3, [&](ncclComm_t c, int r) {
    const auto me = static_cast<std::size_t>(r);
    std::vector<float> x(3 * n);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(r + 1) * static_cast<float>(i % 1000);
    sums[me].resize(3 * n), mine[me].resize(n), all[me].resize(3 * n), moved[me].resize(n);
    ncclAllReduce(x.data(), sums[me].data(), 3 * n, ncclFloat32, ncclSum, c, nullptr);
    ncclReduceScatter(x.data(), mine[me].data(), n, ncclFloat32, ncclMax, c, nullptr);
    ncclAllGather(mine[me].data(), all[me].data(), n, ncclFloat32, c, nullptr);
    ncclGroupStart();  // around the ring, all ranks send first
    ncclSend(x.data(), n, ncclFloat32, (r + 1) % 3, c, nullptr);
    ncclRecv(moved[me].data(), n, ncclFloat32, (r + 2) % 3, c, nullptr);
    ncclBroadcast(x.data(), x.data(), 5, ncclFloat32, 2, c, nullptr);
    ncclGroupEnd();
    if (x[1] != 3) std::abort();
    ncclComm_t two{};
    ncclCommSplit(c, r == 1 ? NCCL_SPLIT_NOCOLOR : 7, -r, &two, nullptr);
    if ((two == nullptr) != (r == 1)) std::abort();
    if (two) {
      int value = r;
      ncclBroadcast(&value, &value, 1, ncclInt32, 0, two, nullptr);  // the rank 0 of the new communicator has the smallest key
      part[me] = value;
      ncclCommDestroy(two);
    }
  });
  for (std::size_t r = 0; r < 3; ++r) {
    for (std::size_t i = 0; i < 3 * n; i += 997) {
      CHECK(sums[r][i] == 6.0F * static_cast<float>(i % 1000));
      CHECK(all[r][i] == 3.0F * static_cast<float>(i % 1000));
    }
    CHECK(moved[r][1] == static_cast<float>((r + 2) % 3 + 1));
  }
  CHECK(part[0] == 2);
  CHECK(part[2] == 2);
}

TEST_CASE("emulated NCCL: what would hang or go wrong without a word ends with one") {
  int hangs_after = 60;  // more than a busy machine takes
  const auto with_two = [&](const std::function<void(ncclComm_t, int)>& body) {
    return last_words([&] { with_ranks(2, body); }, hangs_after);
  };
  float x[8] = {}, y[8] = {};
  auto text = with_two([&](ncclComm_t c, int r) {
    float z[8];
    ncclAllReduce(x, z, r == 0 ? 8 : 4, ncclFloat32, ncclSum, c, nullptr);
  });
  CHECK(text.find("ncclAllReduce #0: 8 elements") != std::string::npos);
  text = with_two([&](ncclComm_t c, int r) {
    float z[8];
    if (r == 0) ncclSend(x, 8, ncclFloat32, 1, c, nullptr);
    else ncclRecv(z, 4, ncclFloat32, 0, c, nullptr);
  });
  CHECK(text.find("expects a message #0: 4 elements") != std::string::npos);
  hangs_after = 1;
  // Both ranks send first, outside a group.
  text = with_two([&](ncclComm_t c, int r) {
    float z[8];
    ncclSend(x, 8, ncclFloat32, 1 - r, c, nullptr);
    ncclRecv(z, 8, ncclFloat32, 1 - r, c, nullptr);
  });
  CHECK(text.find("would hang") != std::string::npos);
  text = with_two([&](ncclComm_t c, int r) {
    if (r == 1) return;
    ncclAllReduce(x, y, 8, ncclFloat32, ncclSum, c, nullptr);
  });
  CHECK(text.find("would hang") != std::string::npos);
  hangs_after = 60;
  text = with_two([&](ncclComm_t c, int r) {
    float z[8];
    if (r == 1) return static_cast<void>(ncclAllReduce(x, z, 8, ncclFloat32, ncclSum, c, nullptr));
    ncclGroupStart();
    ncclAllReduce(x, z, 8, ncclFloat32, ncclSum, c, nullptr);
    std::thread([&] { ncclAllReduce(x, y, 8, ncclFloat32, ncclSum, c, nullptr); }).join();
  });
  CHECK(text.find("two threads at once") != std::string::npos);
}

TEST_CASE("emulated NCCL: wrong arguments are refused") {
  with_ranks(2, [](ncclComm_t c, int) {
    float x[8] = {}, y[4] = {};
    if (ncclAllReduce(x, x + 1, 4, ncclFloat32, ncclSum, c, nullptr) != ncclInvalidArgument) std::abort();
    if (ncclAllReduce(x, nullptr, 4, ncclFloat32, ncclSum, c, nullptr) != ncclInvalidArgument) std::abort();
    if (ncclBroadcast(x, y, 4, ncclFloat32, 2, c, nullptr) != ncclInvalidArgument) std::abort();
    if (ncclAllGather(x + 1, x, 2, ncclFloat32, c, nullptr) != ncclInvalidArgument) std::abort();
    if (ncclSend(x, 4, ncclFloat32, 5, c, nullptr) != ncclInvalidArgument) std::abort();
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.magic = 0;
    ncclComm_t part{};
    if (ncclCommSplit(c, 0, 0, &part, &config) != ncclInvalidArgument) std::abort();
    if (ncclGroupEnd() != ncclInvalidUsage) std::abort();
  });
  CHECK(true);
}
