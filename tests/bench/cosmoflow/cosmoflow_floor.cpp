#include "tests/bench/cosmoflow/cosmoflow_floor.h"

#include <algorithm>
#include <chrono>
#include <functional>

#include "tests/bench/bare_primitives.h"

namespace mpigrad::bench {

namespace {

// An action to time, and the place of its median (added up: a reorder has two actions).
struct Action {
  std::function<void()> run;
  std::size_t layer = 0;
  double FloorLayer::*place = nullptr;  // null: the optimizer
  std::vector<double> seconds{};
};

}  // namespace

// One training step: forward actions in order, backward ones in the reverse order of layers.
class CosmoFlowFloor::Step {
 public:
  void convolution(const std::string& name, std::int64_t out_channels, std::int64_t stride) {
    const std::int64_t out = (width_ + stride - 1) / stride;
    const cpu::ConvProblem p{.batch = 1,
                             .in = {width_, width_, width_},
                             .out = {out, out, out},
                             .kernel = {3, 3, 3},
                             .stride = {stride, stride, stride},
                             .pad_low = {1, 1, 1},
                             .in_channels = channels_,
                             .out_channels = out_channels};
    const auto forward = dn::convolution(p);
    const auto data = dn::convolution_data(p);
    const auto weight = dn::convolution_weights(p);
    require(forward && data && weight, "[bench] oneDNN refuses a convolution of CosmoFlow");
    const dnnl::memory plain = filled(dn::weights(p, true)), own = filled(forward.weights_desc());
    const dnnl::memory gradient = filled(weight.diff_weights_desc()), plain_gradient = filled(dn::weights(p, true));
    const dnnl::memory y = filled(forward.dst_desc()), gy = filled(forward.dst_desc());
    const std::size_t layer = add_layer(name, 2.0 * 27 * static_cast<double>(out * out * out * channels_ * out_channels));
    floor_.layers[layer].implementations =
        fmt::format("{} | {} | {}", forward.impl_info_str(), data.impl_info_str(), weight.impl_info_str());
    floor_.parameters += 27 * channels_ * out_channels;
    add_forward(layer, &FloorLayer::reorder, reorder(plain, own));
    add_forward(layer, &FloorLayer::forward,
                bound<dnnl::convolution_forward>(forward, {{DNNL_ARG_SRC, x_}, {DNNL_ARG_WEIGHTS, own}, {DNNL_ARG_DST, y}}));
    // Backward actions are listed in reverse order.
    if (gx_)
      add_backward(
          layer, &FloorLayer::data,
          bound<dnnl::convolution_backward_data>(
              data, {{DNNL_ARG_DIFF_DST, gy}, {DNNL_ARG_WEIGHTS, filled(data.weights_desc())}, {DNNL_ARG_DIFF_SRC, gx_}}));
    add_backward(layer, &FloorLayer::reorder, reorder(gradient, plain_gradient));
    add_backward(layer, &FloorLayer::weight,
                 bound<dnnl::convolution_backward_weights>(
                     weight, {{DNNL_ARG_SRC, x_}, {DNNL_ARG_DIFF_DST, gy}, {DNNL_ARG_DIFF_WEIGHTS, gradient}}));
    x_ = y, gx_ = gy, width_ = out, channels_ = out_channels;
  }

  void pool(const std::string& name) {
    const std::int64_t out = (width_ + 1) / 2;
    const cpu::PoolProblem p{.batch = 1,
                             .in = {width_, width_, width_},
                             .out = {out, out, out},
                             .kernel = {3, 3, 3},
                             .stride = {2, 2, 2},
                             .pad_low = {1, 1, 1},
                             .channels = channels_};
    const auto forward = dn::pooling(p);
    const auto backward = dn::pooling_adjoint(p);
    require(forward && backward, "[bench] oneDNN refuses a pooling of CosmoFlow");
    const dnnl::memory y = filled(forward.dst_desc()), gy = filled(forward.dst_desc());
    const std::size_t layer = add_layer(name, 27.0 * static_cast<double>(out * out * out * channels_));
    floor_.layers[layer].implementations = fmt::format("{} | {}", forward.impl_info_str(), backward.impl_info_str());
    add_forward(layer, &FloorLayer::forward, bound<dnnl::pooling_forward>(forward, {{DNNL_ARG_SRC, x_}, {DNNL_ARG_DST, y}}));
    add_backward(layer, &FloorLayer::data,
                 bound<dnnl::pooling_backward>(backward, {{DNNL_ARG_DIFF_DST, gy}, {DNNL_ARG_DIFF_SRC, gx_}}));
    x_ = y, gx_ = gy, width_ = out;
  }

