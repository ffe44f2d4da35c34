#include "models/evaluate/sliding_window.h"

#include <algorithm>
#include <cmath>

#include "comm/together.h"
#include "framework/base/host_memory.h"
#include "framework/engine/tape.h"
#include "models/data/window.h"
#include "ops/elementwise/elementwise.h"
#include "ops/softmax/softmax.h"

namespace mpigrad::segmentation {
namespace {

using Place = std::array<std::int64_t, 3>;

// Weights of a window's cells along one axis.
std::vector<double> weights_along(std::int64_t window, bool gaussian) {
  std::vector<double> weights(static_cast<std::size_t>(window), 1);
  const double middle = static_cast<double>(window - 1) / 2, sigma = static_cast<double>(window) / 8;
  for (std::int64_t i = 0; gaussian && i < window; ++i) {
    const double r = (static_cast<double>(i) - middle) / sigma;
    weights[static_cast<std::size_t>(i)] = std::exp(-r * r / 2);
  }
  return weights;
}

}  // namespace

std::vector<std::int64_t> window_places(std::int64_t n, std::int64_t window, double overlap) {
  if (n <= window) return {data::centred(n, window)};
  const double step = std::max(1.0, static_cast<double>(window) * (1 - overlap));
  const auto count = static_cast<std::int64_t>(std::ceil(static_cast<double>(n - window) / step)) + 1;
  std::vector<std::int64_t> places;
  for (std::int64_t i = 0; i < count; ++i)
    places.push_back(std::llround(static_cast<double>(i) * static_cast<double>(n - window) / static_cast<double>(count - 1)));
  return places;
}

Tensor sliding_window(nn::Module& net, const data::Source& source, std::int64_t sample, const SlidingWindowOptions& o) {
  require(o.window.rank() == 3 && o.window.elements() > 0, "[sliding_window] windows are [D, H, W], at least 1 each: {}",
          o.window);
  require(o.overlap >= 0 && o.overlap < 1, "[sliding_window] windows overlap by a fraction in [0, 1), not {}", o.overlap);
  require(o.batch >= 1, "[sliding_window] a batch has at least one window, not {}", o.batch);
  if (o.grid) require(o.grid->extents[0] == 1, "[sliding_window] the grid's axis sample is 1, not {}", o.grid->extents[0]);
  const auto extents = source.extents_of(sample);
  std::array<std::vector<double>, 3> weights;
  std::vector<Place> places;
  for (std::size_t a = 0; a < 3; ++a) weights[a] = weights_along(o.window[static_cast<int>(a)], o.gaussian);
  for (const auto d : window_places(extents[0], o.window[0], o.overlap))
    for (const auto h : window_places(extents[1], o.window[1], o.overlap))
      for (const auto w : window_places(extents[2], o.window[2], o.overlap)) places.push_back({d, h, w});

  // The last batch is filled with windows already done, whose results are ignored.
  const auto batch = std::min<std::int64_t>(o.batch, static_cast<std::int64_t>(places.size()));
  const Shape global{batch, o.window[0], o.window[1], o.window[2], source.channels()};
  const auto layout = o.grid ? input_layout(o.grid, global) : nullptr;
  const Box block = layout ? layout->box() : Box{Shape{0, 0, 0, 0, 0}, global};
  const Shape cells{block.end[1] - block.begin[1], block.end[2] - block.begin[2], block.end[3] - block.begin[3]};
  const auto input_cells = cells.elements() * source.channels();
  const auto share = [&](const std::function<void()>& f) {
    if (o.grid) together(o.grid->world(), f);
    else f();
  };

  Untaped scope;
  nn::EvaluationMode mode(net);
  std::int64_t classes = 0;
  // `each` zeros for each cell of the sample.
  const auto zeros_of = [&](std::int64_t each, std::string_view what) {
    Tensor numbers;
    share([&] {
      const auto n = extents.elements() * each;
      require_host_memory(fmt::format("[sliding_window] {} of {} x {} x {} cells, {}", source.name_of_sample(sample), extents[0],
                                      extents[1], extents[2], what),
                          static_cast<double>(sizeof(float)) * static_cast<double>(n));
      numbers = Tensor(TensorType{Shape{extents[0], extents[1], extents[2], each}, DType::float32}, DeviceKind::cpu);
      std::fill_n(numbers.mutable_data<float>(), n, 0.0F);
    });
    return numbers;
  };
  Tensor sums, weight_sums = zeros_of(1, "with a weight for each");
  float *sum = nullptr, *const total = weight_sums.mutable_data<float>();
  for (std::size_t first = 0; first < places.size(); first += static_cast<std::size_t>(batch)) {
    Tensor x(TensorType{Shape{batch, cells[0], cells[1], cells[2], source.channels()}, o.dtype}, DeviceKind::cpu);
    share([&] {
      for (std::int64_t i = 0; i < batch; ++i) {
        const auto& place = places[std::min(first + static_cast<std::size_t>(i), places.size() - 1)];
        Box box{Shape{0, 0, 0}, Shape{0, 0, 0}};
        for (int a = 0; a < 3; ++a) {
          box.begin[a] = place[static_cast<std::size_t>(a)] + block.begin[a + 1];
          box.end[a] = place[static_cast<std::size_t>(a)] + block.end[a + 1];
        }
        data::read_window(source, sample, box, o.dtype, x.raw() + i * input_cells * size_of(o.dtype));
      }
    });
    auto input = constant(detail::copied(x, o.device));
    if (layout) input = input.with_layout(layout);
    const auto scores = cast(net.run_everywhere(input), DType::float32);
    require(scores.rank() == 5 && scores.shape().elements(0, 4) == batch * cells.elements(),
            "[sliding_window] the network does not return scores [N, D, H, W, K] for windows of {}: {}", o.window, scores);
    classes = scores.dim(4);
    if (!sums) sums = zeros_of(classes, fmt::format("with a number for each of {} classes", classes));
    sum = sums.mutable_data<float>();
    const auto p = detail::copied(softmax(scores), DeviceKind::cpu);
    const auto* values = reinterpret_cast<const float*>(p.raw());
    for (std::int64_t i = 0; i < batch && first + static_cast<std::size_t>(i) < places.size(); ++i) {
      const auto& place = places[first + static_cast<std::size_t>(i)];
      for (std::int64_t cell = 0; cell < cells.elements(); ++cell) {
        std::int64_t rest = cell, to = 0;
        const std::array<std::int64_t, 3> at{rest / (cells[1] * cells[2]) + block.begin[1],
                                             (rest / cells[2]) % cells[1] + block.begin[2], rest % cells[2] + block.begin[3]};
        double weight = 1;
        bool inside = true;
        for (std::size_t a = 0; a < 3; ++a) {
          const auto n = extents[static_cast<int>(a)], there = place[a] + at[a];
          weight *= weights[a][static_cast<std::size_t>(at[a])];
          inside = inside && there >= 0 && there < n;
          to = to * n + there;
        }
        if (!inside) continue;
        const auto w = static_cast<float>(weight);
        const auto* from = values + (i * cells.elements() + cell) * classes;
        total[to] += w;
        for (std::int64_t c = 0; c < classes; ++c) sum[to * classes + c] += w * from[c];
      }
    }
  }
  if (o.grid && o.grid->ranks() > 1) {
    auto& transport = o.grid->world().transport();
    transport.allreduce(sum, sum, sums.elements(), DType::float32, CombineOp::sum);
    transport.allreduce(total, total, weight_sums.elements(), DType::float32, CombineOp::sum);
  }
  for (std::int64_t i = 0; i < weight_sums.elements(); ++i)
    for (std::int64_t c = 0; c < classes; ++c) sum[i * classes + c] /= total[i];
  return constant(sums);
}

Tensor most_likely(const Tensor& probabilities) {
  require(probabilities.rank() == 4 && probabilities.dim(3) > 0, "[most_likely] probabilities are [D, H, W, K]: {}",
          probabilities);
  const auto& shape = probabilities.shape();
  Tensor result(TensorType{Shape{shape[0], shape[1], shape[2]}, DType::int32}, DeviceKind::cpu);
  auto* classes = result.mutable_data<std::int32_t>();
  const auto* row = probabilities.data<float>();
  for (std::int64_t i = 0; i < result.elements(); ++i, row += shape[3])
    classes[i] = static_cast<std::int32_t>(std::max_element(row, row + shape[3]) - row);
  return constant(result);
}

}  // namespace mpigrad::segmentation
