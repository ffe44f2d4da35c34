// The `nccl` transport between processes: `mpiexec -n P nccl_ranks --transport mpi --device cuda`. With fewer GPUs than ranks,
// two ranks may share a GPU for tests of correctness: set NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_NET=Socket, and this program
// gives each rank its own NCCL_HOSTID. Rank 0 prints one line per check; a failure ends all ranks. Without a GPU or NCCL it
// prints the reason and exits with 77.

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "comm/collectives/collectives.h"
#include "comm/launch.h"
#include "comm/transport/device/device_transport.h"
#include "comm/transport/device/staged.h"
#include "framework/cuda/cuda.h"
#include "framework/optim/optimizer.h"
#include "models/nn/layers.h"
#include "models/train/step_graph.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "tests/comm/fuzz/adjoint_fuzz.h"
#include "tests/comm/transport/device_cases.h"

using namespace mpigrad;
using namespace mpigrad::testing;
using namespace mpigrad::transport_cases;

namespace {

// Accepts host buffers, which pass through the GPU.
std::shared_ptr<Transport> from_host(std::shared_ptr<Transport> device) {
  return staged(std::move(device), std::make_shared<FromHost>(cuda_memory()));
}

// NCCL's own calls, without the operations built from them.
void check_bare(Transport& world) {
  for (auto lane : {Lane::halos, Lane::buckets}) {
    const auto t = from_host(nccl_transport(world.duplicate(), lane));
    for (auto type : {DType::float32, DType::float64, DType::bfloat16, DType::float16, DType::int64, DType::int32, DType::uint8,
                      DType::boolean}) {
      for (auto op : all_reductions)
        if (allowed(type, op) && traits_of(op).on_gpu) check_reductions(*t, type, op, 300);
      for (int root = 0; root < t->size(); ++root) check_movement(*t, type, root);
      check_alltoall(*t, type);
      check_started_movement(*t, type);
      check_round(*t, type);
    }
    check_movement(*t, DType::int16, 0), check_movement(*t, DType::uint16, 0);
    check_parts(*t);
    check_communicators(*from_host(device_transport(world.duplicate(), {}, lane, cuda_memory(), gpu_place())));
    check_overlap(*t);
  }
  const auto bare = nccl_transport(world.duplicate(), Lane::halos);
  const auto text = testing::error_text([&] { bare->start_exchange({}, {}, DType::float32); });
  require(text.starts_with("[nccl] messages with tags"), "[nccl_test] got '{}'", text);
}

void check_engine(Transport& world) {
  std::vector<GpuPlace> places(static_cast<std::size_t>(world.size()));
  const std::vector<std::int64_t> counts(places.size(), sizeof(GpuPlace));
  const auto mine = gpu_place();
  world.allgather(&mine, places.data(), counts, DType::uint8);
  const auto engine = choose_engine(places, world.in_one_process());
  require(engine == DeviceEngine::nccl || world.size() == 1, "[nccl_test] {} was chosen for {} ranks", name_of(engine),
          world.size());
  for (const bool fixed : {false, true}) {
    const SummationMode mode{.fixed_order = fixed};
    const auto host = with_mode(world.duplicate(), mode);
    check_device_cases(*from_host(device_transport(host, mode, Lane::halos, cuda_memory(), gpu_place())),
                       {DType::float32, DType::bfloat16, DType::int16, DType::uint16});
  }
}

void check_nan(Transport& world) {
  const auto t = from_host(device_transport(world.duplicate(), {}, Lane::halos, cuda_memory(), gpu_place()));
  for (int where = 0; where < t->size(); ++where)
    for (auto op : {CombineOp::max, CombineOp::min}) {
      double x = t->rank() == where ? std::numeric_limits<double>::quiet_NaN() : t->rank();
      t->allreduce(&x, &x, 1, DType::float64, op);
      require(std::isnan(x), "[nccl_test] NaN of rank {} got lost", where);
    }
}

// A running bucket while halos are exchanged, with adjoints in between.
void check_lanes(Transport& world) {
  const Communicator comm(world.duplicate());
  const std::int64_t n = 1 << 22;
  const auto x = full({n}, comm.rank() + 1.0), y = zeros({n});
  auto pending = comm.reductions(DeviceKind::cuda).start_allreduce(x.raw(), y.raw(), n, DType::float32, CombineOp::sum);
  const auto small = full({1000}, 1.0);
  Tensor sum = small;
  for (int i = 0; i < 20; ++i) sum = allreduce(small, comm);
  pending.wait();
  const double expected = comm.size() * (comm.size() + 1) / 2.0;
  require(sum.to_vector()[0] == comm.size() && y.to_vector()[static_cast<std::size_t>(n - 1)] == expected,
          "[nccl_test] wrong sums");
}

void check_ops(Transport& world) {
  const Communicator comm(world.duplicate());
  for (std::uint64_t seed = 1; seed <= 200; ++seed) run_fuzz_case(comm, seed);
}

// Halos, sums of statistics and of gradients: [N, D, H, W, C] -> [N, C]
class Pooled : public nn::Module {
 public:
  Tensor operator()(const Tensor& x) override {
    const PoolAttributes pool{.kernel = 3, .stride = 2, .padding = 1};
    return global_avg_pool(square(avg_pool(norm_(x), pool, Activation::leaky_relu(0.1))));
  }

