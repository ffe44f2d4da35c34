// Run as `mpiexec -n 3 misuse_mpi KIND` with MPIGRAD_CHECKS set; tests/run.sh tells what must come of it.
//
//   list     prints the kinds of tests/support/cases/misuse.h, one per line
//   KIND     one of them: the same error on all ranks
//   missing  rank 1 makes no call that the others make, and works: the watchdog's message
//   receive  rank 1 waits for a message that nobody sends: likewise
//   stopped  rank 1 is stopped, as by a debugger, before a call
//   replicated  every rank hands in the same loss, twice: one warning
//   slow     rank 1 takes its time, but less than the watchdog's: all end with 0
// With a watchdog of training:
//   stalled  after a step of training all ranks wait for messages that nobody sends
//   busy     after a step one rank computes for longer than the limit: all end with 0
//   apart    before the first step all ranks wait in a call for longer than the limit, but for one that does not: likewise
//   train    steps for a minute, which nothing disturbs but who runs it; says so after the first one

#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>

#include "comm/launch.h"
#include "framework/optim/optimizer.h"
#include "ops/reduce.h"
#include "tests/support/cases/misuse.h"

using namespace mpigrad;
using namespace mpigrad::testing;

int main(int argc, char** argv) {
  const std::string kind = argc > 1 ? argv[1] : "list";
  if (kind == "list") {
    for (const auto& misuse : misuses()) std::printf("%s\n", misuse.name.c_str());
    return 0;
  }
  return launch(argc, argv, [&](std::shared_ptr<Transport> world) {
    const Communicator comm(world);
    const auto x = ones({4}, DType::float64);
    const bool odd = comm.rank() == 1;
    const auto sleep = [](double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); };
    barrier(comm);
    if (kind == "missing") {
      if (odd) sleep(60);
      allreduce(x, comm);
    } else if (kind == "receive") {
      if (odd) recv(x.type(), comm, 0, 7);
      allreduce(x, comm);
    } else if (kind == "stopped") {
      if (odd) std::raise(SIGSTOP);
      allreduce(x, comm);
    } else if (kind == "replicated") {
      for (const bool plain : {false, false, true, true}) {
        Tape tape;
        const auto share = sum(x);
        tape.gradient(plain ? allreduce(share, comm) : allreduce_invariant(share, comm), {x});
      }
    } else if (kind == "slow") {
      if (odd) sleep(0.5);
      allreduce(x, comm);
    } else if (kind == "stalled" || kind == "busy" || kind == "train") {
      Parameters parameters;
      parameters.add("w", x, false);
      parameters.pack();
      SGD optimizer(parameters, {.learning_rate = 0.1});
      const auto step = [&] { optimizer.step(Gradients({allreduce(x, comm)})); };
      step();
      if (kind == "train") {
        if (comm.rank() == 0) std::printf("the first step\n"), std::fflush(stdout);
        const auto start = std::chrono::steady_clock::now();
        while (std::chrono::steady_clock::now() - start < std::chrono::minutes(1)) sleep(0.01), step();
      }
      if (kind == "stalled") recv(x.type(), comm, (comm.rank() + 1) % comm.size(), 7);
      if (kind == "busy" && odd) sleep(5);
      step();
    } else if (kind == "apart") {
      if (odd) sleep(5);
      allreduce(x, comm);
    }
    for (const auto& misuse : misuses())
      if (misuse.name == kind) misuse.run(comm);
    return 0;
  });
}
