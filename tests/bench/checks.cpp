// The cost of checks between ranks (comm/transport/watch/checks.h): microseconds per call at each level, and the ratio to no
// checks, in one run.
//
//   build/tests/checks_cost --transport threads --ranks 2      or     mpiexec -n 2 build/tests/checks_cost
//
// Calls are made alternately at all levels, and the smallest of several rounds counts.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/distributed/invariant.h"
#include "comm/launch.h"
#include "comm/messages/point_to_point.h"
#include "comm/transport/watch/call_board.h"
#include "comm/transport/watch/checks.h"
#include "framework/optim/optimizer.h"
#include "ops/elementwise/elementwise.h"

using namespace mpigrad;

namespace {

struct Level {
  std::string name;
  CheckOptions options;
};

double microseconds(const Communicator& comm, int calls, const std::function<void()>& call) {
  comm.transport().barrier();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) call();
  const std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - start;
  return elapsed.count() / calls;
}

}  // namespace

int main(int argc, char** argv) {
  return launch(argc, argv, [&](std::shared_ptr<Transport> world) {
    if (argc > 1) {
      if (world->rank() == 0) std::fprintf(stderr, "checks_cost: knows no arguments, got %s\n", argv[1]);
      return 2;
    }
    const std::vector<Level> levels{{"none", {}},
                                    {"signatures", {.signatures = 1}},
                                    {"signatures=10", {.signatures = 10}},
                                    {"same", {.same = 1}},
                                    {"watchdog", {.watchdog = 600}},
                                    {"signatures,same,watchdog", {.signatures = 1, .same = 1, .watchdog = 600}}};
    std::vector<Communicator> comms;
    for (const auto& level : levels) {
      // Only the board of activities: a watchdog's thread sleeps.
      detail::board_of_this_thread() = level.options.watchdog > 0 ? std::make_shared<detail::CallBoard>() : nullptr;
      comms.emplace_back(watched(world->duplicate(), level.options));
    }
    const Tensor one = ones({1}, DType::float64), large = ones({262144}, DType::float32);
    // A parameter of 1 MiB for each level, which is compared after a step.
    const Gradients gradient({large});
    std::vector<std::unique_ptr<Parameters>> parameters;
    std::vector<std::unique_ptr<SGD>> optimizers;
    for (const auto& comm : comms) {
      parameters.push_back(std::make_unique<Parameters>());
      parameters.back()->add("weight", large, true);
      parameters.back()->pack();
      replicate((*parameters.back())[0].value, comm);  // declares it as replicated
      optimizers.push_back(std::make_unique<SGD>(*parameters.back()));
    }
    using Call = std::function<void(std::size_t level)>;
    const std::vector<std::pair<std::string, Call>> calls{
        {"allreduce of 8 bytes", [&](std::size_t i) { allreduce(one, comms[i]); }},
        {"allreduce of 1 MiB", [&](std::size_t i) { allreduce(large, comms[i]); }},
        {"replicate of 1 MiB", [&](std::size_t i) { replicate(large, comms[i]); }},
        {"step of SGD on 1 MiB", [&](std::size_t i) { optimizers[i]->step(gradient); }},
        {"shift of 8 bytes", [&](std::size_t i) { shift(one, comms[i]); }},
    };
    if (world->rank() == 0)
      std::printf("%s, %d ranks: us per call (ratio to none)\n", std::string(world->name()).c_str(), world->size());
    for (const auto& each : calls) {
      const std::string& what = each.first;
      const Call& call = each.second;
      const int repeats = what.find("MiB") != std::string::npos ? 20 : 500;  // a note about replicated tensors lasts 1000 steps
      std::vector<double> best(levels.size(), 1e300);
      for (int round = 0; round < 7; ++round)
        for (std::size_t i = 0; i < levels.size(); ++i)
          best[i] = std::min(best[i], microseconds(comms[i], repeats, [&] { call(i); }));
      for (std::size_t i = 0; i < levels.size(); ++i)
        if (world->rank() == 0)
          std::printf("  %-22s %-26s %9.2f  (%.2f)\n", what.c_str(), levels[i].name.c_str(), best[i], best[i] / best[0]);
    }
    return 0;
  });
}
