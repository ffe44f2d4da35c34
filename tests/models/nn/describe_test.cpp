// Layer tables against published numbers, and whole networks laid out for thousands of ranks on the dry device and transport.

#include "models/nn/describe.h"
#include "framework/base/fnv.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "models/networks/cosmoflow.h"
#include "models/train/session.h"
#include "ops/elementwise/elementwise.h"
#include "ops/loss/loss.h"
#include "tests/support/ranks.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

constexpr std::int64_t mebi = 1 << 20;

Shape volume(std::int64_t batch, std::int64_t extent) { return {batch, extent, extent, extent, 4}; }

Description describe_hybrid(std::int64_t extent, const DescribeOptions& options = {}, bool batch_norm = false) {
  CosmoFlow net({.batch_norm = batch_norm});
  return describe(net, volume(options.grid.sample, extent), options);
}

// ---- messages between the ranks of a grid in the hybrid variant, calculated from the definition of a window

constexpr std::int64_t owner_shift = 1;  // every window is 3 wide and its output belongs to the owner of its centre

struct Stage {
  std::int64_t channels, stride;
};

struct AxisStage {
  std::vector<std::int64_t> need, own;  // numbers of inputs of each rank: needed, and both needed and owned
};

// Seven convolutions, each with its pooling.
std::vector<Stage> hybrid_stages() {
  const std::array<std::int64_t, 8> channels{4, 16, 32, 64, 128, 256, 256, 256};
  std::vector<Stage> stages;
  for (std::size_t i = 0; i < 7; ++i) {
    stages.push_back({channels[i], i == 3 ? 2 : 1});
    stages.push_back({channels[i + 1], 2});
  }
  return stages;
}

// The inputs, of n, that outputs [first, last) read.
struct Read {
  std::int64_t begin = 0, end = 0;
};
Read inputs_of(const Stage& stage, std::int64_t n, std::int64_t first, std::int64_t last) {
  if (first >= last) return {};
  return {std::clamp<std::int64_t>(first * stage.stride - 1, 0, n),
          std::clamp<std::int64_t>((last - 1) * stage.stride + 2, 0, n)};
}

// One axis of 512 cells over `ranks`; at the end 2 cells are left, whose numbers per rank are in `rest`. `merged`: one exchange
// serves the first convolution and its pooling; all other layers have one exchange each.
std::vector<AxisStage> axis_stages(int ranks, bool merged, std::vector<std::int64_t>& rest) {
  const auto stages = hybrid_stages();
  std::vector<std::vector<std::int64_t>> cuts{balanced_cuts(512, ranks)};
  for (const auto& stage : stages) {
    const auto& before = cuts.back();
    const std::int64_t n = before.back(), outputs = (n - 1) / stage.stride + 1;
    std::vector<std::int64_t> next{0};
    std::int64_t o = 0;
    for (int r = 0; r < ranks; ++r) {
      while (o < outputs &&
             std::clamp<std::int64_t>(o * stage.stride - 1 + owner_shift, 0, n - 1) < before[static_cast<std::size_t>(r) + 1])
        ++o;
      next.push_back(o);
    }
    cuts.push_back(next);
  }
  std::vector<AxisStage> result;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    AxisStage axis;
    for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r) {
      Read made{cuts[s + 1][r], cuts[s + 1][r + 1]};
      if (merged && s == 0) made = inputs_of(stages[1], cuts[1].back(), cuts[2][r], cuts[2][r + 1]);
      const auto read = inputs_of(stages[s], cuts[s].back(), made.begin, made.end);
      const auto own = std::max<std::int64_t>(0, std::min(read.end, cuts[s][r + 1]) - std::max(read.begin, cuts[s][r]));
      axis.need.push_back(merged && s == 1 ? own : read.end - read.begin), axis.own.push_back(own);
    }
    result.push_back(std::move(axis));
  }
  CHECK(cuts.back().back() == 2);
  for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r) rest.push_back(cuts.back()[r + 1] - cuts.back()[r]);
  return result;
}

