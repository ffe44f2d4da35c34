// Traffic of AlexNet's layers for all splits that Gholami et al. 2018 (SPAA, "Integrated model, batch, and domain parallelism")
// compare, laid out on the dry device: closed formulas for this library, which equal the transport's counts, and the published
// equations for comparison.
//
// Counted are elements sent by all ranks together. Differences between this library and the equations:
//   - the adjoint of a gather is a reduce_scatter, while (3) and (8) sum the input's gradient on all ranks: 2 instead of 3;
//   - a layer's input is gathered, after the pooling, not its output before the pooling;
//   - the first layer's input needs no gradient, and the last layer, whose result is replicated, sums its outputs;
//   - features of the first linear layer are not cut like channels: there the factor is 3;
//   - (7) takes half a kernel from one neighbour, forward; windows of stride 4 take other numbers, from both; pools take some.

#include <doctest/doctest.h>

#include <cmath>

#include "models/nn/sequential.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "tests/support/traffic.h"

using namespace mpigrad;
using namespace mpigrad::testing;

namespace {

// Krizhevsky 2012, without groups and local response normalisation.
struct AlexNet : nn::Sequential {
  AlexNet() {
    const auto relu = Activation::relu;
    const Triple stride{1, 2, 2}, window{1, 3, 3};
    const auto conv = [&](const char* name, std::int64_t out, std::int64_t kernel, std::int64_t step, std::int64_t padding) {
      add<nn::Conv3d>(name, {.out = out,
                             .kernel = {1, kernel, kernel},
                             .stride = {1, step, step},
                             .padding = {0, padding, padding},
                             .activation = relu});
    };
    conv("conv1", 96, 11, 4, 0);
    add<nn::MaxPool3d>("pool1", {.kernel = window, .stride = stride});
    conv("conv2", 256, 5, 1, 2);
    add<nn::MaxPool3d>("pool2", {.kernel = window, .stride = stride});
    conv("conv3", 384, 3, 1, 1);
    conv("conv4", 384, 3, 1, 1);
    conv("conv5", 256, 3, 1, 1);
    add<nn::MaxPool3d>("pool5", {.kernel = window, .stride = stride});
    add<nn::Flatten>("flatten");
    add<nn::Linear>("linear6", {.out = 4096, .activation = relu});
    add<nn::Linear>("linear7", {.out = 4096, .activation = relu});
    add<nn::Linear>("linear8", {.out = 1000, .whole = true});
  }
};

// A layer with windows: outputs and extents of one sample, and the windows of its rows.
struct Windows {
  std::int64_t in, out, channels, filters, kernel, stride, padding;
  bool pool = false;
};
constexpr Windows windows[] = {{227, 55, 3, 96, 11, 4, 0},        {55, 27, 96, 96, 3, 2, 0, true}, {27, 27, 96, 256, 5, 1, 2},
                               {27, 13, 256, 256, 3, 2, 0, true}, {13, 13, 256, 384, 3, 1, 1},     {13, 13, 384, 384, 3, 1, 1},
                               {13, 13, 384, 256, 3, 1, 1},       {13, 6, 256, 256, 3, 2, 0, true}};
constexpr std::int64_t features[] = {9216, 4096, 4096, 1000};

std::int64_t weights_of(const Windows& w) { return w.pool ? 0 : w.kernel * w.kernel * w.channels * w.filters; }
std::int64_t places(std::int64_t extent) { return extent * extent; }

// Weights and biases of the convolutions; weights of the linear layers.
std::int64_t conv_parameters() {
  std::int64_t sum = 0;
  for (const auto& w : windows) sum += w.pool ? 0 : weights_of(w) + w.filters;
  return sum;
}
std::int64_t linear_weights() {
  std::int64_t sum = 0;
  for (int i = 0; i < 3; ++i) sum += features[i] * features[i + 1];
  return sum;
}
constexpr std::int64_t linear_biases = 4096 + 4096 + 1000;

// Rows that all ranks receive from others, for a volume whose rows are cut at `cuts`; sets `cuts` to those of the result. The
// owner of the middle row of a window computes its output.
std::int64_t halo_rows(const Windows& w, std::vector<std::int64_t>& cuts) {
  std::vector<std::int64_t> made{0};
  for (std::size_t r = 1; r < cuts.size(); ++r) {
    auto o = made.back();
    while (o < w.out && std::clamp<std::int64_t>(o * w.stride - w.padding + (w.kernel - 1) / 2, 0, w.in - 1) < cuts[r]) ++o;
    made.push_back(o);
  }
  std::int64_t rows = 0;
  for (std::size_t r = 1; r < cuts.size(); ++r) {
    if (made[r] == made[r - 1]) continue;
    const auto begin = std::max<std::int64_t>(0, made[r - 1] * w.stride - w.padding);
    const auto end = std::min(w.in, (made[r] - 1) * w.stride - w.padding + w.kernel);
    rows += (end - begin) - std::max<std::int64_t>(0, std::min(end, cuts[r]) - std::max(begin, cuts[r - 1]));
  }
  cuts = made;
  return rows;
}

struct Sent {
  std::int64_t messages = 0, gathered = 0, scattered = 0, reduced = 0;
  bool operator==(const Sent&) const = default;
  std::int64_t all() const { return messages + gathered + scattered + reduced; }
};
std::ostream& operator<<(std::ostream& out, const Sent& s) {
  return out << "messages " << s.messages << ", gathered " << s.gathered << ", scattered " << s.scattered << ", reduced "
             << s.reduced;
}

// Traffic of one training step on a batch, by all ranks together.
Sent sent(std::int64_t batch, const GridExtents& extents, const std::vector<std::pair<std::string, GridExtents>>& own = {}) {
  Traffic traffic{.type = DType::float32};
  const int ranks = ranks_of(extents);
  const UseDevice dry(DeviceKind::dry);
  for (int rank = 0; rank < ranks; ++rank) {
    const Sent before{traffic.messages, traffic.gathered, traffic.scattered, traffic.reduced};
    const Communicator world(std::make_shared<CountingTransport>(dry_world(rank, ranks, nullptr), traffic));
    const auto grid = make_grid(world, extents);
    AlexNet net;
    nn::BuildOptions options{.device = DeviceKind::dry};
    for (const auto& [layers, e] : own) options.grids.push_back({layers, make_grid(world, e)});
    const auto layout = input_layout(grid, {batch, 1, 227, 227, 3});
    net.build(layout, options);  // lays the network out once, which is counted, too
    traffic.messages = before.messages, traffic.gathered = before.gathered, traffic.scattered = before.scattered,
    traffic.reduced = before.reduced;
    const auto x = constant(Tensor({layout->box().extents(), DType::float32}).with_layout(layout));
    Tape tape(net);
    (void)tape.gradient(sum(net(x)));
  }
  CHECK(traffic.other == 0);
  return {traffic.messages, traffic.gathered, traffic.scattered, traffic.reduced};
}

// ---- formulas of this library

// Layers with filters split among `pr` ranks, for a batch: convolutions, then linear layers.
Sent model_convs(std::int64_t batch, int pr) {
  Sent s;
  for (const auto& w : windows)
    if (!w.pool && &w != windows) s.gathered += batch * places(w.in) * w.channels * (pr - 1);
  s.scattered = s.gathered;
  return s;
}
Sent model_linears(std::int64_t batch, int pr) {
  const auto n = batch * (pr - 1);
  return {n * features[0], n * features[1], n * features[1], 2 * n * (features[0] + features[3])};
}
// Halos forward and, except for the first layer's, backward; then the blocks are gathered.
Sent domain_convs(std::int64_t batch, int pr) {
  Sent s;
  auto cuts = balanced_cuts(227, pr);
  for (const auto& w : windows) s.messages += batch * halo_rows(w, cuts) * w.in * w.channels * (&w == windows ? 1 : 2);
  return s;
}

Sent operator+(const Sent& a, const Sent& b) {
  return {a.messages + b.messages, a.gathered + b.gathered, a.scattered + b.scattered, a.reduced + b.reduced};
}
// An allreduce of n elements on p ranks.
Sent all_reduced(std::int64_t n, int p) { return {0, 0, 0, 2 * n * (p - 1)}; }

// ---- the equations, in elements of all ranks

double outputs() {  // d_i of all layers
  double sum = 0;
  for (const auto& w : windows) sum += w.pool ? 0 : static_cast<double>(places(w.out) * w.filters);
  return sum + 4096 + 4096 + 1000;
}
double all_weights() {
  double sum = static_cast<double>(linear_weights());
  for (const auto& w : windows) sum += static_cast<double>(weights_of(w));
  return sum;
}
double equation_3(double batch, int p) { return 3 * batch * (p - 1) * outputs(); }
double equation_4(int p) { return 2.0 * (p - 1) * all_weights(); }
double equation_8(double batch, int pr, int pc) { return 3 * batch * (pr - 1) * outputs() + 2.0 * (pc - 1) * all_weights(); }
// With only the height split: the first sum of (7) and the reduction of weights.
double equation_7(double batch, int p, double weights) {
  double halos = 0;
  for (const auto& w : windows) halos += w.pool ? 0 : batch * p * static_cast<double>(w.in * w.channels * (w.kernel / 2));
  return halos + 2.0 * (p - 1) * weights;
}

}  // namespace

