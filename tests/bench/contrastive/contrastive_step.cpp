// A step of contrastive training on the CPU, op by op: two views of a batch of images through an encoder and a head, NT-Xent,
// backward, Adam.
//
//   contrastive_step --encoder conv4 --batch 64 --size 28 --channels 1 --threads 2

#include <fmt/format.h>
#include <omp.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <map>

#include "comm/launch.h"
#include "framework/engine/cost.h"
#include "framework/optim/optimizer.h"
#include "models/losses/contrastive/join_views.h"
#include "models/losses/contrastive/pairs.h"
#include "models/networks/conv4.h"
#include "models/networks/encoder3d.h"
#include "models/networks/projection.h"
#include "models/networks/resnet.h"
#include "ops/backends/implementation.h"
#include "ops/random/random.h"

namespace mpigrad::bench {
namespace {

struct Options {
  std::string encoder = "conv4";
  std::int64_t batch = 64, size = 28, channels = 1, width = 64;
  int threads = 2, steps = 20;
};

struct Net : nn::Module {
  explicit Net(const Options& o) {
    if (o.encoder == "conv4") encoder = std::make_unique<Conv4>(*this, "encoder", Conv4Options{.width = o.width});
    else if (o.encoder == "encoder3d")
      encoder = std::make_unique<Encoder3d>(*this, "encoder", Encoder3dOptions{.width = o.width});
    else if (o.encoder.starts_with("resnet"))
      encoder = std::make_unique<ResNet>(
          *this, "encoder",
          ResNetOptions{.depth = std::stoi(o.encoder.substr(6)), .width = o.width, .small_images = o.size < 64});
    else fail("[bench] encoders are conv4, resnet10, resnet18, resnet50, ..., encoder3d, not {}", o.encoder);
  }
  Tensor operator()(const Tensor& x) override { return head((*encoder)(x)); }
  std::unique_ptr<nn::Module> encoder;
  ProjectionHead head{*this, "head", {.hidden = 128, .out = 64}};
};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void run(const Options& o, const Communicator& comm) {
  omp_set_num_threads(o.threads);
  Net net(o);
  const auto depth = o.encoder == "encoder3d" ? o.size : 1;
  const Shape view{o.batch, depth, o.size, o.size, o.channels};
  net.build(Shape{2 * o.batch, depth, o.size, o.size, o.channels}, {.seed = 1});
  Adam adam(net, {.learning_rate = 1e-3});
  const auto a = constant(random_normal(view, {.key = 1})), b = constant(random_normal(view, {.key = 2}));
  struct Line {
    int calls = 0;
    double seconds = 0;
  };
  using Lines = std::map<std::string, Line>;
  std::vector<std::pair<double, Lines>> steps;
  for (int step = -2; step < o.steps; ++step) {
    CostLog log;
    Lines lines;
    const double start = now();
    Tape tape(net);
    const auto z = contrastive::split_views(net(contrastive::join_views({a, b})));
    const auto share = contrastive::nt_xent(z[0], z[1], comm);
    const auto gradients = tape.gradient(share);
    const double before = now();
    adam.step(gradients);
    const double end = now();
    if (step < 0) continue;
    lines["(Adam)"] = {1, end - before};
    for (const auto& line : log.lines) lines[std::string(line.op)].seconds += line.seconds, ++lines[std::string(line.op)].calls;
    steps.emplace_back(end - start, std::move(lines));
  }
  std::ranges::sort(steps, {}, [](const auto& step) { return step.first; });
  // The ops of the fastest step: slower steps are disturbed by other programs.
  std::vector<std::pair<std::string, Line>> sorted(steps[0].second.begin(), steps[0].second.end());
  std::ranges::sort(sorted, [](const auto& x, const auto& y) { return x.second.seconds > y.second.seconds; });
  fmt::print("{}: 2 x {} of {} x {} x {}, width {}, {} parameters, {} threads; {}\n", o.encoder, o.batch, o.size, o.size,
             o.channels, o.width, net.parameters().elements(), o.threads, cpu::instruction_sets());
  fmt::print("{:<24}{:>8}{:>12}\n", "op", "calls", "ms");
  double all = 0;
  for (const auto& [op, line] : sorted) {
    all += line.seconds;
    if (line.seconds > 2e-5) fmt::print("{:<24}{:>8}{:>12.2f}\n", op, line.calls, 1e3 * line.seconds);
  }
  fmt::print("{:<32}{:>12.2f}\n{:<32}{:>12.2f} (median {:.2f})\n", "all ops", 1e3 * all, "fastest step", 1e3 * steps[0].first,
             1e3 * steps[steps.size() / 2].first);
}

}  // namespace
}  // namespace mpigrad::bench

int main(int argc, char** argv) {
  using namespace mpigrad;
  bench::Options o;
  CLI::App app("A step of contrastive training, op by op");
  app.add_option("--encoder", o.encoder);
  app.add_option("--batch", o.batch, "samples, with two views each");
  app.add_option("--size", o.size);
  app.add_option("--channels", o.channels);
  app.add_option("--width", o.width);
  app.add_option("--threads", o.threads);
  app.add_option("--steps", o.steps);
  CLI11_PARSE(app, argc, argv);
  run_threads(1, [&](std::shared_ptr<Transport> transport) { bench::run(o, Communicator(std::move(transport))); });
  return 0;
}
