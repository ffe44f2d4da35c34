// The memory that segmenting whole volumes takes, predicted from headers.

#include <algorithm>

#include "comm/distributed/grid.h"
#include "framework/base/host_memory.h"
#include "framework/engine/tape.h"
#include "models/evaluate/window_run.h"
#include "models/nn/describe.h"
#include "models/trainer/segmentation/parts.h"
#include "ops/elementwise/elementwise.h"

namespace mpigrad::trainer::segmenting {
namespace {

std::string text_of(double bytes) { return readable_bytes(static_cast<std::int64_t>(bytes)); }

// Bytes of tensors alive at once while the network runs on this rank's block of a batch of windows: on the dry device.
double network_bytes(const SegmentationProgram& program, const Problem& problem, const segmentation::SlidingWindowOptions& o) {
  UseDevice dry(DeviceKind::dry);
  const auto& e = o.grid->extents;
  const auto grid = make_grid(Communicator(dry_world(o.grid->rank, o.grid->ranks(), nullptr)), {1, e[1], e[2], e[3]});
  const auto& w = o.window;
  const auto layout = input_layout(grid, {o.batch, w[0], w[1], w[2], problem.channels});
  const auto net = program.network(problem);
  net->build(Shape{1, w[0], w[1], w[2], problem.channels}, {.seed = 0, .dtype = o.dtype, .device = DeviceKind::dry});
  Untaped scope;
  nn::EvaluationMode mode(*net);
  const auto before = memory_statistics(DeviceKind::dry).current_bytes;
  reset_peak_memory(DeviceKind::dry);
  const auto x = constant(Tensor(TensorType{layout->box().extents(), o.dtype}, DeviceKind::dry)).with_layout(layout);
  (void)segmentation::probabilities_of_scores(cast(net->run_everywhere(x), DType::float32), o.sigmoid);
  return static_cast<double>(memory_statistics(DeviceKind::dry).peak_bytes - before);
}

}  // namespace

std::string require_memory(const Communicator& world, const SegmentationProgram& program, const Volumes& volumes,
                           const Problem& problem, const SegmentOptions& o, double gib) {
  const auto options = window_options(o, problem);
  const auto ranks = options.grid->ranks();
  double network = 0;
  trainer::together(world, [&] {
    if (current_device() == DeviceKind::cpu) network = network_bytes(program, problem, options);
  });
  // The volume that needs most: as the file has it, turned, and resampled; labels, on the rank that writes or scores.
  constexpr double cached = 0x1p29;
  double most = 0, all = 0, volume = 0;
  std::int64_t largest = 0;
  segmentation::SlidingWindowMemory windows;
  for (std::int64_t sample = 0; sample < volumes.seen->size(); ++sample) {
    const auto seen = volumes.seen->extents_of(sample), stored = stored_extents(volumes, sample);
    const auto values = 4 * static_cast<double>(problem.channels);
    const double seen_bytes = values * static_cast<double>(seen.elements());
    const auto cells = static_cast<double>(stored.elements());
    const auto sums = segmentation::sliding_window_memory(seen, stored, problem.outputs, ranks, options);
    const double own = 2 * values * cells + seen_bytes + (!o.scored ? 2 : o.targets.empty() ? 6 : 7) * 4 * cells;
    all += seen_bytes;
    if (own + sums.total() > most) most = own + sums.total(), volume = own, windows = sums, largest = sample;
  }
  volume += std::min(cached, all);
  // The scores and probabilities of a batch of windows are in both numbers.
  const double running = std::max(network - windows.results, 0.0);
  // What the process has so far: weights are loaded, volumes are not read.
  const auto& transport = world.transport();
  const int ranks_of_process = transport.in_one_process() ? transport.size() : 1;
  const double used = static_cast<double>(peak_process_bytes()) / ranks_of_process;
  // Libraries take more when they first run; tests/bench/unet/segment_memory.sh compares what is expected and taken.
  const double libraries = 0x1.8p26 / ranks_of_process;
  const double more = windows.total() + running + volume + libraries;
  const auto available = available_host_bytes(transport.node_size() / ranks_of_process, ranks_of_process);
  const double limit = gib > 0 ? gib * 0x1p30 - used : static_cast<double>(available);
  const auto parts = fmt::format("{} for sums of {} {}, {} for windows, network and libraries, {} for the volume",
                                 text_of(windows.sums), problem.outputs, o.targets.empty() ? "classes" : "regions",
                                 text_of(windows.results + running + libraries), text_of(volume + windows.classes));
  of_input(world, [&] {
    require(more <= limit,
            "[memory] segmenting {} of {} cells takes {} of each rank besides the {} that it has ({}), and {} are {}: more ranks "
            "along depth, height or width of --grid{}{} take less",
            volumes.stored->name_of_sample(largest), volumes.seen->extents_of(largest), text_of(more), text_of(used), parts,
            text_of(std::max(limit, 0.0)), gib > 0 ? fmt::format("left of the {} GiB of predict.memory", gib) : "available",
            o.windows > 1 ? ", fewer windows at once (data.windows)" : "",
            o.sums == DType::float32 ? ", predict.scores=16-bit" : "");
  });
  double expected = used + more;
  world.transport().allreduce(&expected, &expected, 1, DType::float64, CombineOp::max);
  return fmt::format("at most {} of memory per rank expected: {}", text_of(expected), parts);
}

}  // namespace mpigrad::trainer::segmenting
