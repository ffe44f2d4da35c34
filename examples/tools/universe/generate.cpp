#include <nlohmann/json.hpp>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>

#include "examples/tools/universe/commands.h"
#include "examples/tools/universe/displacement.h"
#include "framework/base/new_file.h"
#include "models/trainer/folder/folder_lock.h"

namespace mpigrad::universe {

namespace {

namespace fs = std::filesystem;

void require_new(const GenerateOptions& options) {
  std::int64_t existing = 0;
  std::string example;
  for (std::int64_t i = 0; i < options.universes; ++i) {
    const auto name = file_name(static_cast<std::uint64_t>(options.first + i));
    if (is_name_taken(fs::path(options.out) / name) && existing++ == 0) example = name;
  }
  require(existing == 0 || options.overwrite,
          "[generate] {} of the {} files exist already in {} ({}{}); --overwrite replaces them", existing, options.universes,
          options.out, example, existing > 1 ? ", ..." : "");
}

// Before any work, so that no work is lost: rank 0 looks for all files, the others wait.
void prepare_outputs(const GenerateOptions& options, std::optional<tool::FolderLock>& lock) {
  require_new(options);
  std::error_code error;
  fs::create_directories(options.out, error);
  require(fs::is_directory(options.out), "[generate] the folder {} cannot be created: {}", options.out, error.message());
  // Other jobs may fill the same folder with other files at the same time (--first).
  lock.emplace(options.out, tool::FolderLockOptions{.of = file_name(static_cast<std::uint64_t>(options.first))});
  require_new(options);  // another program may have written them meanwhile
}

nlohmann::ordered_json summary(const GenerateOptions& options, const std::vector<std::int64_t>& largest, double seconds) {
  const auto& simulation = options.simulation;
  nlohmann::ordered_json result{{"command", "generate"},
                                {"out", options.out},
                                {"size", simulation.size},
                                {"cell", simulation.cell},
                                {"box", simulation.cell * static_cast<double>(simulation.size)},
                                {"seed", simulation.seed},
                                {"power", name_of(simulation.spectrum)},
                                {"order", simulation.order},
                                {"redshifts", redshifts},
                                {"seconds", seconds}};
  auto& list = result["universes"] = nlohmann::ordered_json::array();
  for (std::int64_t i = 0; i < options.universes; ++i) {
    const auto index = static_cast<std::uint64_t>(options.first + i);
    const auto draw = draw_parameters(simulation.seed, index);
    nlohmann::ordered_json entry{{"index", index}, {"file", (fs::path(options.out) / file_name(index)).string()}};
    for (std::size_t p = 0; p < parameter_names.size(); ++p) entry["parameters"][parameter_names[p]] = draw.physical[p];
    entry["unit"] = draw.unit;
    entry["largest_count"] = largest[static_cast<std::size_t>(i)];
    list.push_back(std::move(entry));
  }
  return result;
}

}  // namespace

int generate(const std::shared_ptr<Transport>& transport, GenerateOptions options) {
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  auto& simulation = options.simulation;
  simulation.spectrum = spectrum_of(options.power);
  const int rank = transport->rank(), ranks = transport->size();
  std::optional<tool::FolderLock> lock;
  tool::together(*transport, [&] {
    if (rank == 0) prepare_outputs(options, lock);
  });

  const bool spread = options.spread && ranks > 1;
  tool::together(*transport,
                 [&] { require_field_memory("[generate] --size", simulation.size, spread ? 1 : ranks, simulation.order); });
  const SlabFft fft(spread ? transport->subgroup(std::array{rank}) : transport, simulation.size);
  const bool progress = rank == 0 && isatty(STDERR_FILENO) != 0;
  std::vector<std::int64_t> largest(static_cast<std::size_t>(options.universes));
  const auto make = [&](std::int64_t i) {
    const auto index = static_cast<std::uint64_t>(options.first + i);
    const auto universe = simulate(fft, simulation, index);
    write_universe(fs::path(options.out) / file_name(index), options.overwrite, fft, simulation, universe);
    largest[static_cast<std::size_t>(i)] = universe.largest;
  };
  // Ranks that make their own universes wait for each other after every few: otherwise all ranks of a process would write at the
  // same time, one after the other, while none computes.
  const std::int64_t step = spread ? ranks : 1, several = spread ? 4 * step : 1;
  for (std::int64_t first = 0; first < options.universes; first += several) {
    const auto end = std::min(first + several, options.universes);
    if (spread)
      tool::together(*transport, [&] {
        for (auto i = first + rank; i < end; i += step) make(i);
      });
    else make(first);
    if (progress) fmt::print(stderr, "\r{} of {} universes, {:.1f} s ", end, options.universes, elapsed());
  }
  transport->allreduce(largest.data(), largest.data(), options.universes, DType::int64, CombineOp::max);
  if (progress) fmt::print(stderr, "\n");
  if (options.json) {
    tool::print_once(*transport, tool::to_text(summary(options, largest, elapsed())) + "\n");
  } else {
    tool::print_once(
        *transport,
        fmt::format("{} universes of {}^3 cells of {} Mpc/h in {}: {} to {}, {:.1f} s, at most {} particles in a cell\n",
                    options.universes, simulation.size, simulation.cell, options.out,
                    file_name(static_cast<std::uint64_t>(options.first)),
                    file_name(static_cast<std::uint64_t>(options.first + options.universes - 1)), elapsed(),
                    *std::max_element(largest.begin(), largest.end())));
  }
  return 0;
}

}  // namespace mpigrad::universe
