#include "examples/studies/scaling/learning.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>
#include <optional>

#include "framework/base/new_file.h"
#include "models/data/data.h"
#include "models/train/metrics.h"
#include "models/train/workers/noise_scale.h"
#include "models/trainer/tool/together.h"

namespace mpigrad::scaling {
namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

Synchronisation synchronisation_of(const std::string& name) {
  if (name == "weights") return Synchronisation::weights;
  if (name == "gossip") return Synchronisation::gossip;
  require(name == "gradients", "[scaling] there is no synchronisation '{}'", name);
  return Synchronisation::gradients;
}

// The mean over all test samples; each rank evaluates its part.
double test_error(const Communicator& world, const Task& task, nn::Module& net, const data::Loader& loader) {
  Untaped untaped;
  const nn::EvaluationMode mode(net);
  std::array<double, 2> sums{};
  for (const auto& [x, y] : loader.epoch(0)) {
    if (x.dim(0) == 0) continue;
    sums[0] += task.error(net(x.without_layout()), y.without_layout());
    sums[1] += static_cast<double>(x.dim(0));
  }
  world.transport().allreduce(sums.data(), sums.data(), 2, DType::float64, CombineOp::sum);
  return sums[0] / sums[1];
}

constexpr const char* header =
    "task,synchronisation,every,workers,batch,learning_rate,seed,data,goal,reached,budget,samples,error,critical_batch,"
    "samples_per_second,ranks,copies,copy_bytes";

}  // namespace

RunResult train_to_goal(const Communicator& world, const Task& task, const RunKey& key, double budget) {
  const auto grid = make_grid(world, {.sample = world.size()});
  const auto big = key.workers * key.batch;
  data::LoaderOptions loading{.grid = grid, .batch = big, .seed = key.seed, .shuffle = true, .drop_last = true};
  const data::Loader training(task.training, loading);
  loading.shuffle = loading.drop_last = false;
  loading.batch = std::min<std::int64_t>(256, task.test->size());
  const data::Loader test(task.test, loading);
  auto input = training.shape();
  input[0] = key.batch;
  Workers workers(
      world, task.make, input, {.seed = key.seed},
      [&](Parameters& parameters) {
        return std::make_unique<SGD>(parameters, SGDAttributes{.learning_rate = key.learning_rate, .momentum = task.momentum});
      },
      {.workers = key.workers, .synchronisation = synchronisation_of(key.synchronisation), .every = key.every, .seed = key.seed});
  const bool measures = task.separable && key.workers > 1 && key.synchronisation == "gradients";
  std::optional<NoiseScale> noise;
  if (measures) noise.emplace(key.batch, big);
  CriticalBatch critical(big);
  RunResult result{.budget = budget, .ranks = world.size()};
  result.copies = workers.copies(), result.copy_bytes = workers.bytes();
  double seconds = 0, samples = 0, looked = -1, last_error = 0;
  const auto look = [&] {
    const double error = test_error(world, task, workers.mean(), test);
    const double before = looked < 0 ? error : last_error, from = std::max(looked, 0.0);
    looked = samples, last_error = error;
    result.error = error, result.samples = samples;
    if (!(error <= key.goal)) return false;
    result.reached = true;
    if (before > key.goal && std::isfinite(before))
      result.samples = from + (samples - from) * (before - key.goal) / (before - error);
    return true;
  };
  bool ended = look();
  for (std::int64_t epoch = 0; !ended; ++epoch) {
    if (training.steps() == 0)
      throw tool::UsageError(
          fmt::format("--samples: {} make no batch of {} for {} workers", training.samples(), big, key.workers));
    for (const auto& [x, y] : training.epoch(epoch)) {
      const auto start = Clock::now();
      WorkersStep step;
      try {
        step = workers.step(x, y, task.loss);
      } catch (const Workers::Diverged&) {  // thrown on all ranks
        result.error = std::numeric_limits<double>::infinity(), result.samples = samples;
        ended = true;
        break;
      }
      seconds += since(start);
      samples += static_cast<double>(big);
      if (noise) {
        noise->add(step.small_squared_norm, step.big_squared_norm);
        critical.add(noise->value());
      }
      const bool over = samples >= budget;
      if (over || samples >= looked + static_cast<double>(task.every)) ended = look() || over;
      if (ended) break;
    }
  }
  result.critical_batch = critical.value();
  result.samples_per_second = seconds > 0 ? samples / seconds : 0;
  return result;
}

RunFile::RunFile(const std::filesystem::path& path) : path_(path) {
  if (std::error_code none; !std::filesystem::is_regular_file(path, none)) return;  // opening a pipe would wait for a writer
  std::ifstream file(path);
  if (!file) return;
  std::string line;
  std::getline(file, line);
  if (!line.empty() && line != header)
    throw tool::UsageError(
        fmt::format("{} is no table of runs of this version of the program; another --out, or without that file", path.string()));
  for (int number = 2; std::getline(file, line); ++number) {
    // The program was killed while it wrote the last line.
    if (file.eof()) break;
    std::vector<std::string> cells;
    for (std::size_t begin = 0; begin <= line.size();) {
      const auto end = std::min(line.find(',', begin), line.size());
      cells.push_back(line.substr(begin, end - begin));
      begin = end + 1;
    }
    require(cells.size() == 18, "[scaling] {} line {}: 18 cells are needed, got {}", path.string(), number, cells.size());
    const auto value = [&](std::size_t i) {
      double x = 0;
      const auto& cell = cells[i];
      const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), x);
      require(error == std::errc() && end == cell.data() + cell.size(), "[scaling] {} line {}: '{}' is not a number",
              path.string(), number, cell);
      return x;
    };
    const RunKey key{cells[0],
                     cells[1],
                     static_cast<std::int64_t>(value(2)),
                     static_cast<int>(value(3)),
                     static_cast<std::int64_t>(value(4)),
                     value(5),
                     static_cast<std::uint64_t>(value(6)),
                     cells[7],
                     value(8)};
    RunResult result{.reached = value(9) != 0, .budget = value(10), .samples = value(11), .error = value(12)};
    result.critical_batch = value(13), result.samples_per_second = value(14), result.ranks = static_cast<int>(value(15));
    result.copies = static_cast<std::int64_t>(value(16)), result.copy_bytes = static_cast<std::int64_t>(value(17));
    runs_[key] = result;
  }
}

std::optional<RunResult> RunFile::find(const RunKey& key, double budget, int ranks) const {
  const auto found = runs_.find(key);
  if (found == runs_.end()) return std::nullopt;
  auto run = found->second;
  if (run.ranks != ranks && key.workers == ranks) return std::nullopt;
  if (!run.reached && std::isfinite(run.error) && run.budget < budget) return std::nullopt;
  run.reached = run.reached && run.samples <= budget;
  return run;
}

void RunFile::write() const {
  std::string text;
  for (const auto& [k, run] : runs_)
    text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", k.task, k.synchronisation, k.every, k.workers,
                        k.batch, k.learning_rate, k.seed, k.data, k.goal, run.reached ? 1 : 0, run.budget, run.samples, run.error,
                        run.critical_batch, run.samples_per_second, run.ranks, run.copies, run.copy_bytes);
  write_new_file(path_, fmt::format("{}\n{}", header, text), "scaling");
}

}  // namespace mpigrad::scaling
