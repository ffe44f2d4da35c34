#include "examples/studies/plan/planner/machine/measure.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "comm/together.h"
#include "examples/studies/plan/planner/machine/op_times.h"
#include "framework/base/new_file.h"
#include "framework/cuda/cuda.h"
#include "framework/engine/cost.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"

namespace mpigrad::planner {
namespace {

double now() { return detail::seconds_now(); }

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Waits until the GPU has finished all work.
void finish(DeviceKind device) {
  if (device == DeviceKind::cuda) cuda::synchronise(cuda::compute_stream());
}

// Evicts from the caches, including the last level, the data that an op would not find there in a step, in which tens to hundreds
// of megabytes pass between two runs of it; the output of the previous op stays. All threads do this, so that they are awake when
// the op begins, as they are after another op.
class Eviction {
 public:
  Eviction() {
    constexpr long usual = 32L << 20, most = 64L << 20;
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    memory_.resize(static_cast<std::size_t>(std::min(most, 2 * (cache > 0 ? cache : usual))), 1);
  }
  void run(const Tensor& kept) {
    constexpr std::int64_t line = 64;
    const auto lines = static_cast<std::int64_t>(memory_.size()) / line, kept_lines = kept ? kept.bytes() / line : 0;
    unsigned sum = 0;
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < lines; ++i) ++memory_[static_cast<std::size_t>(i * line)];
#pragma omp parallel for schedule(static) reduction(+ : sum)
    for (std::int64_t i = 0; i < kept_lines; ++i) sum += static_cast<unsigned>(kept.raw()[i * line]);
    memory_[0] = static_cast<unsigned char>(sum);
  }

 private:
  std::vector<unsigned char> memory_;
};

// A tensor of this type with elements that are neither denormal nor equal, so that kernels take as long as with a network's.
Tensor filled(const Tensor& like, DeviceKind device, std::uint64_t number) {
  if (!like) return {};
  UseDevice use(device);
  if (is_differentiable(like.dtype())) return random_uniform(like.shape(), {7, number}, 0.1, 1, like.dtype());
  return zeros(like.shape(), like.dtype());
}

}  // namespace

OpMeasurement::OpMeasurement(const Communicator& world, const Options& options)
    : world_(world), o_(options), device_(current_device() == DeviceKind::dry ? DeviceKind::cpu : current_device()) {}

OpTimer OpMeasurement::timer() {
  return [this](const detail::OpFunctions& f, const void* op, Inputs in, Outputs out) { return time(f, op, in, out); };
}

double OpMeasurement::time(const detail::OpFunctions& f, const void* op, Inputs in, Outputs out) {
  const auto types = [](Inputs tensors) {
    std::vector<TensorType> list;
    for (const auto& x : tensors) list.push_back(x ? x.type() : TensorType{});
    return list;
  };
  MeasuredOp measured{
      .op = std::string(f.traits.name), .in = signature(types(in)), .out = signature(types(out)), .ranks = world_.size()};
  const auto cost = f.cost ? f.cost(op, in, out) : Cost{};
  measured.flops = cost.flops, measured.bytes = cost.bytes;
  if (!f.cost) {
    for (const auto& x : in) measured.bytes += x ? static_cast<double>(x.bytes()) : 0;
    for (const auto& y : out)
      measured.bytes += static_cast<double>(y.bytes()), measured.flops += static_cast<double>(y.elements());
  }
  const auto key = fmt::format("{} {} > {}, {} FLOPs", measured.op, measured.in, measured.out, measured.flops);
  const auto known = known_.find(key);
  if (known != known_.end()) return known->second;
  if (now() > o_.until) return -1;

  const Untaped untaped;
  std::vector<double> seconds;
  bool ran = true;
  {
    Tensors operands, results;
    for (const auto& x : in) operands.push_back(filled(x, device_, operands.size()));
    for (const auto& y : out) results.push_back(Tensor(y.type(), device_));
    try {
      detail::run_again(op, f, operands, results);
      finish(device_);
    } catch (const Error&) {
      ran = false;
    }
    const bool cpu = device_ == DeviceKind::cpu;
    static thread_local Eviction eviction;
    const double start = now();
    while (ran && (static_cast<int>(seconds.size()) < o_.repeats || (now() - start < o_.seconds && seconds.size() < 1000))) {
      if (cpu) eviction.run(operands.empty() ? Tensor() : operands[0]);
      const double before = now();
      detail::run_again(op, f, operands, results);
      finish(device_);
      seconds.push_back(now() - before);
    }
  }
  measured.seconds = ran ? median(seconds) : -1;
  if (!ran) left_out_.push_back(key);
  known_[key] = measured.seconds;
  if (ran) ops_.push_back(measured);
  return measured.seconds;
}

