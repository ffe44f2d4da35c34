#include "models/describe.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "comm/communicator.h"
#include "framework/cost.h"
#include "models/layers.h"

namespace mpigrad {
namespace {

struct Trace {
  std::vector<nn::LayerRecord> layers;
  double backward_flops = 0;
  std::int64_t sent_bytes = 0, peak_bytes = 0;
};

// Sends so far; the log is read once.
class SentBytes {
 public:
  explicit SentBytes(std::shared_ptr<std::vector<DryRecord>> log) : log_(std::move(log)) {}
  std::int64_t operator()() {
    for (; read_ < log_->size(); ++read_)
      if ((*log_)[read_].call == "send") bytes_ += (*log_)[read_].bytes;
    return bytes_;
  }

 private:
  std::shared_ptr<std::vector<DryRecord>> log_;
  std::size_t read_ = 0;
  std::int64_t bytes_ = 0;
};

// One training step of rank `rank`.
Trace trace(nn::Module& net, const Shape& input, const DescribeOptions& options, int rank, int ranks) {
  UseDevice dry(DeviceKind::dry);
  const auto log = std::make_shared<std::vector<DryRecord>>();
  const auto grid = make_grid(Communicator(dry_world(rank, ranks, log)), options.grid);
  const auto layout = activation_layout(grid, input);
  const auto sent = std::make_shared<SentBytes>(log);

  Trace result;
  reset_peak_memory(DeviceKind::dry);
  const auto x = constant(Tensor({layout->box().extents(), options.dtype}).with_layout(layout));
  Tape tape(net);
  Tensor y;
  {
    nn::LayerTrace layers([sent] { return (*sent)(); });
    y = net(x);
    result.layers = std::move(layers.layers);
  }
  CostLog costs;
  const auto gradients = tape.vjp({y}, {zeros_like(y)}, net.parameters().tensors());
  for (const auto& line : costs.lines) result.backward_flops += line.flops;
  result.sent_bytes = (*sent)();
  result.peak_bytes = memory_statistics(DeviceKind::dry).peak_bytes;
  return result;
}

// Ranks among which the extremes are: at the ends and in the middle of every axis. Blocks of samples only shrink along theirs.
std::vector<int> typical_ranks(const GridExtents& g) {
  const auto places = [](int n) { return std::set<int>{0, n / 2, n - 1}; };
  std::vector<int> ranks;
  for (const int depth : places(g.depth))
    for (const int height : places(g.height))
      for (const int width : places(g.width)) ranks.push_back((depth * g.height + height) * g.width + width);
  return ranks;
}

constexpr double giga = 1e-9;
constexpr int most_described_ranks = 65536;

}  // namespace

Description describe(nn::Module& net, const Shape& input, const DescribeOptions& options) {
  require(input.rank() == 5, "[describe] the input is [N, D, H, W, C], got {}", input);
  const auto& g = options.grid;
  double grid_ranks = 1;
  for (const int extent : {g.sample, g.depth, g.height, g.width}) {
    require(extent > 0, "[describe] grid extents are at least 1, got {}", extent);
    grid_ranks *= extent;
  }
  // Every group of ranks is laid out as on the machine itself, which takes minutes for millions.
  require(grid_ranks <= most_described_ranks, "[describe] {} ranks, sample={} depth={} height={} width={}; at most {}",
          grid_ranks, g.sample, g.depth, g.height, g.width, most_described_ranks);
  net.build(input, {.dtype = options.dtype, .compute = options.compute, .device = DeviceKind::dry});
  net.train();
  const std::array<std::pair<const char*, int>, 4> axes{
      {{"sample", g.sample}, {"depth", g.depth}, {"height", g.height}, {"width", g.width}}};
  for (int d = 0; d < 4; ++d) {
    const auto& [name, ranks] = axes[static_cast<std::size_t>(d)];
    require(ranks <= input[d], "[describe] {} ranks along {} for an extent of {}: input {}", ranks, name, input[d], input);
  }
  Description result{.input = input,
                     .grid = g,
                     .ranks = g.sample * g.depth * g.height * g.width,
                     .dtype = options.dtype,
                     .compute = net.compute_dtype()};
  result.parameters = net.parameters().elements();

  const auto whole = trace(net, input, {.grid = {}, .dtype = options.dtype}, 0, 1);
  for (const auto& layer : whole.layers) {
    result.layers.push_back({layer.name, layer.kind, layer.out, layer.parameters, layer.flops * giga, 0, 0});
    result.forward_gflop += layer.flops * giga;
  }
  result.backward_gflop = whole.backward_flops * giga;

  for (const int rank : typical_ranks(g)) {
    const auto part = result.ranks == 1 ? whole : trace(net, input, options, rank, result.ranks);
    require(part.layers.size() == result.layers.size(),
            "[describe] the network has {} layers on one rank and {} on rank {} of {}", result.layers.size(), part.layers.size(),
            rank, result.ranks);
    std::int64_t activations = 0, halos = 0;
    for (std::size_t i = 0; i < part.layers.size(); ++i) {
      auto& layer = result.layers[i];
      layer.activation_bytes = std::max(layer.activation_bytes, part.layers[i].activation_bytes);
      layer.halo_bytes = std::max(layer.halo_bytes, part.layers[i].sent_bytes);
      activations += part.layers[i].activation_bytes, halos += part.layers[i].sent_bytes;
    }
    result.activation_bytes = std::max(result.activation_bytes, activations);
    result.halo_bytes = std::max(result.halo_bytes, halos);
    result.sent_bytes = std::max(result.sent_bytes, part.sent_bytes);
    result.peak_bytes = std::max(result.peak_bytes, part.peak_bytes);
  }
  return result;
}

std::string readable_bytes(std::int64_t bytes) {
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(units)) value /= 1024, ++unit;
  if (unit == 0) return fmt::format("{} B", bytes);
  return value < 10 ? fmt::format("{:.2f} {}", value, units[unit]) : fmt::format("{:.1f} {}", value, units[unit]);
}