struct Prediction {
  std::array<std::vector<AxisStage>, 3> axes;
  std::array<std::vector<std::int64_t>, 3> rest;
  std::int64_t samples;  // samples of a group of ranks

  Prediction(const GridExtents& g, std::int64_t batch, bool merged) : samples(batch / g.sample) {
    axes[0] = axis_stages(g.depth, merged, rest[0]);
    axes[1] = axis_stages(g.height, merged, rest[1]);
    axes[2] = axis_stages(g.width, merged, rest[2]);
  }
  // Bytes that the rank at (d, h, w) receives in a forward pass.
  std::int64_t received(const std::array<std::size_t, 3>& at) const {
    const auto stages = hybrid_stages();
    std::int64_t elements = 0;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      std::int64_t need = 1, own = 1;
      for (std::size_t a = 0; a < 3; ++a) need *= axes[a][s].need[at[a]], own *= axes[a][s].own[at[a]];
      elements += stages[s].channels * (need - own);
    }
    std::int64_t mine = 1;
    for (std::size_t a = 0; a < 3; ++a) mine *= rest[a][at[a]];
    elements += 256 * (8 - mine);  // the flatten: all ranks get all features
    return elements * samples * 4;
  }
};

// ---- dry training steps

struct DryStep {
  std::vector<DryRecord> log;
  std::size_t forward = 0;  // number of records in the forward pass
};

DryStep dry_step(CosmoFlow& net, const GridExtents& extents, std::int64_t batch, int rank, int ranks) {
  UseDevice dry(DeviceKind::dry);
  const auto log = std::make_shared<std::vector<DryRecord>>();
  const auto grid = make_grid(Communicator(dry_world(rank, ranks, log)), extents);
  const auto layout = activation_layout(grid, volume(batch, 512));
  const auto targets = split_layout(grid, {batch, 4}, {0, -1, -1, -1});
  const auto x = constant(Tensor({layout->box().extents(), DType::float32}).with_layout(layout));
  const auto y = constant(Tensor({targets->box().extents(), DType::float32}).with_layout(targets));
  Tape tape(net);
  const auto loss = mse(net(x), y);
  const auto forward = log->size();
  tape.gradient(loss);
  return {std::move(*log), forward};
}

// A key of a message that both ends compute.
std::uint64_t message_key(int from, int to, const DryRecord& record) {
  std::uint64_t key = 14695981039346656037ULL;
  for (const auto part : {static_cast<std::uint64_t>(from), static_cast<std::uint64_t>(to),
                          static_cast<std::uint64_t>(record.tag), static_cast<std::uint64_t>(record.bytes), record.members}) {
    key = (key ^ part) * 0x9E3779B97F4A7C15ULL;
    key ^= key >> 29;
  }
  return key;
}

// Sends and receives of many ranks, and the order of collective calls of every group.
class Ledger {
 public:
  template <class Inside>
  void add(int rank, const std::vector<DryRecord>& log, const Inside& inside) {
    std::map<std::uint64_t, std::uint64_t> calls;
    for (const auto& record : log) {
      if (record.what == DryRecord::What::send) {
        if (inside(record.peer)) sends_.push_back(message_key(rank, record.peer, record));
      } else if (record.what == DryRecord::What::receive) {
        if (inside(record.peer)) receives_.push_back(message_key(record.peer, rank, record));
      } else {
        auto& hash = calls[record.members];
        hash = fnv1a(hash, record.name());
        // Allreduce needs equal counts on all ranks; the other collectives do not.
        if (record.kind == CollectiveKind::allreduce) hash = fnv1a(hash, static_cast<std::uint64_t>(record.bytes));
      }
    }
    for (const auto& [members, hash] : calls) {
      const auto [entry, fresh] = calls_.emplace(members, hash);
      differing_ += !fresh && entry->second != hash;
    }
  }
  std::size_t messages() const { return sends_.size(); }
  int differing() const { return differing_; }
  bool matched() {
    std::sort(sends_.begin(), sends_.end());
    std::sort(receives_.begin(), receives_.end());
    return sends_ == receives_;
  }