MeasuredOp measure_update(const Communicator& world, std::int64_t elements, const MakeOptimizer& make) {
  struct Flat : nn::Module {
    std::int64_t elements = 0;
    Tensor operator()(const Tensor& x) override { return x * sum(parameter("w", {elements}, nn::constant_value(0.5))); }
  } net;
  net.elements = elements;
  net.build(Shape{1});
  const auto optimizer = make(net.parameters());
  std::vector<double> seconds;
  for (int i = 0; i < 6; ++i) {
    Tape tape(net);
    const auto gradients = tape.gradient();
    finish(current_device());
    world.transport().barrier();
    const double start = now();
    optimizer->step(gradients);
    finish(current_device());
    if (i > 0) seconds.push_back(now() - start);
  }
  double state = 0;
  for (const auto& part : optimizer->state()) state += static_cast<double>(part.value.bytes());
  const auto values = 4 * static_cast<double>(elements);
  return {"update", signature({{Shape{elements}}}), "", world.size(), 2 * values, 3 * values + 2 * state, median(seconds)};
}

LinkFit fit_link(const std::vector<std::pair<double, double>>& points) {
  require(points.size() >= 2, "[planner] a fit needs two sizes or more, got {}", points.size());
  std::vector<double> slopes, rests, errors;
  for (std::size_t i = 0; i < points.size(); ++i)
    for (std::size_t j = i + 1; j < points.size(); ++j)
      if (points[j].first != points[i].first)
        slopes.push_back((points[j].second - points[i].second) / (points[j].first - points[i].first));
  require(!slopes.empty(), "[planner] a fit needs two sizes or more, all are {}", points[0].first);
  LinkFit fit{.seconds_per_byte = std::max(0.0, median(slopes))};
  // Small messages determine the latency: for large ones the remainder is the error of the slope.
  auto by_size = points;
  std::sort(by_size.begin(), by_size.end());
  for (std::size_t i = 0; i < (by_size.size() + 1) / 2; ++i)
    rests.push_back(by_size[i].second - fit.seconds_per_byte * by_size[i].first);
  fit.latency = std::max(1e-9, median(rests));
  for (const auto& [bytes, seconds] : points)
    errors.push_back(std::abs(fit.latency + bytes * fit.seconds_per_byte - seconds) / seconds);
  fit.residual = median(errors);
  return fit;
}

std::vector<MeasuredCall> measure_calls(const Communicator& world, std::int64_t largest) {
  require(world.size() >= 2, "[planner] calls are between two ranks or more");
  auto& transport = world.transport();
  const int p = world.size();
  const std::int64_t floats = std::max<std::int64_t>(p, largest / 4 / p * p);
  std::vector<float> in(static_cast<std::size_t>(floats), 1.0F), out(static_cast<std::size_t>(floats));
  // The median of several rounds, each the time of the slowest rank.
  const auto timed = [&](double bytes, const auto& f) {
    f();
    std::vector<double> rounds;
    for (int i = 0; i < (bytes > 1e6 ? 5 : 15); ++i) {
      transport.barrier();
      const double start = now();
      f();
      double mine = now() - start, slowest = 0;
      transport.allreduce(&mine, &slowest, 1, DType::float64, CombineOp::max);
      rounds.push_back(slowest);
    }
    return median(rounds);
  };
  std::vector<MeasuredCall> calls{{"exchange", 2}, {"allreduce", p}, {"allgather", p}, {"reduce_scatter", p}};
  for (std::int64_t count = p; count <= floats; count *= 4) {
    const auto bytes = 4.0 * static_cast<double>(count);
    const std::vector<std::int64_t> parts(static_cast<std::size_t>(p), count / p);
    const auto measure = [&](std::size_t call, double handed_in, const auto& f) {
      calls[call].points.emplace_back(handed_in, timed(bytes, f));
    };
    measure(0, bytes, [&] {
      if (world.rank() > 1) return;
      const Message send{1 - world.rank(), 0, in.data(), count}, receive{1 - world.rank(), 0, out.data(), count};
      transport.exchange({&send, 1}, {&receive, 1}, DType::float32);
    });
    measure(1, bytes, [&] { transport.allreduce(in.data(), out.data(), count, DType::float32, CombineOp::sum); });
    measure(2, bytes / p, [&] { transport.allgather(in.data(), out.data(), parts, DType::float32); });
    measure(3, bytes, [&] { transport.reduce_scatter(in.data(), out.data(), parts, DType::float32, CombineOp::sum); });
  }
  if (world.rank() != 0) calls.clear();
  return calls;
}

Disk measure_disk(const std::filesystem::path& folder, std::int64_t bytes) {
  const auto path = folder / "mpigrad-calibrate";
  std::vector<char> data(static_cast<std::size_t>(1) << 20, 'x');
  const NewFile owner(path, "calibrate");  // removes the file
  const int file = owner.descriptor();
  Disk disk;
  std::string failure;
  double start = now();
  for (std::int64_t done = 0; done < bytes && failure.empty(); done += static_cast<std::int64_t>(data.size()))
    if (::write(file, data.data(), data.size()) != static_cast<ssize_t>(data.size())) failure = std::strerror(errno);
  if (failure.empty() && ::fsync(file) != 0) failure = std::strerror(errno);
  disk.write = static_cast<double>(bytes) / (now() - start);
  if (failure.empty() && ::lseek(file, 0, SEEK_SET) == 0) {
    start = now();
    while (::read(file, data.data(), data.size()) > 0) {
    }
    disk.read = static_cast<double>(bytes) / (now() - start);
  }
  require(failure.empty(), "[calibrate] {} could not be written: {}", path.string(), failure);
  disk.rank_read = disk.read, disk.rank_write = disk.write;
  return disk;
}

}  // namespace mpigrad::planner