std::string to_string(const Description& d) {
  constexpr auto row = "{:<12} {:<13} {:<26} {:>12} {:>14} {:>14} {:>14}\n";
  const auto in = d.compute == d.dtype ? std::string() : fmt::format(", computed in {}", name_of(d.compute));
  std::string text = fmt::format("input {} {}{}, grid sample={} depth={} height={} width={}\n\n", name_of(d.dtype), d.input, in,
                                 d.grid.sample, d.grid.depth, d.grid.height, d.grid.width);
  text += fmt::format(row, "", "", "", "", "forward", "activations", "halo sent");
  text += fmt::format(row, "layer", "kind", "output", "parameters", "GFLOP", "per rank", "per rank");
  for (const auto& layer : d.layers)
    text += fmt::format(row, layer.name, layer.kind, fmt::format("{}", layer.out),
                        layer.parameters ? fmt::to_string(layer.parameters) : "", fmt::format("{:.4f}", layer.gflop),
                        readable_bytes(layer.activation_bytes), layer.halo_bytes ? readable_bytes(layer.halo_bytes) : "");
  text += fmt::format(row, "total", "", "", d.parameters, fmt::format("{:.4f}", d.forward_gflop),
                      readable_bytes(d.activation_bytes), readable_bytes(d.halo_bytes));
  text += fmt::format("\n{} parameters\n{:.4g} GFLOP forward, {:.4g} backward (without the gradient of the input)\n",
                      d.parameters, d.forward_gflop, d.backward_gflop);
  text +=
      fmt::format("at most {} of tensors on a rank in a training step, without the optimizer's\n", readable_bytes(d.peak_bytes));
  if (d.ranks > 1)
    text += fmt::format("at most {} sent by a rank in a training step, without reductions\n", readable_bytes(d.sent_bytes));
  return text;
}

}  // namespace mpigrad