 private:
  std::vector<std::uint64_t> sends_, receives_;
  std::map<std::uint64_t, std::uint64_t> calls_;
  int differing_ = 0;
};

std::int64_t received_bytes(const DryStep& step) {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < step.forward; ++i)
    if (step.log[i].what == DryRecord::What::receive) bytes += step.log[i].bytes;
  return bytes;
}

std::array<std::size_t, 3> place(const GridExtents& g, int rank) {
  const int spatial = rank % (g.depth * g.height * g.width);
  return {static_cast<std::size_t>(spatial / (g.height * g.width)), static_cast<std::size_t>(spatial / g.width % g.height),
          static_cast<std::size_t>(spatial % g.width)};
}

// Checks all ranks of a grid.
void check_all_ranks(const GridExtents& g, std::int64_t batch) {
  const int ranks = g.sample * g.depth * g.height * g.width;
  CosmoFlow net({.batch_norm = true});
  net.build(volume(1, 512), {.device = DeviceKind::dry});
  const Prediction prediction(g, batch, false);  // not merged: a norm lies between
  Ledger ledger;
  int wrong = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto step = dry_step(net, g, batch, rank, ranks);
    wrong += received_bytes(step) != prediction.received(place(g, rank));
    ledger.add(rank, step.log, [](int) { return true; });
  }
  CHECK(wrong == 0);
  CHECK(ledger.messages() > static_cast<std::size_t>(ranks));
  CHECK(ledger.matched());
  CHECK(ledger.differing() == 0);
}

}  // namespace

TEST_CASE("CosmoFlow's table is the published one") {
  const std::map<std::int64_t, std::array<double, 2>> published{{128, {55.6, 0.824}}, {256, {443.8, 6.59}}, {512, {3550, 52.7}}};
  for (const auto& entry : published) {
    const auto extent = entry.first;
    const auto& numbers = entry.second;
    CAPTURE(extent);
    const auto d = describe_hybrid(extent);
    CHECK(d.parameters == 9437636);
    // Published: the backward pass costs twice the forward pass, including the input's gradient.
    CHECK(std::abs(3 * d.forward_gflop / numbers[0] - 1) < 0.002);
    // Published: each result and its error signal; activations count separately from their convolutions, the input counts twice.
    double elements = 2 * static_cast<double>(d.input.elements());
    double first = 0;
    for (const auto& layer : d.layers) {
      elements += static_cast<double>(layer.out.elements()) * (layer.kind == "conv" ? 2 : 1);
      if (layer.name == "conv1") first = layer.gflop;
    }
    CHECK(std::abs(2 * 4 * elements / (1 << 30) / numbers[1] - 1) < 0.001);
    CHECK(d.backward_gflop == doctest::Approx(2 * d.forward_gflop - first).epsilon(0.02));
    CHECK(d.halo_bytes == 0);
    // A training step keeps the largest result or its cotangent, but only signs of the pooled results: less than all results
    // together, plus the parameters, their gradients and the optimizer's state.
    double largest = 0;
    for (const auto& layer : d.layers) largest = std::max(largest, static_cast<double>(layer.out.elements()));
    CHECK(static_cast<double>(d.peak_bytes) > 4 * largest);
    CHECK(static_cast<double>(d.peak_bytes) < static_cast<double>(d.activation_bytes) + 4.0 * 4 * 9437636);
  }
  CHECK(describe_hybrid(128, {}, true).parameters == 9439652);
  CosmoFlow mlperf({.variant = CosmoFlowVariant::mlperf});
  CHECK(describe(mlperf, volume(1, 128)).parameters == 8907556);

  const auto d = describe_hybrid(512);
  const std::map<std::string, double> forward{{"conv1", 463.9}, {"conv2", 463.9}, {"conv3", 231.9}, {"conv4", 14.5},
                                              {"conv5", 7.25},  {"conv6", 1.81},  {"conv7", 0.226}};
  for (const auto& layer : d.layers)
    if (const auto expected = forward.find(layer.name); expected != forward.end())
      CHECK(std::abs(layer.gflop / expected->second - 1) < 0.003);
}