TEST_CASE("parallel schemes: AlexNet's parameters") {
  AlexNet net;
  net.build(Shape{1, 1, 227, 227, 3}, {.device = DeviceKind::dry});
  CHECK(net.parameters().elements() == conv_parameters() + linear_weights() + linear_biases);
  CHECK(net.parameters().elements() == 62378344);
}

TEST_CASE("parallel schemes: what AlexNet sends is the formula of what runs, beside the equations") {
  const auto linear_parameters = linear_weights() + linear_biases;
  for (const std::int64_t batch : {16, 21})
    for (const int p : {4, 6, 8}) {
      CAPTURE(batch);
      CAPTURE(p);
      // (4) batches. The equation ignores biases.
      const auto batches = sent(batch, {.sample = p});
      CHECK(batches == all_reduced(conv_parameters() + linear_parameters, p));
      CHECK(static_cast<double>(batches.all()) == equation_4(p) + 2.0 * (p - 1) * (96 + 256 + 384 + 384 + 256 + linear_biases));

      // (3) models.
      const auto model = sent(batch, {.channel = p});
      CHECK(model == model_convs(batch, p) + model_linears(batch, p));
      const double printed = equation_3(static_cast<double>(batch), p);
      double named = static_cast<double>(batch * (p - 1)) * 3 * outputs();
      // First and last layers, the sizes after pooling, and 2 instead of 3.
      for (std::size_t i = 0; i < std::size(windows); ++i)
        if (const auto& w = windows[i]; !w.pool) {
          const bool last = i == 6, pooled = i == 0 || i == 2 || i == 6;
          const auto behind = static_cast<double>((pooled ? places(windows[i + 1].out) : places(w.out)) * w.filters);
          named -= static_cast<double>(batch * (p - 1)) *
                   (3 * static_cast<double>(places(w.out) * w.filters) - (last ? 3 : 2) * behind);
        }
      named -= static_cast<double>(batch * (p - 1)) * (3 * 4096 - 2 * 4096);  // linear7's input
      named -= static_cast<double>(batch * (p - 1)) * 3 * 4096;               // linear8's, which is not gathered
      named -= static_cast<double>(batch * (p - 1)) * 1000;                   // its outputs, which are summed
      CHECK(static_cast<double>(model.all()) == named);
      CHECK(printed > static_cast<double>(model.all()));

      // (7) domains, for the convolutions; the linear layers are replicated and need no reduction.
      const auto domain = sent(batch, {.height = p});
      const auto features_together = Sent{batch * features[0] * (p - 1), 0, 0, 0};
      CHECK(domain == domain_convs(batch, p) + features_together + all_reduced(conv_parameters(), p));
      double conv_weights = 0;
      for (const auto& w : windows) conv_weights += static_cast<double>(weights_of(w));
      const auto halos = static_cast<double>(domain_convs(batch, p).all());
      const auto printed_halos = equation_7(static_cast<double>(batch), p, conv_weights) - 2.0 * (p - 1) * conv_weights;
      CHECK(halos > 0.3 * printed_halos);
      CHECK(halos < 5 * printed_halos);
    }
}

