// The `mpi` transport: run as `mpiexec -n P transport_mpi_test`. Rank 0 prints one line per check; a failure ends all ranks
// with a non-zero exit code.

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "comm/collectives/collectives.h"
#include "comm/launch.h"
#include "comm/transport/device/device_transport.h"
#include "comm/transport/device/staged.h"
#include "comm/transport/mpi/mpi_comm.h"
#include "models/train/session.h"
#include "tests/comm/transport/transport_cases.h"

using namespace mpigrad;
using namespace mpigrad::transport_cases;

namespace {

void check_reduction_types(Transport& t) {
  for (auto type : all_types)
    for (auto op : all_reductions)
      if (allowed(type, op)) check_reductions(t, type, op, type == DType::float32 ? 5000 : 7);
  check_reductions(t, DType::float64, CombineOp::sum, 0);
}

void check_all_movement(Transport& t) {
  for (auto type :
       {DType::float32, DType::float64, DType::int16, DType::uint16, DType::boolean, DType::bfloat16, DType::complex128}) {
    for (int root = 0; root < t.size(); root += std::max(1, t.size() - 1)) check_movement(t, type, root);
    check_alltoall(t, type);
  }
}

// A count that differs from the receive's is an error at the receiver, both shorter (which MPI allows) and longer.
void check_wrong_counts(Transport& t) {
  if (t.size() < 2) return;
  for (const std::int64_t sent : {1, 3}) {
    double x[4] = {};
    const Message to = {1, 3, x, sent}, from = {0, 3, x, 2};
    if (t.rank() == 0) t.exchange({&to, 1}, {}, DType::float64);
    if (t.rank() == 1) {
      const auto text = testing::error_text([&] { t.exchange({}, {&from, 1}, DType::float64); });
      require(text.starts_with("[exchange] "), "[transport_mpi_test] {} elements into 2 gave '{}'", sent, text);
    }
  }
}

// Between ranks that share memory, large messages travel in pieces, the last one shorter; two messages at a time.
template <class T>
void check_large_reductions(Transport& t, DType type) {
  const auto count = static_cast<std::size_t>((5 << 20) / sizeof(T) + 3);
  const auto of = [&](std::size_t i, int factor) { return static_cast<T>((i % 1001) * static_cast<std::size_t>(factor)); };
  std::vector<T> in(count);
  for (std::size_t i = 0; i < count; ++i) in[i] = of(i, t.rank() + 1);
  for (const bool started : {false, true}) {
    std::vector<T> in_place = in, out(count);
    if (started) {
      auto one = t.start_allreduce(in_place.data(), in_place.data(), std::ssize(in), type, CombineOp::sum);
      auto other = t.start_allreduce(in.data(), out.data(), std::ssize(in), type, CombineOp::max);
      while (!other.test()) {
      }
      other.wait();
      one.wait();
    } else {
      t.allreduce(in_place.data(), in_place.data(), std::ssize(in), type, CombineOp::sum);
      t.allreduce(in.data(), out.data(), std::ssize(in), type, CombineOp::max);
    }
    for (std::size_t i = 0; i < count; ++i)
      if (in_place[i] != of(i, t.size() * (t.size() + 1) / 2) || out[i] != of(i, t.size()))
        fail("[transport_mpi_test] element {} of {}: sum {}, max {}", i, count, in_place[i], out[i]);
  }
}

// The user's own traffic on the communicator from which the transport was made does not interfere with ours.
void check_wrapped(Transport& world) {
  MPI_Comm own = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, 0, -world.rank(), &own);
  auto t = mpi_transport(own);
  std::vector<int> reversed(static_cast<std::size_t>(world.size()));
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  check_members(*t, reversed, world.rank());
  int compared = MPI_UNEQUAL;
  MPI_Comm_compare(mpi_communicator(*t), own, &compared);
  require(compared == MPI_CONGRUENT, "[transport_mpi_test] the transport's communicator must be a duplicate");
  const Session session(t);
  const auto sum = allreduce(full({1}, session.rank()), session.world()).item();
  require(session.rank() == world.size() - 1 - world.rank() && sum == world.size() * (world.size() - 1) / 2.0,
          "[transport_mpi_test] a session on the program's own communicator: rank {}, sum {}", session.rank(), sum);
  MPI_Comm_free(&own);
  check_members(*t, reversed, world.rank());
  const auto text = testing::error_text([] { mpi_communicator(*dry_world(0, 1, nullptr)); });
  require(text.starts_with("[mpi_communicator] the dry"), "[transport_mpi_test] got '{}'", text);
}

