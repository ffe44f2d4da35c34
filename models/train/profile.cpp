#include "models/train/profile.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "comm/distributed/stages.h"
#include "comm/together.h"
#include "framework/base/new_file.h"
#include "framework/engine/op.h"
#include "framework/engine/tape.h"
#include "ops/linear/matmul.h"
#include "ops/random/random.h"

namespace mpigrad {
namespace {

enum Lane : int { whole_step = 0, compute = 1, communication = 2, loading = 3, bubble = 4 };
constexpr const char* lane_names[] = {"steps", "compute", "communication", "data", "bubble of the pipeline"};

double now() { return detail::seconds_now(); }

// `name` is of ops and shapes: it has no quotes, backslashes or control characters.
std::string event(int rank, const char* name_of_lane, int lane) {
  return fmt::format(R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":"{}"}}}})", rank, lane, name_of_lane);
}

}  // namespace

MachinePeaks measure_peaks() {
  MachinePeaks peaks;
  Untaped scope;
  UseDevice device(DeviceKind::cpu);
  constexpr std::int64_t n = 1024, copied = std::int64_t{1} << 24;
  const auto a = random_normal({n, n}, {1, 1}), b = random_normal({n, n}, {1, 2}), from = random_normal({copied}, {1, 3});
  Tensor to(from.type(), DeviceKind::cpu);
  for (int i = 0; i < 3; ++i) {
    double start = now();
    (void)matmul(a, b);
    peaks.flops = std::max(peaks.flops, 2.0 * n * n * n / (now() - start));
    start = now();
    const auto* source = reinterpret_cast<const float*>(from.raw());
    auto* target = reinterpret_cast<float*>(to.raw());
#pragma omp parallel for schedule(static)
    for (std::int64_t k = 0; k < copied; ++k) target[k] = source[k];
    peaks.bytes = std::max(peaks.bytes, 2.0 * static_cast<double>(from.bytes()) / (now() - start));
  }
  return peaks;
}

StepProfile::StepProfile(const Communicator& world, const ProfileOptions& options) : world_(world), o_(options) {
  require(o_.first_step >= 0 && o_.steps > 0, "[profile] steps from 0 on, at least one: {} from {}", o_.steps, o_.first_step);
}

StepProfile::~StepProfile() = default;

bool StepProfile::recording() const { return step_ >= o_.first_step && step_ < o_.first_step + o_.steps; }
bool StepProfile::complete() const { return step_ >= o_.first_step + o_.steps; }

void StepProfile::begin_step() {
  if (!recording()) return;
  if (step_ == o_.first_step) {
    // Nodes have different clocks: all ranks count from here.
    world_.transport().barrier();
    origin_ = now();
  }
  log_.emplace();
  began_ = now();
}

void StepProfile::end_step() {
  if (log_) {
    spans_.push_back({fmt::format("step {}", step_ + 1), whole_step, began_ - origin_, now() - began_, 0, 0});
    for (const auto& line : log_->lines) {
      auto name = std::string(line.op);
      if (!line.outputs.empty()) name += fmt::format(" {}", line.outputs.front());
      const auto lane = line.op == waits_for_stage ? bubble : line.communicates ? communication : compute;
      spans_.push_back({std::move(name), lane, line.start - origin_, line.seconds, line.flops, line.bytes});
    }
    log_.reset();
  }
  ++step_;
}

void StepProfile::waited_for_data(double seconds) {
  if (recording() && step_ > o_.first_step)
    spans_.push_back({"wait for a batch", loading, now() - seconds - origin_, seconds, 0, 0});
}

std::string StepProfile::write(const std::filesystem::path& path) {
  // Sends the events of each rank as text to rank 0.
  const int rank = world_.rank();
  std::string mine = fmt::format(R"({{"name":"process_name","ph":"M","pid":{},"args":{{"name":"rank {}"}}}})", rank, rank);
  const bool waits = std::any_of(spans_.begin(), spans_.end(), [](const Span& span) { return span.lane == bubble; });
  for (const int lane : {whole_step, compute, communication, loading, bubble})
    if (lane != bubble || waits) mine += ",\n" + event(rank, lane_names[lane], lane);
  for (const auto& span : spans_) {
    mine += fmt::format(
        ",\n"
        R"({{"name":"{}","ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f})",
        span.name, rank, span.lane, 1e6 * span.start, 1e6 * span.seconds);
    if (span.flops > 0 || span.bytes > 0)
      mine += fmt::format(R"(,"args":{{"gflop":{:.6g},"mib":{:.6g},"gflop_per_s":{:.5g}}})", 1e-9 * span.flops,
                          span.bytes / (1 << 20), span.seconds > 0 ? 1e-9 * span.flops / span.seconds : 0.0);
    mine += "}";
  }
  auto& transport = world_.transport();
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(world_.size()));
  lengths[static_cast<std::size_t>(rank)] = static_cast<std::int64_t>(mine.size());
  transport.allreduce(lengths.data(), lengths.data(), world_.size(), DType::int64, CombineOp::sum);
  std::string all(rank == 0 ? static_cast<std::size_t>(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0})) : 0,
                  ' ');
  transport.gather(mine.data(), all.data(), lengths, DType::uint8, 0);
  if (!peaks_) peaks_ = measure_peaks();
  const auto& peaks = *peaks_;

  together(world_, [&] {
    if (rank != 0) return;
    std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
    std::size_t at = 0;
    for (const auto length : lengths) {
      if (at > 0) text += ",\n";
      text += all.substr(at, static_cast<std::size_t>(length)), at += static_cast<std::size_t>(length);
    }
    text += "\n]}\n";
    write_new_file(path, text, "profile");
  });

  std::string table;
  if (rank != 0) return table;
  struct Of {
    double seconds = 0, flops = 0, bytes = 0;
    int calls = 0, lane = 0;
  };
  std::map<std::string, Of> by_op;
  double steps = 0, known = 0;
  for (const auto& span : spans_) {
    if (span.lane == whole_step) {
      steps += span.seconds;
      continue;
    }
    auto name = span.lane == loading ? span.name : span.name.substr(0, span.name.find(" ["));
    auto& of = by_op[name];
    of.seconds += span.seconds, of.flops += span.flops, of.bytes += span.bytes, ++of.calls, of.lane = span.lane;
    if (span.lane != loading) known += span.seconds;
  }
  std::vector<std::pair<std::string, Of>> sorted(by_op.begin(), by_op.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  const auto count = static_cast<double>(std::max<std::int64_t>(1, std::min(o_.steps, step_ - o_.first_step)));
  table = fmt::format("rank 0, {} steps of {:.2f} ms; a product of matrices reaches {:.1f} GFLOP/s here, a copy {:.1f} GB/s\n",
                      count, 1e3 * steps / count, 1e-9 * peaks.flops, 1e-9 * peaks.bytes);
  table += fmt::format("{:<32}{:>7}{:>12}{:>8}{:>11}{:>9}{:>9}{:>9}\n", "op", "calls", "ms a step", "share", "GFLOP/s", "of peak",
                       "GB/s", "of peak");
  constexpr std::size_t most = 20;
  for (std::size_t i = 0; i < std::min(most, sorted.size()); ++i) {
    const auto& [name, of] = sorted[i];
    const auto per_second = [seconds = of.seconds](double amount) { return seconds > 0 ? amount / seconds : 0; };
    table += fmt::format("{:<32}{:>7.0f}{:>12.2f}{:>7.1f}%", name, of.calls / count, 1e3 * of.seconds / count,
                         steps > 0 ? 100 * of.seconds / steps : 0);
    if (of.flops > 0 || of.bytes > 0)
      table += fmt::format("{:>11.1f}{:>8.0f}%{:>9.1f}{:>8.0f}%", 1e-9 * per_second(of.flops),
                           100 * per_second(of.flops) / peaks.flops, 1e-9 * per_second(of.bytes),
                           100 * per_second(of.bytes) / peaks.bytes);
    table += "\n";
  }
  table += fmt::format("between ops{:>40.2f}{:>7.1f}%\n", 1e3 * (steps - known) / count,
                       steps > 0 ? 100 * (steps - known) / steps : 0);
  return table;
}

}  // namespace mpigrad
