// Time and memory of NT-Xent and CLIP, forward and backward, in the direct form, in the ring form and with cached gradients.
//
//   contrastive_memory measure --loss nt_xent --form ring --samples 65536 --to measured.csv [--transport threads --ranks 2]
//   contrastive_memory report measured.csv --to results      writes results.md and results.png
//
// A run measures one line of the table, so that the memory of the process belongs to this line only;
// tests/bench/contrastive/contrastive.sh measures all of them. N samples, two views of each, go through an encoder of two layers
// (64 -> 512 -> 128), whose activations gradient caching avoids. A run on the dry device first predicts the memory of a line;
// lines beyond --limit are left out. The floor is the time of the form's matrix products at the rate of large matrix products in
// the same process, on all ranks at once.

#include <fmt/format.h>
#include <time.h>

#include <CLI/CLI.hpp>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

#include "comm/distributed/invariant.h"
#include "comm/launch.h"
#include "models/losses/contrastive/gradient_cache.h"
#include "models/losses/contrastive/pairs.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/matmul.h"
#include "ops/random/random.h"
#include "ops/views/views.h"
#include "tests/bench/contrastive/contrastive_report.h"

namespace mpigrad::bench {
namespace {

constexpr std::int64_t features = 64, hidden = 512, width = 128, chunk = 1024;

struct Arguments {
  std::string loss = "nt_xent", form = "ring", to;
  std::int64_t samples = 1024, tile = 1024;
  double limit = 8;  // GiB
};

// One step on this rank's samples.
void step(const Arguments& a, const Communicator& comm, Parameters& parameters, const Tensors& inputs) {
  const auto encode = [&](std::int64_t begin, std::int64_t end) {
    Tensors views;
    for (const auto& x : inputs)
      views.push_back(local::linear(tanh(local::linear(slice(x, 0, begin, end), replicate(parameters[0].value, comm))),
                                    replicate(parameters[1].value, comm)));
    return views;
  };
  const auto form = a.form == "direct" ? contrastive::Form::direct : contrastive::Form::ring;
  const auto loss = [&](const Tensors& z) {
    if (a.loss == "clip") return contrastive::clip(z[0], z[1], parameters[2].value, comm, {.form = form, .tile = a.tile});
    return contrastive::nt_xent(z[0], z[1], comm, {.form = form, .tile = a.tile});
  };
  const auto here = inputs[0].dim(0);
  if (a.form == "cached") {
    contrastive::cached_gradient(parameters, encode, loss, comm, {.samples = here, .chunk = chunk});
    return;
  }
  Tape tape(parameters);
  tape.gradient(loss(encode(0, here)));
}

struct Problem {
  Parameters parameters;
  Tensors inputs;
};
void make(Problem& problem, std::int64_t here, int rank) {
  const auto normal = [](const Shape& shape, std::uint64_t key, double deviation) {
    return random_normal(shape, {.key = key}, 0, deviation);
  };
  problem.parameters.add("first", normal({hidden, features}, 1, 0.1), true);
  problem.parameters.add("second", normal({width, hidden}, 2, 0.05), true);
  problem.parameters.add("log_scale", full({}, std::log(1 / 0.07)), false);
  problem.parameters.pack();
  for (const std::uint64_t view : {0, 1})
    problem.inputs.push_back(constant(normal({here, features}, 10 + view + 2 * static_cast<std::uint64_t>(rank), 1)));
}

// Bytes of all ranks' tensors, predicted by a run on the dry device.
double predicted(const Arguments& a, int ranks) {
  UseDevice device(DeviceKind::dry);
  const Communicator comm(dry_world(0, ranks, nullptr));
  const auto before = memory_statistics(DeviceKind::dry).current_bytes;
  reset_peak_memory(DeviceKind::dry);
  Problem problem;
  make(problem, (a.samples + ranks - 1) / ranks, 0);
  step(a, comm, problem.parameters, problem.inputs);
  return static_cast<double>(memory_statistics(DeviceKind::dry).peak_bytes - before) * ranks;
}

// Floating-point operations of the matrix products of one step, over all ranks.
double products(const Arguments& a) {
  const auto n = static_cast<double>(a.samples), rows = a.loss == "clip" ? n : 2 * n;
  const double matrix = 2 * rows * rows * static_cast<double>(width);
  // Forward one product (CLIP: two), backward twice as many. The ring form computes one more in the backward pass, and CLIP's
  // rows and columns come from one matrix.
  const double times = a.form != "direct" ? 4 : a.loss == "clip" ? 6 : 3;
  const double first = 4 * n * static_cast<double>(features * hidden), second = 4 * n * static_cast<double>(hidden * width);
  const double encoder = (a.form == "cached" ? 2 : 1) * (first + second) + first + 2 * second;
  return times * matrix + encoder;
}

// Processor time of this process so far, in seconds.
double processor_seconds() {
  timespec spent{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
  return static_cast<double>(spent.tv_sec) + 1e-9 * static_cast<double>(spent.tv_nsec);
}
double over_ranks(const Communicator& comm, double value, CombineOp reduction) {
  comm.transport().allreduce(&value, &value, 1, DType::float64, reduction);
  return value;
}
// The sum over the processes of the ranks; for threads, the number of their one process, which rank 0 knows.
double over_processes(const Communicator& comm, double value) {
  const bool one = comm.transport().name() == "threads" && comm.rank() > 0;
  return over_ranks(comm, one ? 0 : value, CombineOp::sum);
}

// Floating-point operations per second of one processor while all ranks multiply at once.
double rate(const Communicator& comm) {
  const auto a = random_normal({2048, width}, {.key = 5}), b = random_normal({2048, width}, {.key = 6});
  matmul(a, b, {.transpose_b = true});  // fills oneDNN's caches
  comm.transport().barrier();
  const double begin = detail::seconds_now(), processor = processor_seconds();
  double done = 0;
  while (detail::seconds_now() - begin < 0.4 || done < 20) matmul(a, b, {.transpose_b = true}), ++done;
  comm.transport().barrier();
  const double spent = over_processes(comm, processor_seconds() - processor);
  return over_ranks(comm, done, CombineOp::sum) * 2.0 * 2048 * 2048 * static_cast<double>(width) / spent;
}

double process_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("VmHWM:", 0) == 0) return 1024 * std::stod(line.substr(6));
  return 0;
}

int measure(const Arguments& a, std::shared_ptr<Transport> transport) {
  const Communicator comm(std::move(transport));
  const bool threads = comm.transport().name() == "threads";
  Measurement m{.loss = a.loss,
                .form = a.form,
                .setting = comm.size() == 1 ? "1 rank"
                           : threads        ? fmt::format("{} ranks (threads)", comm.size())
                                            : fmt::format("{} ranks (MPI)", comm.size()),
                .samples = a.samples,
                .predicted = predicted(a, comm.size())};
  if (m.predicted <= a.limit * 1024 * 1024 * 1024) {
    m.floor = products(a) / rate(comm);
    Problem problem;
    const auto cuts = balanced_cuts(a.samples, comm.size());
    const auto r = static_cast<std::size_t>(comm.rank());
    make(problem, cuts[r + 1] - cuts[r], comm.rank());
    comm.transport().barrier();
    if (comm.rank() == 0 || !threads) reset_peak_memory(DeviceKind::cpu);
    double spent = 0;
    m.seconds = m.processor = 1e300;
    // The first step touches new memory of the process, which costs as much as the work: repeats it if there is time.
    for (int repeat = 0; repeat == 0 || (repeat == 1 && spent < 10) || (repeat < 20 && spent < 0.5); ++repeat) {
      comm.transport().barrier();
      const double start = detail::seconds_now(), processor = processor_seconds();
      step(a, comm, problem.parameters, problem.inputs);
      const double seconds = over_ranks(comm, detail::seconds_now() - start, CombineOp::max);
      m.processor = std::min(m.processor, over_processes(comm, processor_seconds() - processor));
      m.seconds = std::min(m.seconds, seconds), spent += seconds;
    }
    const double tensors = static_cast<double>(memory_statistics(DeviceKind::cpu).peak_bytes), process = process_bytes();
    m.tensors = over_processes(comm, tensors), m.process = over_processes(comm, process);
  }
  if (comm.rank() == 0) append(a.to, m);
  return 0;
}

}  // namespace
}  // namespace mpigrad::bench

