#include "tests/bench/unet/unet_floor.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

#include "framework/base/target_clones.h"
#include "framework/engine/cost.h"
#include "tests/bench/bare_primitives.h"

namespace mpigrad::bench {
namespace {

using cpu::ConvProblem;
using Run = std::function<void()>;

// ---- passes over memory

MPIGRAD_CLONES float read(const float* x, std::int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += x[i];
  return sum;
}
MPIGRAD_CLONES float read_both(const float* g, const float* x, std::int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += g[i] * x[i];
  return sum;
}
MPIGRAD_CLONES void write(float* y, std::int64_t n) { std::fill_n(y, n, 0.01F); }
MPIGRAD_CLONES void map(const float* x, float* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float z = 1.01F * x[i] + 0.001F;
    y[i] = z > 0 ? z : 0;
  }
}
MPIGRAD_CLONES void map_both(const float* g, const float* x, float* gx, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) gx[i] = 0.99F * (x[i] > 0 ? g[i] : 0) + 0.001F * x[i] + 0.001F;
}

// Calls f(begin, count) for each thread's part of n elements.
template <class F>
void in_parts(std::int64_t n, F f) {
#pragma omp parallel
  {
    const std::int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
    const std::int64_t begin = n * thread / threads, end = n * (thread + 1) / threads;
    f(begin, end - begin);
  }
}

// Keeps the sums, so that the compiler cannot remove their computation.
std::atomic<float> kept = 0;

Run norm_forward(const dnnl::memory& x, const dnnl::memory& y, std::int64_t n) {
  return [=] {
    in_parts(n, [&](std::int64_t begin, std::int64_t count) { kept = read(floats(x) + begin, count); });
    in_parts(n, [&](std::int64_t begin, std::int64_t count) { map(floats(x) + begin, floats(y) + begin, count); });
  };
}
Run norm_backward(const dnnl::memory& g, const dnnl::memory& x, const dnnl::memory& gx, std::int64_t n) {
  return [=] {
    in_parts(n, [&](std::int64_t begin, std::int64_t count) { kept = read_both(floats(g) + begin, floats(x) + begin, count); });
    in_parts(n, [&](std::int64_t begin, std::int64_t count) {
      map_both(floats(g) + begin, floats(x) + begin, floats(gx) + begin, count);
    });
  };
}
Run read_and_write(const dnnl::memory& x, std::int64_t read_elements, const dnnl::memory& y, std::int64_t written) {
  return [=] {
    in_parts(read_elements, [&](std::int64_t begin, std::int64_t count) { kept = read(floats(x) + begin, count); });
    in_parts(written, [&](std::int64_t begin, std::int64_t count) { write(floats(y) + begin, count); });
  };
}
// Joins rows of `first` and `second` elements, or splits them.
Run joined(const dnnl::memory& a, const dnnl::memory& b, const dnnl::memory& whole, std::int64_t rows, std::int64_t first,
           std::int64_t second, bool back) {
  return [=] {
    in_parts(rows, [&](std::int64_t begin, std::int64_t count) {
      float *as = floats(a) + begin * first, *bs = floats(b) + begin * second, *all = floats(whole) + begin * (first + second);
      for (std::int64_t i = 0; i < count; ++i, as += first, bs += second, all += first + second) {
        if (back) std::copy_n(all, first, as), std::copy_n(all + first, second, bs);
        else std::copy_n(as, first, all), std::copy_n(bs, second, all + first);
      }
    });
  };
}

// ---- layers, from the ops of the network

Extent3 extents(const Shape& x) { return {x[1], x[2], x[3]}; }

// Kernels of 3 have padding 1 and stride 1 or 2, those of 2 stride 2, those of 1 neither. x: [N, in, C], y: [N, out, K]
ConvProblem problem_of(const Shape& x, const Shape& w, const Shape& y) {
  ConvProblem p{.batch = x[0], .in = extents(x), .out = extents(y), .kernel = extents(w)};
  for (std::size_t a = 0; a < 3; ++a) {
    p.pad_low[a] = (p.kernel[a] - 1) / 2;
    p.stride[a] = p.kernel[a] == 2 ? 2 : (p.in[a] + p.out[a] - 1) / p.out[a];
  }
  p.in_channels = x[4], p.out_channels = y[4];
  return p;
}

// For so few cells oneDNN's kernels and the reorders of their weights are slow, and one of them is wrong (ops/backends/onednn).
bool few_cells(const ConvProblem& p) { return kernel::volume(p.out) <= 64; }

struct Product {
  Run run;
  dn::Desc weights{};  // in the primitive's own layout; empty: unchanged layout
};