TEST_CASE("parallel schemes: batches beside models, and domains before them") {
  const std::int64_t batch = 21;
  const auto weights = conv_parameters() + linear_weights() + linear_biases - 1000;  // in blocks; linear8's bias is replicated
  for (const auto& [pr, pc] : std::vector<std::pair<int, int>>{{2, 2}, {2, 3}, {3, 2}, {2, 4}, {4, 2}}) {
    CAPTURE(pr);
    CAPTURE(pc);
    // (8): each of pc groups has its part of the batch, and each block of weights is reduced among pc ranks.
    const auto both = sent(batch, {.sample = pc, .channel = pr});
    CHECK(both == model_convs(batch, pr) + model_linears(batch, pr) + all_reduced(weights + 1000 * pr, pc));
    CHECK(static_cast<double>(both.all()) < equation_8(static_cast<double>(batch), pr, pc));
    // (9): the convolutions' volumes are split, and the linear layers' filters.
    const auto integrated = sent(batch, {.sample = pc, .height = pr}, {{"linear6-8", {.sample = pc, .channel = pr}}});
    CHECK(integrated == domain_convs(batch, pr) + model_linears(batch, pr) + all_reduced(conv_parameters(), pr * pc) +
                            all_reduced(linear_weights() + 8192 + 1000 * pr, pc));
  }
}