TEST_CASE("a split in depth sends what it must") {
  const auto d = describe_hybrid(512, {.grid = {.depth = 4}});
  std::int64_t pools = 0, convolutions = 0, last_conv = 0;
  for (const auto& layer : d.layers) {
    (layer.kind == "conv" ? convolutions : pools) += layer.halo_bytes;
    // For both layers, two planes of the input to the right neighbour and one to the left: two separate exchanges would send 20
    // MiB.
    if (layer.name == "conv1") CHECK(layer.halo_bytes == 3 * 4 * mebi);
    if (layer.name == "pool1") CHECK(layer.halo_bytes == 0);
    if (layer.name == "conv7") last_conv = layer.halo_bytes;
  }
  CHECK(last_conv == 2 * 4 * 4 * 256 * 4);
  // One plane of every layer's input goes to the right neighbour, about 40 MiB; the first block saves 12 of them.
  const double neighbour = static_cast<double>(convolutions - 12 * mebi) / 2 + 8 * mebi + static_cast<double>(pools);
  CHECK(neighbour / mebi == doctest::Approx(28).epsilon(0.02));
  // Each rank holds a quarter.
  CHECK(d.activation_bytes < describe_hybrid(512).activation_bytes * 26 / 100);
  CHECK(to_string(d).find("9437636 parameters") != std::string::npos);
  CHECK(!error_text([] { describe_hybrid(100); }).empty());
  CHECK(!error_text([] { describe_hybrid(128, {.grid = {.depth = 0}}); }).empty());
}

TEST_CASE("CosmoFlow at 512^3 on 2,048 ranks, samples and space: every send has its receive") {
  check_all_ranks({.sample = 32, .depth = 4, .height = 4, .width = 4}, 64);
}

TEST_CASE("CosmoFlow at 512^3 on 2,048 ranks, uneven blocks: every send has its receive") {
  check_all_ranks({.sample = 1, .depth = 16, .height = 16, .width = 8}, 1);
}

TEST_CASE("CosmoFlow at 512^3 on 15,000 ranks: a sample of them agrees") {
  const GridExtents g{.depth = 25, .height = 25, .width = 24};
  const int ranks = g.depth * g.height * g.width;
  std::vector<int> sample;
  // Neighbours at the border between longer and shorter blocks, and the far corner.
  for (int d = 11; d < 14; ++d)
    for (int h = 11; h < 14; ++h)
      for (int w = 7; w < 10; ++w) sample.push_back((d * g.height + h) * g.width + w);
  for (int d = 23; d < 25; ++d)
    for (int h = 23; h < 25; ++h)
      for (int w = 22; w < 24; ++w) sample.push_back((d * g.height + h) * g.width + w);
  CosmoFlow net;
  net.build(volume(1, 512), {.device = DeviceKind::dry});
  const Prediction prediction(g, 1, true);
  Ledger ledger;
  for (const int rank : sample) {
    const auto step = dry_step(net, g, 1, rank, ranks);
    CHECK(received_bytes(step) == prediction.received(place(g, rank)));
    ledger.add(rank, step.log, [&](int peer) { return std::find(sample.begin(), sample.end(), peer) != sample.end(); });
  }
  CHECK(ledger.messages() > 1000);
  CHECK(ledger.matched());
  CHECK(ledger.differing() == 0);
}