double median_of(std::vector<double> values) {
  require(!values.empty(), "[bench] no step of the floor counted");
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

// One training step: forward actions in order, backward ones in the reverse order of layers.
class UNetFloor::Step {
 public:
  Step(const Shape& input, std::int64_t largest) {
    for (auto& gradient : gradients_) gradient = filled(dn::vector(largest));
    x_ = filled(dn::activation(input[0], input[4], extents(input)));
  }

  // y = w * x, or, transposed, its data product as a layer of its own. The image needs no gradient.
  void convolution(const ConvProblem& p, bool transposed) {
    const std::string kind = transposed ? "expand" : "conv";
    const auto in = dn::activation(p.batch, p.in_channels, p.in), out = dn::activation(p.batch, p.out_channels, p.out);
    const dnnl::memory y = filled(transposed ? in : out), gy = next_gradient(y.get_desc()), gx = gradient(x_.get_desc());
    const dnnl::memory columns = gathered(p);
    const Product forward = transposed ? data_product(p, x_, y, columns) : forward_product(p, x_, y, columns);
    const auto plain = dn::weights(p, true);
    if (forward.weights && forward.weights != plain) add_forward("reorder", reorder(filled(plain), filled(forward.weights)));
    add_forward(kind + " forward", forward.run);
    // Backward actions are listed in reverse order.
    if (!first_)
      add_backward(kind + " data", (transposed ? forward_product(p, gy, gx, columns) : data_product(p, gy, gx, columns)).run);
    const Product weight = transposed ? weight_product(p, gy, x_, columns) : weight_product(p, x_, gy, columns);
    if (weight.weights && weight.weights != plain) add_backward("reorder", reorder(filled(weight.weights), filled(plain)));
    add_backward(kind + " weight", weight.run);
    parameters_ += kernel::volume(p.kernel) * p.in_channels * p.out_channels;
    x_ = y, first_ = false, turn();
  }

  void norm(const Shape& shape) {
    const auto n = shape.elements();
    const dnnl::memory y = filled(x_.get_desc()), gy = next_gradient(y.get_desc()), gx = gradient(y.get_desc());
    add_forward("norm", norm_forward(x_, y, n));
    add_backward("norm", norm_backward(gy, x_, gx, n));
    x_ = y, turn();
  }

  void pool(const Shape& in, const Shape& out) {
    const dnnl::memory y = filled(dn::activation(out[0], out[4], extents(out)));
    const dnnl::memory gy = next_gradient(y.get_desc()), gx = gradient(x_.get_desc());
    add_forward("pool", read_and_write(x_, in.elements(), y, out.elements()));
    add_backward("pool", read_and_write(gy, out.elements(), gx, in.elements()));
    x_ = y, turn();
  }

  // The skip was written long before, and its gradient is read much later: any memory will do.
  void join(const Shape& wide, const Shape& skip) {
    const auto rows = wide.elements() / wide[4];
    const auto desc = [&](std::int64_t channels) { return dn::activation(wide[0], channels, extents(wide)); };
    const dnnl::memory other = filled(desc(skip[4])), y = filled(desc(wide[4] + skip[4]));
    const dnnl::memory gy = next_gradient(y.get_desc()), gx = gradient(x_.get_desc());
    add_forward("join", joined(x_, other, y, rows, wide[4], skip[4], false));
    add_backward("join", joined(gx, other, gy, rows, wide[4], skip[4], true));
    x_ = y, turn();
  }

  void finish() {
    actions_.insert(actions_.end(), backward_.rbegin(), backward_.rend());
    backward_.clear();
    actions_.push_back({"optimizer", optimizer_pass(parameters_)});
  }

  void run(bool count) {
    std::map<std::string, double> seconds;
    for (const Action& action : actions_) {
      const auto start = std::chrono::steady_clock::now();
      action.run();
      seconds[action.kind] += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    if (!count) return;
    double all = 0;
    for (const auto& [kind, of_kind] : seconds) seconds_[kind].push_back(of_kind), all += of_kind;
    totals_.push_back(all);
  }

  double median() const { return median_of(totals_); }
  std::map<std::string, double> medians_by_kind() const {
    std::map<std::string, double> result;
    for (const auto& [kind, seconds] : seconds_) result[kind] = median_of(seconds);
    return result;
  }

 private:
  struct Action {
    std::string kind;
    Run run;
  };

  void add_forward(const std::string& kind, Run run) { actions_.push_back({kind, std::move(run)}); }
  void add_backward(const std::string& kind, Run run) { backward_.push_back({kind, std::move(run)}); }

  // Gradients live only until the next layer: two blocks of memory alternate.
  dnnl::memory gradient(const dn::Desc& desc) const { return {desc, dn::engine(), floats(gradients_[turn_])}; }
  dnnl::memory next_gradient(const dn::Desc& desc) const { return {desc, dn::engine(), floats(gradients_[1 - turn_])}; }
  void turn() { turn_ = 1 - turn_; }

  // The matrix that the sgemm of a product reads or writes: [cells, taps x channels]. Empty if oneDNN does the whole product.
  static dnnl::memory gathered(const ConvProblem& p) {
    if (!few_cells(p) && optimised(dn::convolution(p)) && optimised(dn::convolution_data(p)) &&
        optimised(dn::convolution_weights(p)))
      return {};
    return filled(dn::vector(p.batch * kernel::volume(p.out) * kernel::volume(p.kernel) * p.in_channels));
  }

  static Product forward_product(const ConvProblem& p, const dnnl::memory& x, const dnnl::memory& y,
                                 const dnnl::memory& columns) {
    const auto primitive = dn::convolution(p);
    if (few_cells(p) || !optimised(primitive)) {
      const auto [rows, taps, out] = sizes(p);
      return {sgemm('N', 'T', rows, out, taps, columns, filled(dn::vector(out * taps)), y)};
    }
    const dnnl::memory w = filled(primitive.weights_desc());
    return {bound<dnnl::convolution_forward>(primitive, {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, w}, {DNNL_ARG_DST, y}}),
            primitive.weights_desc()};
  }
  static Product data_product(const ConvProblem& p, const dnnl::memory& g, const dnnl::memory& gx, const dnnl::memory& columns) {
    const auto primitive = dn::convolution_data(p);
    if (few_cells(p) || !optimised(primitive)) {
      const auto [rows, taps, out] = sizes(p);
      return {sgemm('N', 'N', rows, taps, out, g, filled(dn::vector(out * taps)), columns)};
    }
    const dnnl::memory w = filled(primitive.weights_desc());
    return {bound<dnnl::convolution_backward_data>(primitive,
                                                   {{DNNL_ARG_DIFF_DST, g}, {DNNL_ARG_WEIGHTS, w}, {DNNL_ARG_DIFF_SRC, gx}}),
            primitive.weights_desc()};
  }
  static Product weight_product(const ConvProblem& p, const dnnl::memory& x, const dnnl::memory& g, const dnnl::memory& columns) {
    const auto primitive = dn::convolution_weights(p);
    if (few_cells(p) || !optimised(primitive)) {
      const auto [rows, taps, out] = sizes(p);
      return {sgemm('T', 'N', out, taps, rows, g, columns, filled(dn::vector(out * taps)))};
    }
    const dnnl::memory gw = filled(primitive.diff_weights_desc());
    return {bound<dnnl::convolution_backward_weights>(primitive,
                                                      {{DNNL_ARG_SRC, x}, {DNNL_ARG_DIFF_DST, g}, {DNNL_ARG_DIFF_WEIGHTS, gw}}),
            primitive.diff_weights_desc()};
  }

  struct Sizes {
    std::int64_t rows, taps, out;
  };
  static Sizes sizes(const ConvProblem& p) {
    return {p.batch * kernel::volume(p.out), kernel::volume(p.kernel) * p.in_channels, p.out_channels};
  }

  std::vector<Action> actions_, backward_;
  std::map<std::string, std::vector<double>> seconds_;
  std::vector<double> totals_;
  dnnl::memory x_, gradients_[2];
  int turn_ = 0;
  bool first_ = true;
  std::int64_t parameters_ = 0;
};

UNetFloor::UNetFloor(UNet3d& net, const Shape& input) {
  CostLog log;
  net.rehearse({input});
  std::int64_t largest = input.elements();
  for (const auto& line : log.lines) largest = std::max(largest, line.outputs[0].elements());
  step_ = std::make_unique<Step>(input, largest);
  for (const auto& line : log.lines) {
    const auto &in = line.inputs, &out = line.outputs;
    const auto op = line.op;
    if (op == "conv" || op == "conv_bias_activation") step_->convolution(problem_of(in[0], in[1], out[0]), false);
    else if (op == "conv_data") step_->convolution(problem_of(out[0], in[1], in[0]), true);
    else if (op == "channel_affine") step_->norm(out[0]);
    else if (op == "max_pool") step_->pool(in[0], out[0]);
    else if (op == "concatenate") step_->join(in[0], in[1]);
    else
      require(op == "add" || op == "bias_activation" || out[0].rank() < 5,
              "[bench] the floor of the U-Net does not know {} of {} with {} elements", op, out[0], out[0].elements());
  }
  step_->finish();
}
UNetFloor::~UNetFloor() = default;

void UNetFloor::step(bool count) { step_->run(count); }
double UNetFloor::median() const { return step_->median(); }
std::map<std::string, double> UNetFloor::medians_by_kind() const { return step_->medians_by_kind(); }

}  // namespace mpigrad::bench