 private:
  nn::BatchNorm norm_{*this, "norm"};
};

// A volume cut along its depth; its steps run directly and as repetitions of a captured step.
void check_graph(Transport& world) {
  const Communicator comm(world.duplicate());
  const UseDevice device(DeviceKind::cuda);
  const auto grid = make_grid(comm, {.depth = comm.size()});
  const auto layout = activation_layout(grid, {2, 4 * comm.size(), 4, 4, 8});
  std::vector<double> results[2];
  for (const bool captured : {false, true}) {
    Pooled net;
    net.build(layout, {.seed = 1, .dtype = DType::float64});
    Adam adam(net, {.learning_rate = 0.1});
    StepGraph graph(net, adam, comm, {.warm_up = 2, .reason = captured ? "" : "it is compared with", .quiet = true});
    for (std::uint64_t step = 0; step < 6; ++step) {
      const auto x = constant(random_normal(layout->global, {1, step}, 0, 1, DType::float64, layout));
      const auto loss = graph({x}, [&](const std::vector<Tensor>& in) {
        Tape tape(net);
        const auto share = mean(square(net(in[0]) - 1.0)) * (1.0 / comm.size());
        adam.step(tape.gradient(share));
        return share;
      });
      results[captured].push_back(total(loss, comm));
    }
    require(!captured || graph.repeated() == 4, "[nccl_test] {} steps were repeated: {}", graph.repeated(), graph.reason());
    for (const auto& value : net.parameters().tensors())
      for (const double each : value.to_vector()) results[captured].push_back(each);
  }
  for (std::size_t i = 0; i < results[0].size(); ++i)
    require(std::abs(results[0][i] - results[1][i]) <= 1e-12 * std::abs(results[0][i]), "[nccl_test] {} became {} by a graph",
            results[0][i], results[1][i]);
}

}  // namespace

int main(int argc, char** argv) {
  if (!cuda::available() || !nccl_available()) {
    std::printf("skipped: %s\n", cuda::available() ? "this build has no NCCL" : cuda::unavailable().c_str());
    return 77;
  }
  for (const char* name : {"PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK"})
    if (const char* rank = std::getenv(name)) setenv("NCCL_HOSTID", (std::string("rank") + rank).c_str(), 0);
  return launch(argc, argv, [&](std::shared_ptr<Transport> world) {
    const std::pair<const char*, std::function<void(Transport&)>> checks[] = {
        {"NCCL's calls", check_bare},      {"the choice of NCCL, and what goes beside it", check_engine},
        {"max and min of NaN", check_nan}, {"buckets and halos at once", check_lanes},
        {"communication ops", check_ops},  {"captured steps", check_graph},
    };
    for (const auto& [what, check] : checks) {
      check(*world);
      world->barrier();
      if (world->rank() == 0) std::printf("ok: %s, %d ranks\n", what, world->size()), std::fflush(stdout);
    }
    return 0;
  });
}