int main(int argc, char** argv) {
  using namespace mpigrad;
  bench::Arguments a;
  std::string csv;
  CLI::App app("Time and memory of contrastive losses; see the comment at the top of tests/bench/contrastive/contrastive.cpp.");
  app.require_subcommand(1);
  auto* measure = app.add_subcommand("measure", "One loss, form and number of samples");
  measure->add_option("--loss", a.loss)->check(CLI::IsMember({"nt_xent", "clip"}));
  measure->add_option("--form", a.form)->check(CLI::IsMember({"direct", "ring", "cached"}));
  measure->add_option("--samples", a.samples)->check(CLI::Range(2, 1 << 24));
  measure->add_option("--tile", a.tile)->check(CLI::Range(1, 1 << 20));
  measure->add_option("--limit", a.limit, "largest memory of the tensors of all ranks, GiB");
  measure->add_option("--to", a.to, "file to which a line is added")->required();
  auto* report = app.add_subcommand("report", "Table and plot of measurements");
  report->add_option("measured", csv)->required()->check(CLI::ExistingFile);
  report->add_option("--to", a.to, "files to write, without .md and .png")->required();
  try {
    if (argc > 1 && std::string(argv[1]) == "report") {
      app.parse(argc, argv);
      bench::write_report(csv, a.to);
      return 0;
    }
    std::vector<char*> rest(argv, argv + argc + 1);
    int count = argc;
    take_launch_options(count, rest.data());
    app.parse(count, rest.data());
    return launch(argc, argv, [&](std::shared_ptr<Transport> transport) { return bench::measure(a, std::move(transport)); });
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  } catch (const Error& error) {
    fmt::print(stderr, "contrastive_memory: {}\n", error.what());
    return 1;
  }
}
