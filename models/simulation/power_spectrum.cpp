#include "models/simulation/power_spectrum.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "comm/distributed/redistribute.h"
#include "comm/fft/fft.h"
#include "framework/base/joined.h"
#include "ops/complex/complex.h"
#include "ops/elementwise/elementwise.h"
#include "ops/views/views.h"

namespace mpigrad::fields {
namespace {

constexpr double pi = std::numbers::pi;

std::vector<double> default_edges(const Shape& shape, const SpectrumOptions& options) {
  double width = 0, largest = std::numeric_limits<double>::infinity();
  for (int d = 1; d <= 3; ++d) {
    if (shape[d] == 1) continue;
    const double h = options.spacing[static_cast<std::size_t>(d - 1)];
    width = std::max(width, 2 * pi / (static_cast<double>(shape[d]) * h)), largest = std::min(largest, pi / h);
  }
  std::vector<double> edges;
  for (double i = 0; width > 0 && i <= largest / width * (1 + 1e-12); ++i) edges.push_back((i + 0.5) * width);
  return edges;
}

// What is known of the modes number [begin, end) along one dimension of n points.
struct Modes {
  std::vector<double> square;   // k^2
  std::vector<double> window;   // the factor of W^2 or of its sum over aliases
  std::vector<double> aliases;  // the factor of the sum over aliases
  std::vector<double> copies;   // 2 where -k is not in the transform, else 1
};
Modes modes_of(std::int64_t n, double h, bool halved, const SpectrumOptions& options, std::int64_t begin, std::int64_t end) {
  Modes modes;
  for (std::int64_t i = begin; i < end; ++i) {
    const auto wave = static_cast<double>(std::min(i, n - i));
    const double phase = pi * wave / static_cast<double>(n), s = std::sin(phase) * std::sin(phase);  // k h / 2
    const double k = 2 * phase / h;
    modes.square.push_back(k * k);
    const double aliases[] = {1, 1, 1 - 2 * s / 3, 1 - s + 2 * s * s / 15, 1 - 4 * s / 3 + 2 * s * s / 5 - 4 * s * s * s / 315};
    modes.aliases.push_back(aliases[options.window]);
    const double own = wave == 0 ? 1 : std::pow(s / (phase * phase), options.window);
    modes.window.push_back(options.aliases ? modes.aliases.back() : own);
    modes.copies.push_back(halved && i != 0 && 2 * i != n ? 2 : 1);
  }
  return modes;
}

// The local part of a transform [N, d, h, w, C]: the factor of each mode's |F|^2 and its bin, and sums over the modes of each
// bin. Bin number 0 has the modes of no bin.
struct Bins {
  std::vector<double> factor;
  std::vector<std::int64_t> bin;
  std::vector<double> modes, k, noise;

