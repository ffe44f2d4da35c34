// Communication of a GPU's tensors between threads: all transports that need no second process, on 1 to 3 ranks, which share the
// GPU if there is only one. Skipped without a GPU. For NCCL between processes see tests/comm/transport/nccl_test.cpp.

#include <doctest/doctest.h>

#include "comm/collectives/collectives.h"
#include "comm/halos/exchange.h"
#include "comm/launch.h"
#include "comm/messages/nonblocking.h"
#include "comm/transport/device/device_transport.h"
#include "comm/transport/device/in_process.h"
#include "comm/transport/device/staged.h"
#include "framework/cuda/cuda.h"
#include "framework/engine/tape.h"
#include "tests/comm/fuzz/adjoint_fuzz.h"
#include "tests/comm/transport/device_cases.h"
#include "tests/support/ranks.h"
#include "tests/support/skip.h"

using namespace mpigrad;
using namespace mpigrad::testing;
using namespace mpigrad::transport_cases;

namespace {

bool skipped(const char* name) {
  if (cuda::available()) return false;
  skip_test(name, "no GPU");
  return true;
}

using Make = std::function<std::shared_ptr<Transport>(std::shared_ptr<Transport> host)>;

// Every call with host buffers, which pass through the GPU.
void check_transport(const std::string& what, const Make& make, const std::vector<DType>& types) {
  for (int ranks : {1, 2, 3}) try {
      run_threads(ranks, [&](std::shared_ptr<Transport> host) {
        cuda::select(gpu_of_rank(*host, cuda::devices()));
        check_device_cases(*staged(make(host), std::make_shared<FromHost>(cuda_memory())), types, true);
        host->barrier();
      });
    } catch (const std::exception& error) {
      FAIL_CHECK(what << ", " << ranks << " ranks: " << std::string(error.what()));
    }
}

void on_gpus(int ranks, const std::string& what, const RankBody& body) {
  check_on_ranks(ranks, what, [&](const Communicator& comm) {
    cuda::select(gpu_of_rank(comm.transport(), cuda::devices()));
    const UseDevice device(DeviceKind::cuda);
    body(comm);
    comm.transport().barrier();
  });
}

const std::vector<DType> kernel_types{DType::float32, DType::float64, DType::bfloat16, DType::int64};
const std::vector<DType> some_types{DType::float32, DType::bfloat16, DType::int16, DType::uint16, DType::boolean};

}  // namespace

TEST_CASE("gpu: transports between threads") {
  if (skipped("gpu: transports between threads")) return;
  check_transport(
      "staged", [](auto host) { return staged(host, cuda_memory()); }, some_types);
  check_transport(
      "in process", [](auto host) { return in_process(host, cuda_memory()); }, kernel_types);
  for (const bool fixed : {false, true}) {
    const SummationMode mode{.fixed_order = fixed};
    check_transport(
        "device transport",
        [&](auto host) { return device_transport(with_mode(host, mode), mode, Lane::halos, cuda_memory(), gpu_place()); },
        some_types);
  }
}

TEST_CASE("gpu: collectives between threads, values and adjoints") {
  if (skipped("gpu: collectives between threads, values and adjoints")) return;
  for (int ranks : {1, 2, 3}) {
    on_gpus(ranks, "collectives", [](const Communicator& comm) {
      for (std::uint64_t seed = 1; seed <= 400; ++seed) run_fuzz_case(comm, seed);
    });
  }
}

TEST_CASE("gpu: boxes are packed, moved and brought home as on the CPU") {
  if (skipped("gpu: boxes are packed, moved and brought home as on the CPU")) return;
  for (auto type : {DType::float64, DType::float32, DType::bfloat16})
    for (const std::int64_t channels : {1, 3, 16})
      for (int dimension : {0, 1, 2})
        on_gpus(3, "boxes", [&](const Communicator& comm) {
          const Shape global{9, 8, 10, channels};
          auto plan = std::make_shared<BoxPlan>();
          const auto cuts = balanced_cuts(global[dimension], comm.size());
          for (std::size_t r = 0; r < static_cast<std::size_t>(comm.size()); ++r) {
            Box have{Shape{0, 0, 0, 0}, global};
            have.begin[dimension] = cuts[r], have.end[dimension] = cuts[r + 1];
            Box need = have;  // with a halo, and a corner less in another dimension
            need.begin[dimension] = std::max<std::int64_t>(0, cuts[r] - 2);
            need.end[dimension] = std::min(global[dimension], cuts[r + 1] + 1);
            need.begin[(dimension + 1) % 3] = 1;
            plan->have.push_back(have), plan->need.push_back(need);
          }
          const auto me = static_cast<std::size_t>(comm.rank());
          const auto run = [&](DeviceKind device) {
            const UseDevice use(device);
            std::vector<double> values(static_cast<std::size_t>(plan->have[me].elements()));
            for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>((7 * i + 3 * me) % 13) - 6;
            const auto x = from_vector(plan->have[me].extents(), values, type);
            Tensor needed(TensorType{plan->need[me].extents(), type}, device), home(x.type(), device);
            const auto boxes = boxes_of(*plan, comm.rank());
            move_boxes(comm, boxes, x, needed, false);
            move_boxes(comm, boxes, needed, home, true);
            return std::pair(needed.to_vector(), home.to_vector());
          };
          require(run(DeviceKind::cuda) == run(DeviceKind::cpu), "[test] boxes differ: {} channels, dimension {}", channels,
                  dimension);
        });
}

TEST_CASE("gpu: no host waits for collectives and rounds between threads") {
  if (skipped("gpu: no host waits for collectives and rounds between threads")) return;
  on_gpus(2, "waits", [](const Communicator& comm) {
    const auto x = full({1000}, comm.rank() + 1.0);
    allreduce(x, comm);  // creates the transports
    comm.transport().barrier();
    const auto before = cuda::statistics().host_synchronisations;
    comm.transport().barrier();
    const auto y = allreduce(x, comm);
    comm.transport().barrier();
    const auto after = cuda::statistics().host_synchronisations;
    comm.transport().barrier();
    require(before == after, "[test] the hosts waited {} times", after - before);
    require(y.to_vector()[999] == 3, "[test] wrong sum");
  });
  // A running collective does not delay others.
  on_gpus(2, "started", [](const Communicator& comm) {
    const Communicator one(comm.transport().duplicate()), other(comm.transport().duplicate());
    const auto x = full({5}, comm.rank() + 1.0);
    Request request;
    if (comm.rank() == 0) request = iallreduce(x, one);
    const auto sum = allreduce(x, other);
    if (comm.rank() == 1) request = iallreduce(x, one);
    require(wait(request).to_vector()[4] == 3 && sum.to_vector()[4] == 3, "[test] wrong sums");
  });
}
