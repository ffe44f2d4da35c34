// The part of a halo exchange's time that convolutions hide: exchanges are delayed by a given time, as on a slow network, and the
// part that is not hidden makes a step longer.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <thread>

#include "comm/distributed/distributed.h"
#include "comm/launch.h"
#include "comm/transport/forwarding.h"
#include "framework/optim/optimizer.h"
#include "models/networks/unet3d.h"
#include "ops/elementwise/elementwise.h"
#include "ops/loss/loss.h"
#include "ops/random/random.h"

namespace mpigrad::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Statistics of this rank's exchanges.
struct Network {
  double seconds = 0;  // least duration of each
  int exchanges = 0;
};

class Delayed final : public PendingWork {
 public:
  Delayed(Pending inner, double seconds)
      : inner_(std::move(inner)),
        end_(Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))) {}
  void wait() override {
    inner_.wait();
    std::this_thread::sleep_until(end_);
  }
  bool test() override { return Clock::now() >= end_ && inner_.test(); }
  void drop() noexcept override { inner_.cancel(); }

 private:
  Pending inner_;
  Clock::time_point end_;
};

class SlowTransport final : public ForwardingTransport {
 public:
  SlowTransport(std::shared_ptr<Transport> inner, std::shared_ptr<Network> network)
      : ForwardingTransport(std::move(inner)), network_(std::move(network)) {}
  Pending start_exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    return delayed(ForwardingTransport::start_exchange(sends, receives, type), receives);
  }
  Pending start_round(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    return delayed(ForwardingTransport::start_round(sends, receives, type), receives);
  }
  void exchange(std::span<const Message> sends, std::span<const Message> receives, DType type) override {
    start_exchange(sends, receives, type).wait();
  }

 protected:
  std::shared_ptr<Transport> wrap(std::shared_ptr<Transport> made) const override {
    return std::make_shared<SlowTransport>(std::move(made), network_);
  }

 private:
  Pending delayed(Pending inner, std::span<const Message> receives) {
    if (receives.empty()) return inner;
    ++network_->exchanges;
    return pending<Delayed>(std::move(inner), network_->seconds);
  }
  std::shared_ptr<Network> network_;
};

double largest(const Communicator& comm, double value) {
  comm.transport().allreduce(&value, &value, 1, DType::float64, CombineOp::max);
  return value;
}

// Seconds of the slowest rank; all ranks begin together.
double time(const Communicator& comm, const std::function<void()>& run) {
  comm.transport().barrier();
  const auto start = Clock::now();
  run();
  return largest(comm, std::chrono::duration<double>(Clock::now() - start).count());
}

struct Measured {
  double bare = 1e9, delayed = 1e9;  // seconds, the fastest
  int exchanges = 0;
};

// Alternates `step` with and without delays of `seconds`.
Measured measure(const Communicator& comm, Network& network, double seconds, int repeats, const std::function<void()>& step) {
  Measured result;
  for (int i = -1; i < repeats; ++i) {
    network = {};
    const double bare = time(comm, step);
    network = {seconds, 0};
    const double delayed = time(comm, step);
    result.exchanges = network.exchanges;
    if (i < 0) continue;
    result.bare = std::min(result.bare, bare), result.delayed = std::min(result.delayed, delayed);
  }
  network = {};
  return result;
}

void print(const Communicator& comm, std::string_view what, const Measured& m, double seconds) {
  const double halos = m.exchanges * seconds;
  if (comm.rank() == 0)
    fmt::print("{:<44}{:>9.1f}{:>9.1f}{:>9.1f}{:>6} {:>8.0f} %\n", what, 1e3 * m.bare, 1e3 * m.delayed, 1e3 * halos, m.exchanges,
               halos > 0 ? 100 * (1 - (m.delayed - m.bare) / halos) : 0);
}

struct Options {
  int repeats = 7;
  std::int64_t size = 64, channels = 32;
};

