// Run as `mpiexec -n 3 misuse_mpi KIND` with MPIGRAD_CHECKS set; misuse_mpi.sh checks the results.
//
//   list     prints the kinds of tests/comm/transport/misuse.h, one per line
//   KIND     one of them: every rank prints the error that it has caught; launch() may end other ranks before they print theirs
//   missing  rank 1 makes no call that the others make, and works: the watchdog's message
//   receive  rank 1 waits for a message that no rank sends: likewise
//   stopped  rank 1 is stopped, as by a debugger, before a call
//   stopped-first  rank 0, whose thread asks all others
//   exits    rank 1 exits normally while the others wait for it
//   early    rank 1 reaches the end of the program while the others wait for it: a message also without MPIGRAD_CHECKS
//   alone    rank 0 works for longer than the watchdog's limit after all others have ended: all end with 0
//   disk     the saved data do not fit on the disk (here: exceed a limit on file sizes): the same error on all ranks
//   replicated  every rank contributes the same loss, twice: one warning
//   slow     rank 1 is slow, but faster than the watchdog's limit: all end with 0
// After a step of training, SIGTERM asks all ranks to end; without MPIGRAD_CHECKS, too:
//   asked, asked-first  rank 1, or rank 0, is stopped, and the job ends
//   asked-busy          rank 1 computes for longer than others wait: all end with 0
// With a watchdog of training:
//   stalled  after a step of training all ranks wait for messages that no rank sends
//   busy     after a step one rank computes for longer than the limit: all end with 0
//   apart    before the first step all ranks but one wait in a call for longer than the limit: likewise
//   train    steps for a minute without planted faults; prints a line after the first step

#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <thread>

#include "comm/launch.h"
#include "framework/optim/optimizer.h"
#include "models/nn/layers.h"
#include "models/train/checkpoint/checkpoint.h"
#include "models/train/restart/interruption.h"
#include "ops/reduce/reduce.h"
#include "tests/comm/transport/misuse.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

// 256 KiB of parameters.
class Wide : public nn::Module {
 public:
  Wide() { build(Shape{1, 256}); }
  Tensor operator()(const Tensor& x) override { return linear_(x); }

 private:
  nn::Linear linear_{*this, "linear", {.out = 256}};
};

}  // namespace

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
    allreduce(x, comm);  // on a GPU, ranks first agree on a transport
    if (kind == "missing") {
      if (odd) sleep(60);
      allreduce(x, comm);
    } else if (kind == "receive") {
      if (odd) recv(x.type(), comm, 0, 7);
      allreduce(x, comm);
    } else if (kind == "exits") {
      if (odd) {
        if (!world->in_one_process()) std::_Exit(3);
        return 3;
      }
      allreduce(x, comm);
    } else if (kind == "early") {
      if (!odd) allreduce(x, comm);
    } else if (kind == "alone") {
      if (comm.rank() == 0) sleep(13);
    } else if (kind == "disk") {
      std::signal(SIGXFSZ, SIG_IGN);
      const rlimit most{.rlim_cur = 1 << 16, .rlim_max = 1 << 16};
      setrlimit(RLIMIT_FSIZE, &most);
      Wide net;
      save_checkpoint(std::filesystem::path(argv[2]) / "full.h5", net, comm);
    } else if (kind == "stopped") {
      if (odd) std::raise(SIGSTOP);
      allreduce(x, comm);
    } else if (kind == "stopped-first") {
      if (comm.rank() == 0) std::raise(SIGSTOP);
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
    } else if (kind == "stalled" || kind == "busy" || kind == "train" || kind.starts_with("asked")) {
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
      if (kind == "busy" && odd) sleep(7);
      std::optional<NotedSignals> signals;
      if (kind.starts_with("asked")) signals.emplace(), std::raise(SIGTERM);
      if (kind == "asked" ? odd : kind == "asked-first" && comm.rank() == 0) std::raise(SIGSTOP);
      if (kind == "asked-busy" && odd) sleep(12);
      step();
    } else if (kind == "apart") {
      if (odd) sleep(7);
      allreduce(x, comm);
    }
    for (const auto& misuse : misuses())
      if (misuse.name == kind) {
        const auto other = world->duplicate();  // some MPIs cannot use a communicator any more on which operations did not match
        try {
          misuse.run(comm);
        } catch (const std::exception& error) {
          std::fprintf(stderr, "rank %d has caught %s\n", comm.rank(), error.what());
          other->barrier();
          throw;
        }
      }
    return 0;
  });
}