TEST_CASE("describe: layers on grids of their own, blocks of weights") {
  // On two ranks, from halves of the depth to samples and back: each rank sends the half of its data that belongs to the other.
  CosmoFlow net;
  const auto own = describe(net, volume(2, 512), {.grid = {.depth = 2}, .grids = {{"conv2", {.sample = 2}}}});
  for (const auto& layer : own.layers) {
    CAPTURE(layer.name);
    const std::int64_t expected = layer.name == "conv2"   ? 256 * 256 * 256 * 16 * 2
                                  : layer.name == "conv3" ? 128 * 128 * 128 * 32 * 2
                                                          : 0;
    CHECK(layer.moved_bytes == expected);
    CHECK((layer.name != "conv2" || layer.halo_bytes == 0));
  }
  CHECK(own.moved_bytes == (256 * 256 * 256 * 16 + 128 * 128 * 128 * 32) * 2);
  CHECK(to_string(own).find("redistributed") != std::string::npos);

  // Weights in blocks, by filters or in parts: a quarter of the state, and gradients that are not reduced whole.
  const auto adam = [](Parameters& parameters) { return std::make_unique<Adam>(parameters); };
  const auto described = [&](const DescribeOptions& options) {
    CosmoFlow fresh;
    auto all = options;
    all.optimizer = adam;
    return describe(fresh, volume(4, 64), all);
  };
  const auto one = described({});
  const auto samples = described({.grid = {.sample = 4}});
  const auto filters = described({.grid = {.channel = 4}});
  const auto channels = described({.grid = {.channel = 4}, .split = {ChannelSplit::channels, "channel", true}});
  const auto both = described({.grid = {.channel = 2, .filter = 2}});
  const auto parts = described({.grid = {.sample = 4}, .sharded_weights = true});
  CHECK(samples.reduced_bytes == 4 * samples.parameters);
  CHECK(samples.collective_bytes == 0);
  // Replicated weights have divided state.
  CHECK(static_cast<double>(samples.optimizer_bytes) ==
        doctest::Approx(static_cast<double>(one.optimizer_bytes) / 4).epsilon(0.01));
  CHECK(samples.gathered_bytes > samples.parameters * 4 / 5);
  CHECK(to_string(samples).find("each of 4 ranks updates a part of the weights") != std::string::npos);
  CHECK(to_string(both).find("every rank updates all of its weights: less than 1 MiB of state could be divided") !=
        std::string::npos);
  for (const auto& split : {filters, channels, both, parts}) {
    CHECK(split.parameters == samples.parameters);
    CHECK(static_cast<double>(split.optimizer_bytes) ==
          doctest::Approx(static_cast<double>(one.optimizer_bytes) / 4).epsilon(0.01));
    CHECK(split.collective_bytes > 0);
    CHECK(split.peak_bytes < one.peak_bytes);
  }
  CHECK(parts.peak_bytes < samples.peak_bytes);
}

TEST_CASE("describe: a layer with parameters of its own is built as for a training") {
  struct Scale : nn::Module {
    using nn::Module::Module;
    Tensor operator()(const Tensor& x) override { return x * parameter("factor", {x.dim(-1)}, nn::constant_value(1)); }
  };
  struct Scaled : nn::Module {
    Tensor operator()(const Tensor& x) override { return scale(conv(x)); }
    nn::Conv3d conv{*this, "conv", {.out = 3, .kernel = 3, .padding = 1}};
    Scale scale{*this, "scale"};
  };
  for (const GridExtents& grid : {GridExtents{}, GridExtents{.sample = 2}, GridExtents{.depth = 2}}) {
    Scaled net;
    const auto described = describe(net, {2, 8, 8, 8, 1}, {.grid = grid});
    CHECK(described.parameters == 27 * 3 + 3 + 3);
    CHECK(described.reduced_bytes == (ranks_of(grid) == 1 ? 0 : 4 * described.parameters));
  }
}
