#include "examples/studies/scaling/speed_runs.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "examples/tools/elastic/command.h"
#include "examples/tools/elastic/job.h"
#include "examples/tools/elastic/plan.h"
#include "models/trainer/run_training.h"
#include "models/trainer/tool/command_line.h"

namespace mpigrad::scaling {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using elastic::has_option;
using elastic::last_line;
using elastic::with_value;
using elastic::Words;
using tool::UsageError;

std::atomic<int> asked{0};
extern "C" void note_signal(int signal) { asked = signal; }

class Speed {
 public:
  Speed(const SpeedOptions& o, SpeedStudy& study, std::string launcher)
      : o_(o), study_(study), launcher_(std::move(launcher)),
        folder_(fs::path(o.out) / "speed-runs" / fmt::format("{}-{}", study.name, study.mode)) {
    for (const auto& grid : study.grids) elastic::require_program(words_of(grid, false).front());
  }

  // In turns, so that a temporary slowdown of the machine affects all grids.
  void run() {
    for (std::int64_t repeat = 1; repeat <= o_.repeats; ++repeat)
      for (auto& grid : study_.grids) {
        if (!grid.failure.empty()) continue;
        train(grid, repeat);
        if (asked != 0) return;
        if (grid.ranks == 1 || !grid.failure.empty() || !grid.silent_failure.empty() || !study_.never_silent.empty()) continue;
        train_silently(grid);
        if (asked != 0) return;
      }
  }

 private:
  fs::path folder_of(const Measured& grid) const { return folder_ / grid.grid; }
  fs::path log_of(const Measured& grid, bool silent) const {
    return folder_of(grid) / (silent ? "without-communication.txt" : "output.txt");
  }

  Words words_of(const Measured& grid, bool silent) const {
    auto words = elastic::fill(launcher_, {{"ranks", std::to_string(grid.ranks)}, {"threads", std::to_string(o_.threads)}});
    if (words.empty()) throw UsageError("--launcher has no words");
    auto command = with_value(o_.command, "--batch", std::to_string(grid.batch));
    command = with_value(std::move(command), "--grid", grid.grid);
    command = with_value(std::move(command), "--out", folder_of(grid).string());
    if (silent) command.insert(command.end(), {"--set", "grid.communication=none"});
    for (const auto* flag : {"--overwrite", silent ? "--json" : "--quiet"})
      if (!has_option(command, flag)) command.emplace_back(flag);
    words.insert(words.end(), command.begin(), command.end());
    return words;
  }

  // Empty: it ended with exit code 0, or a signal came.
  std::string failure_of(const Measured& grid, bool silent, int& code) {
    elastic::Job job(words_of(grid, silent), log_of(grid, silent));
    const auto start = std::chrono::steady_clock::now();
    while (!job.watch(0.1, {})) {
      const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
      const bool late = o_.limit > 0 && passed.count() > o_.limit;
      if (!late && asked == 0) continue;
      job.kill();
      if (asked != 0) return {};
      return with_last_line(fmt::format("had not ended after {:g} s (--limit)", o_.limit), grid, silent);
    }
    code = job.code();
    if (code == 0 || asked != 0) return {};
    return with_last_line(code > 128 ? fmt::format("ended by signal {}", code - 128) : fmt::format("exit code {}", code), grid,
                          silent);
  }
  std::string with_last_line(const std::string& text, const Measured& grid, bool silent) const {
    const auto line = last_line(log_of(grid, silent));
    return line.empty() ? text : fmt::format("{}: {}", text, line);
  }

  void train(Measured& grid, std::int64_t repeat) {
    const auto folder = folder_of(grid);
    const auto summary = folder / trainer::summary_file;
    std::error_code error;
    fs::create_directories(folder, error);
    require(!error, "[scaling] {} cannot be made: {}", folder.string(), error.message());
    fs::remove(summary, error);  // the previous run's summary would be taken for this one's
    int code = -1;
    grid.failure = failure_of(grid, false, code);
    if (asked != 0) return;
    if (grid.failure.empty()) take(grid, summary);
    say(grid, repeat, grid.failure.empty() ? fmt::format("{:.4g} samples/s", grid.rates.back()) : grid.failure);
  }

  void take(Measured& grid, const fs::path& summary) const {
    std::ifstream file(summary);
    if (!file) return void(grid.failure = fmt::format("wrote no {}: is this a training?", trainer::summary_file));
    try {
      const auto document = Json::parse(file);
      const double rate = document.at("samples_per_second"), seconds = document.at("training_seconds");
      if (!(rate > 0)) return void(grid.failure = "has trained nothing");
      grid.seconds = grid.rates.empty() ? seconds : std::min(grid.seconds, seconds);
      grid.rates.push_back(rate);
      if (document.contains("waiting_seconds")) grid.waiting.push_back(document["waiting_seconds"].get<double>() / seconds);
      const auto* memory =
          document.contains("peak_gpu_bytes_per_rank") ? "peak_gpu_bytes_per_rank" : "peak_process_bytes_per_rank";
      grid.bytes = std::max(grid.bytes, document.value(memory, std::int64_t{0}));
    } catch (const Json::exception& error) {
      grid.failure = fmt::format("{} does not tell the training's speed: {}", trainer::summary_file, error.what());
    }
  }

  // A training that writes nothing prints its speed.
  void train_silently(Measured& grid) {
    int code = -1;
    const auto failure = failure_of(grid, true, code);
    if (asked != 0) return;
    // The program does not have this option, or not on this device.
    if (code == 2 && failure.find("grid.communication") != std::string::npos) {
      study_.never_silent = last_line(log_of(grid, true));
      return;
    }
    grid.silent_failure = failure;
    if (!failure.empty()) return;
    std::ifstream stream(log_of(grid, true));
    std::string text;
    bool inside = false;
    for (std::string line; std::getline(stream, line);) {
      inside = inside || line == "{";
      if (inside) text += line;
      if (line == "}") inside = false;
    }
    const auto document = Json::parse(text, nullptr, false);
    const double rate = document.is_object() ? document.value("samples_per_second", 0.0) : 0.0;
    if (rate > 0) grid.silent_rates.push_back(rate);
    else grid.silent_failure = "did not tell its speed";
  }

  void say(const Measured& grid, std::int64_t repeat, const std::string& text) const {
    if (o_.quiet || o_.json) return;
    const auto turn = o_.repeats > 1 ? fmt::format(", run {} of {}", repeat, o_.repeats) : std::string();
    fmt::print(stderr, "{}, {} rank{}, batch {}{}: {}\n", grid.grid, grid.ranks, grid.ranks == 1 ? "" : "s", grid.batch, turn,
               text);
  }

  const SpeedOptions& o_;
  SpeedStudy& study_;
  std::string launcher_;
  fs::path folder_;
};

}  // namespace

int measure(SpeedStudy& study, const SpeedOptions& o, const std::string& launcher) {
  Speed speed(o, study, launcher);
  setenv("OMP_NUM_THREADS", std::to_string(o.threads).c_str(), 1);
  unsetenv("MPIGRAD_THREADS");  // it would take precedence
  for (const int signal : {SIGTERM, SIGINT}) {
    struct sigaction action {};
    action.sa_handler = note_signal;
    sigaction(signal, &action, nullptr);
  }
  speed.run();
  study.interrupted = asked != 0;
  return asked;
}

}  // namespace mpigrad::scaling