  // y [1, n] = x [1, k] w^T, w: [n, k]. Uses oneDNN's sgemm in the plain layout: its matmul primitive is slower, and reorders of
  // the largest weights would cost more than the products.
  void fully_connected(const std::string& name, std::int64_t n) {
    const std::int64_t k = channels_ * width_ * width_ * width_;
    const dnnl::memory w = filled(dn::vector(n * k)), gw = filled(dn::vector(n * k));
    const dnnl::memory y = filled(dn::vector(n)), gy = filled(dn::vector(n));
    const std::size_t layer = add_layer(name, 2.0 * static_cast<double>(n * k));
    floor_.layers[layer].implementations = "sgemm | sgemm | sgemm";
    floor_.parameters += n * k + n;
    add_forward(layer, &FloorLayer::forward, sgemm('N', 'T', 1, n, k, x_, w, y));
    add_backward(layer, &FloorLayer::data, sgemm('N', 'N', 1, k, n, gy, w, gx_));
    add_backward(layer, &FloorLayer::weight, sgemm('T', 'N', n, k, 1, gy, x_, gw));
    x_ = y, gx_ = gy, width_ = 1, channels_ = n;
  }

  void optimizer() {
    actions_.insert(actions_.end(), backward_.rbegin(), backward_.rend());
    backward_.clear();
    actions_.push_back({.run = optimizer_pass(floor_.parameters)});
  }

  void start(std::int64_t width, std::int64_t channels) {
    width_ = width, channels_ = channels;
    x_ = filled(dn::activation(1, channels, {width, width, width}));
  }

  std::int64_t width() const { return width_; }

  void run(bool count) {
    for (Action& action : actions_) {
      const auto start = std::chrono::steady_clock::now();
      action.run();
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
      if (count) action.seconds.push_back(elapsed.count());
    }
  }

  Floor medians() const {
    Floor result = floor_;
    for (const Action& action : actions_) {
      auto seconds = action.seconds;
      require(!seconds.empty(), "[bench] no step of the floor counted");
      const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
      std::nth_element(seconds.begin(), middle, seconds.end());
      (action.place == nullptr ? result.optimizer : result.layers[action.layer].*action.place) += *middle;
    }
    return result;
  }

 private:
  std::size_t add_layer(const std::string& name, double flop) {
    floor_.layers.push_back({.name = name, .flop = flop, .implementations = {}});
    return floor_.layers.size() - 1;
  }
  void add_forward(std::size_t layer, double FloorLayer::*place, std::function<void()> run) {
    actions_.push_back({.run = std::move(run), .layer = layer, .place = place});
  }
  void add_backward(std::size_t layer, double FloorLayer::*place, std::function<void()> run) {
    backward_.push_back({.run = std::move(run), .layer = layer, .place = place});
  }
  Floor floor_;
  std::vector<Action> actions_, backward_;
  dnnl::memory x_, gx_;
  std::int64_t width_ = 0, channels_ = 0;
};

double Floor::total() const {
  double sum = optimizer;
  for (const FloorLayer& layer : layers) sum += layer.total();
  return sum;
}

CosmoFlowFloor::CosmoFlowFloor(std::int64_t width) : step_(std::make_unique<Step>()) {
  Step& step = *step_;
  step.start(width, 4);
  const std::vector<std::int64_t> channels{16, 32, 64, 128, 256, 256, 256};
  for (std::size_t i = 0; i < channels.size(); ++i) {
    const std::int64_t stride = i == 3 && step.width() > 4 ? 2 : 1;
    step.convolution(fmt::format("conv{}", i + 1), channels[i], stride);
    if (step.width() > 2) step.pool(fmt::format("pool{}", i + 1));
  }
  const std::vector<std::int64_t> features{2048, 256, 4};
  for (std::size_t i = 0; i < features.size(); ++i) step.fully_connected(fmt::format("fc{}", i + 1), features[i]);
  step.optimizer();
}
CosmoFlowFloor::~CosmoFlowFloor() = default;

void CosmoFlowFloor::step(bool count) { step_->run(count); }
Floor CosmoFlowFloor::medians() const { return step_->medians(); }

}  // namespace mpigrad::bench