// One convolution whose block takes twice as long as its halo exchange.
void convolutions(const Communicator& comm, Network& network, const Options& o) {
  const int p = comm.size();
  for (const auto& [name, extents] :
       {std::pair{"depth", GridExtents{.depth = p}}, {"height", GridExtents{.height = p}}, {"width", GridExtents{.width = p}}})
    for (const auto overlap : {Overlap::never, Overlap::always}) {
      const auto grid = make_grid(comm, extents, overlap);
      const Shape shape{1, o.size, o.size, o.size, o.channels}, kernel{o.channels, 3, 3, 3, o.channels};
      const auto layout = activation_layout(grid, shape);
      const auto x = random_normal(shape, {1, 2}, 0, 1, DType::float32, layout);
      const auto w = random_normal(kernel, {1, 3}, 0, 0.05, DType::float32, replicated_layout(grid, kernel));
      const auto g = random_normal(shape, {1, 4}, 0, 1, DType::float32, layout);
      const auto forward = [&] {
        const Untaped scope;
        (void)conv(x, w, {.padding = 1});
      };
      const auto both = [&] {
        Tape tape;
        const auto y = conv(x, w, {.padding = 1});
        (void)tape.vjp({y}, {g}, {x, w});
      };
      const auto label = [&, name = name](const char* what) {
        return fmt::format("{}, {}, {}", name, what, overlap == Overlap::always ? "overlapped" : "blocking");
      };
      const double half = measure(comm, network, 0, 3, forward).bare / 2;
      print(comm, label("forward"), measure(comm, network, half, o.repeats, forward), half);
      print(comm, label("forward and backward"), measure(comm, network, half, o.repeats, both), half);
    }
}

// Training steps of a U-Net whose halo exchanges take 15 % of the time.
void networks(const Communicator& comm, Network& network, const Options& o) {
  for (const auto overlap : {Overlap::never, Overlap::automatic}) {
    const auto grid = make_grid(comm, {.depth = comm.size()}, overlap);
    const auto layout = activation_layout(grid, {1, o.size, o.size, o.size, 1});
    const auto labels_layout = split_layout(grid, {1, o.size, o.size, o.size}, {0, 1, 2, 3});
    UNet3d net({.filters = {16, 32, 64, 128}});
    net.build(layout, {.seed = 1});
    Adam adam(net, {.learning_rate = 1e-4});
    const auto x = constant(random_normal(layout->global, {1, 2}, 0, 1, DType::float32, layout));
    const auto labels = random_uniform(labels_layout->global, {1, 3}, 0, 3, DType::float32, labels_layout);
    const auto y = constant(cast(labels, DType::uint8));
    const auto step = [&] {
      Tape tape(net);
      adam.step(tape.gradient(cross_entropy(net(x), y)));
    };
    const auto bare = measure(comm, network, 0, 2, step);
    const double seconds = bare.exchanges > 0 ? 0.15 * bare.bare / bare.exchanges : 0;
    print(comm, fmt::format("U-Net, {}", overlap == Overlap::never ? "blocking" : "overlapped"),
          measure(comm, network, seconds, o.repeats, step), seconds);
  }
}

}  // namespace
}  // namespace mpigrad::bench

int main(int argc, char** argv) {
  using namespace mpigrad;
  bench::Options o;
  CLI::App app(
      "The part of slow halo exchanges that convolutions hide. Two ranks, one thread each:\n"
      "  OMP_NUM_THREADS=1 halo_overlap --transport threads --ranks 2\n"
      "  OMP_NUM_THREADS=1 mpiexec -n 2 halo_overlap");
  app.add_option("--repeats", o.repeats, "steps; the fastest counts")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--size", o.size, "extent of the volumes")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--channels", o.channels, "channels of the convolutions")->check(CLI::PositiveNumber)->capture_default_str();
  app.allow_extras();  // options of the launcher
  CLI11_PARSE(app, argc, argv);
  return launch(argc, argv, [&](const std::shared_ptr<Transport>& world) {
    require(world->size() >= 2, "[halo_overlap] halos travel between ranks: start two or more");
    const auto network = std::make_shared<bench::Network>();
    const Communicator comm(std::make_shared<bench::SlowTransport>(world, network));
    if (comm.rank() == 0)
      fmt::print("{:<44}{:>9}{:>9}{:>9}{:>6} {:>10}\n", "milliseconds, the fastest of turns", "step", "delayed", "delays", "of",
                 "hidden");
    bench::convolutions(comm, *network, o);
    bench::networks(comm, *network, o);
    return 0;
  });
}