  Bins(const std::array<Modes, 3>& along, const std::vector<double>& edges)
      : modes(edges.size()), k(edges.size()), noise(edges.size()) {
    const auto& [D, H, W] = along;
    for (std::size_t x = 0; x < D.square.size(); ++x)
      for (std::size_t y = 0; y < H.square.size(); ++y)
        for (std::size_t z = 0; z < W.square.size(); ++z) {
          const double square = D.square[x] + H.square[y] + W.square[z], length = std::sqrt(square);
          const auto above = static_cast<std::size_t>(std::upper_bound(edges.begin(), edges.end(), length) - edges.begin());
          const auto b = above == edges.size() || square == 0 ? 0 : above;
          const double copies = D.copies[x] * H.copies[y] * W.copies[z];
          const double weight = copies / (D.window[x] * H.window[y] * W.window[z]);
          factor.push_back(weight), bin.push_back(static_cast<std::int64_t>(b));
          modes[b] += copies, k[b] += copies * length;
          noise[b] += weight * D.aliases[x] * H.aliases[y] * W.aliases[z];
        }
  }
};

// The layout of sums [N, bins, C] over this rank's modes: partial along the grid axes that split the volume.
LayoutPtr layout_of_sums(const Layout& of_modes, std::int64_t bins, bool partial) {
  Layout layout{of_modes.grid, {of_modes.global[0], bins, of_modes.global[4]}, of_modes.axes};
  for (auto& axis : layout.axes) {
    if (axis.placement != Placement::split) continue;
    if (axis.dimension == 4) axis.dimension = 2;
    else if (axis.dimension > 0) axis = {partial ? Placement::partial : Placement::replicated, -1, {}};
  }
  return std::make_shared<Layout>(std::move(layout));
}

}  // namespace

PowerSpectrum power_spectrum(const Tensor& x, const SpectrumOptions& options) {
  require(x.rank() == 5, "[power_spectrum] takes [N, D, H, W, C]: {}", x);
  require(options.window >= 0 && options.window <= 4, "[power_spectrum] a window of order 1 to 4, or 0 for none: {}",
          options.window);
  for (const double h : options.spacing) require(h > 0 && std::isfinite(h), "[power_spectrum] the spacing is positive: {}", h);
  require(!(x.layout() && x.layout()->has(Placement::partial)), "[power_spectrum] of a partial sum; redistribute it first: {}",
          x);
  const Shape shape = global_shape(x);
  const auto edges = options.edges.empty() ? default_edges(shape, options) : options.edges;
  require(edges.size() >= 2 && edges[0] >= 0 &&
              std::adjacent_find(edges.begin(), edges.end(), [](double a, double b) { return !(a < b); }) == edges.end(),
          "[power_spectrum] two edges of bins or more, ascending from 0 on: {}", joined(edges, ", "));
  const auto bins = static_cast<std::int64_t>(edges.size()) - 1;

  const auto waves = rfft(x, {1, 2, 3});
  const auto box = waves.layout() ? waves.layout()->box() : Box{{0, 0, 0, 0, 0}, waves.shape()};
  std::array<Modes, 3> along;
  double volume = 1, points = 1;
  for (int d = 1; d <= 3; ++d) {
    const auto i = static_cast<std::size_t>(d - 1);
    along[i] = modes_of(shape[d], options.spacing[i], d == 3, options, box.begin[d], box.end[d]);
    points *= static_cast<double>(shape[d]), volume *= static_cast<double>(shape[d]) * options.spacing[i];
  }
  const Bins own(along, edges);

  // Sums over the ranks that split the volume.
  const auto sums = waves.layout() ? layout_of_sums(*waves.layout(), bins, true) : nullptr;
  std::vector<int> axes;
  for (int a = 0; sums && a < static_cast<int>(sums->axes.size()); ++a)
    if (sums->axes[static_cast<std::size_t>(a)].placement == Placement::partial) axes.push_back(a);
  const auto of_all = [&](const std::vector<double>& values) {
    const UseDevice use(DeviceKind::cpu);
    const auto mine = from_vector({bins}, std::vector<double>(values.begin() + 1, values.end()), DType::float64);
    return (axes.empty() ? mine : sums->grid->sum_over(axes, mine)).to_vector();
  };
  const auto modes = of_all(own.modes), k = of_all(own.k), noise = of_all(own.noise);
  std::vector<double> mean_k, share, offset;
  for (std::size_t b = 0; b < modes.size(); ++b) {
    require(modes[b] > 0, "[power_spectrum] bin {}, |k| from {} to {}, has no modes: {}", b, edges[b], edges[b + 1], x);
    mean_k.push_back(k[b] / modes[b]);
    share.push_back(volume / (points * points) / modes[b]);
    offset.push_back(-options.shot_noise * noise[b] / modes[b]);
  }

  const UseDevice use(x.device());
  const auto local = waves.without_layout();
  const auto constants = [](const Shape& of, const auto& values, DType dtype) {
    return constant(from_vector(of, values, dtype));
  };
  const Shape of_modes{local.dim(1), local.dim(2), local.dim(3)};
  const auto count = of_modes.elements(), n = local.dim(0), channels = local.dim(4);
  // float64, because scatter_add() adds many numbers one after the other
  const auto re = cast(real(local), DType::float64), im = cast(imag(local), DType::float64);
  const auto squares =
      (square(re) + square(im)) * constants({1, of_modes[0], of_modes[1], of_modes[2], 1}, own.factor, DType::float64);
  const auto rows = reshape(permute(reshape(squares, Shape{n, count, channels}), {1, 0, 2}), Shape{count, n * channels});
  const auto indices = constants({count}, std::vector<double>(own.bin.begin(), own.bin.end()), DType::int64);
  auto power = permute(reshape(slice(scatter_add(rows, indices, bins + 1), 0, 1, bins + 1), Shape{bins, n, channels}), {1, 0, 2});
  if (sums) power = redistribute(power.with_layout(sums), layout_of_sums(*waves.layout(), bins, false)).without_layout();
  power = power * constants({1, bins, 1}, share, DType::float64);
  if (options.shot_noise != 0) power = power + constants({1, bins, 1}, offset, DType::float64);
  power = cast(power, x.dtype());
  if (sums) power = power.with_layout(layout_of_sums(*waves.layout(), bins, false));
  return {constants({bins}, mean_k, DType::float64), power, constants({bins}, modes, DType::float64)};
}

}  // namespace mpigrad::fields