// Ranks that would wait for each other are refused a program's own communicator, too.
void check_settings(Transport& world) {
  if (world.size() < 2) return;
  const char* variable = "MPIGRAD_REDUCTIONS";
  const char* before = std::getenv(variable);
  const std::string mine = world.rank() == 1 ? "fixed" : "16bit", restored = before ? before : "";
  setenv(variable, mine.c_str(), 1);
  const auto text = testing::error_text([] { mpi_transport(MPI_COMM_WORLD); });
  if (before) setenv(variable, restored.c_str(), 1);
  else unsetenv(variable);
  require(text.starts_with("[launch] MPIGRAD_REDUCTIONS must be the same on all ranks: rank") &&
              text.find("rank 1 \"fixed\"") != std::string::npos,
          "[transport_mpi_test] different settings gave '{}'", text);
}

// The path of a GPU's tensors without NCCL; host memory replaces the GPU.
void check_staged(Transport& world) {
  std::shared_ptr<Transport> host = world.duplicate();
  for (const bool direct : {false, true}) {
    const auto t = staged(host, host_memory(), {.direct = direct, .direct_reductions = direct});
    for (auto type : {DType::float32, DType::boolean}) {
      check_reductions(*t, type, CombineOp::max, 7);
      check_movement(*t, type, t->size() - 1);
      check_alltoall(*t, type);
      check_started_movement(*t, type);
      check_round(*t, type);
      check_exchange(*t, type, true), check_exchange(*t, type, false);
    }
    check_overlap(*t);
  }
  const SummationMode mode{.sixteen_bit = true};
  const auto t = device_transport(with_mode(host, mode), mode, Lane::halos, host_memory(), {});
  check_reductions(*t, DType::bfloat16, CombineOp::sum, 7);
  check_round(*t, DType::int64);
  check_exchange(*t, DType::float64, false);
  check_communicators(*t);
}

void check_node(Transport& t) {
  require(t.name() == "mpi" && t.node_size() >= 1 && t.node_size() <= t.size() && t.node_rank() < t.node_size() &&
              t.max_tag() >= 32767,
          "[transport_mpi_test] node rank {} of {}", t.node_rank(), t.node_size());
  const auto part = t.split(0, -t.rank());
  require(part->node_size() == t.node_size() && part->node_rank() == t.node_size() - 1 - t.node_rank(),
          "[transport_mpi_test] node rank {} after reversing, {} before", part->node_rank(), t.node_rank());
  std::vector<int> self = {t.rank()};
  require(t.subgroup(self)->node_size() == 1, "[transport_mpi_test] one rank is alone");
}

}  // namespace

int main(int argc, char** argv) {
  return launch(argc, argv, [&](std::shared_ptr<Transport> world) {
    // `transport_mpi_test fail` shows how an error on one rank ends the job.
    if (argc > 1 && std::string(argv[1]) == "fail") {
      if (world->rank() == world->size() - 1) fail("[transport_mpi_test] failing on purpose");
      world->barrier();
      return 0;
    }
    const std::pair<const char*, std::function<void(Transport&)>> checks[] = {
        {"node and tags", check_node},
        {"reductions of every type", check_reduction_types},
        {"large reductions",
         [](Transport& t) {
           check_large_reductions<float>(t, DType::float32), check_large_reductions<std::int64_t>(t, DType::int64);
         }},
        {"reductions of 16-bit types round at each step", check_half_rounding},
        {"broadcast, gather, scatter, allgather, alltoall", check_all_movement},
        {"exchange",
         [](Transport& t) {
           check_exchange(t, DType::float32, true), check_exchange(t, DType::int64, false),
               check_exchange(t, DType::float16, true);
         }},
        {"communicators", check_communicators},
        {"two reductions under way", check_overlap},
        {"refusals", check_refusals},
        {"messages of another length", check_wrong_counts},
        {"a communicator of the caller's", check_wrapped},
        {"settings that differ", check_settings},
        {"through host memory", check_staged},
    };
    for (const auto& [what, check] : checks) {
      check(*world);
      world->barrier();
      if (world->rank() == 0) std::printf("ok: %s, %d ranks\n", what, world->size()), std::fflush(stdout);
    }
    return 0;
  });
}
