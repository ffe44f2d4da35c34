// The number of threads of a rank (comm/launch.h): the requested number, or the rank's share of its node's cores.

#include "comm/process/threads.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "comm/transport/environment.h"
#include "framework/base/error.h"

namespace mpigrad {
namespace {

// The value of MPIGRAD_THREADS; none: not given.
std::optional<int> threads_asked_for() {
  const auto value = environment_variable("MPIGRAD_THREADS");
  if (!value) return std::nullopt;
  const auto threads = parse_whole_number(*value);
  require(threads && *threads > 0, "[launch] MPIGRAD_THREADS is a number of threads, 1 or more, got '{}'", *value);
  return threads;
}

// The cores on which a rank may run, one bit each, as the ranks of a node exchange them.
struct Cores {
  static constexpr std::size_t most = CPU_SETSIZE;
  std::uint64_t host = 0;
  std::array<std::uint64_t, most / 64> bits = {};

  bool has(std::size_t core) const { return (bits[core / 64] >> (core % 64) & 1) != 0; }
  void add(std::size_t core) { bits[core / 64] |= std::uint64_t{1} << (core % 64); }
};

Cores cores_of_thread() {
  Cores cores;
  std::array<char, 256> name = {};
  gethostname(name.data(), name.size() - 1);
  cores.host = std::hash<std::string_view>{}(name.data());
  cpu_set_t set;
  CPU_ZERO(&set);
  const bool known = sched_getaffinity(0, sizeof(set), &set) == 0;  // fails with more cores than a cpu_set_t has bits
  static const std::size_t online = std::max(1u, std::thread::hardware_concurrency());  // a file is read for it
  for (std::size_t core = 0; core < Cores::most; ++core)
    if (known ? CPU_ISSET(core, &set) != 0 : core < online) cores.add(core);
  return cores;
}

// The cores of the ranks of this rank's host, and its own. Over several hosts each rank learns 8 bytes of all ranks, and the
// cores only of these.
std::vector<Cores> cores_on_host(Transport& transport, const Cores& mine) {
  const auto size = static_cast<std::size_t>(transport.size());
  if (transport.node_size() == transport.size()) {
    std::vector<Cores> cores(size, mine);  // the dry transport moves nothing
    transport.allgather(&mine, cores.data(), std::vector<std::int64_t>(size, sizeof(Cores)), DType::uint8);
    return cores;
  }
  std::vector<std::uint64_t> hosts(size, mine.host + 1);  // likewise
  transport.allgather(&mine.host, hosts.data(), std::vector<std::int64_t>(size, 1), DType::int64);
  std::vector<int> peers;
  for (int r = 0; r < transport.size(); ++r)
    if (r != transport.rank() && hosts[static_cast<std::size_t>(r)] == mine.host) peers.push_back(r);
  std::vector<Cores> cores(peers.size(), mine);
  std::vector<Message> sends, receives;
  for (std::size_t i = 0; i < peers.size(); ++i) {
    sends.push_back({peers[i], 0, const_cast<Cores*>(&mine), sizeof(Cores)});
    receives.push_back({peers[i], 0, &cores[i], sizeof(Cores)});
  }
  transport.exchange(sends, receives, DType::uint8);
  cores.push_back(mine);
  return cores;
}

}  // namespace

void require_threads_that_fit() {
  const auto asked = threads_asked_for();
  int threads = asked.value_or(0);
#ifdef _OPENMP
  if (!asked) threads = omp_get_max_threads();  // OpenMP's value of OMP_NUM_THREADS
#endif
  const auto cores = static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN))), most = std::max(64, 4 * cores);
  const auto* name = asked ? "MPIGRAD_THREADS" : "OMP_NUM_THREADS";
  require(threads >= 0 && threads <= most,  // OpenMP turns 3,000,000,000 into a negative number
          "[launch] {} is {}, but at most {} threads make sense on {} cores: leave it out, or ask for {}", name,
          environment_variable(name).value_or(std::to_string(threads)), most, cores, cores);
}

int threads_of_rank(Transport& transport) {
  const Cores mine = cores_of_thread();
  const auto all = cores_on_host(transport, mine);
  if (const auto threads = threads_asked_for()) return *threads;
  // The variable may be a list with a number for each level of nesting. OpenMP itself reports an invalid value.
  if (const auto value = environment_variable("OMP_NUM_THREADS"))
    if (const auto threads = parse_whole_number(std::string_view(*value).substr(0, value->find(','))); threads && *threads > 0)
      return *threads;
  std::array<int, Cores::most> ranks = {};
  for (const auto& other : all)
    for (std::size_t core = 0; core < Cores::most; ++core) ranks[core] += other.has(core) ? 1 : 0;
  double share = 1e-9;
  for (std::size_t core = 0; core < Cores::most; ++core)
    if (mine.has(core)) share += 1.0 / ranks[core];
  return std::max(1, static_cast<int>(share));
}

int set_threads_of_rank(Transport& transport) {
  const int threads = threads_of_rank(transport);
#ifdef _OPENMP
  if (environment_variable("MPIGRAD_THREADS") || !environment_variable("OMP_NUM_THREADS")) omp_set_num_threads(threads);
#endif
  return threads;
}

bool openmp_waits_long() {
#if defined(_OPENMP) && defined(__GNUC__) && !defined(__clang__)
  const bool chosen = environment_variable("OMP_WAIT_POLICY") || environment_variable("GOMP_SPINCOUNT");
  return !chosen && omp_get_max_threads() > 1 && omp_get_num_procs() > 1;
#else
  return false;
#endif
}

void restart_with_short_waits(char** argv) {
  std::error_code failed;
  // By its path: a program that was started as /proc/self/exe is called `exe` by ps.
  const auto program = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (failed || !openmp_waits_long() || setenv("GOMP_SPINCOUNT", "3000", 0) != 0) return;
  execv(program.c_str(), argv);
}

}  // namespace mpigrad
