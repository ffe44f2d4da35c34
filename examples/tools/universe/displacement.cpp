#include "examples/tools/universe/displacement.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "framework/base/host_memory.h"

namespace mpigrad::universe {

namespace {

using Complex = std::complex<double>;

// factor * IFFT(i k / k^2 F), in units of the box: k = 2 pi (integers) there.
Displacement inverse_gradient(const SlabFft& fft, const ComplexField& F, double factor) {
  Displacement result;
  const std::int64_t nyquist = fft.n() % 2 == 0 ? fft.n() / 2 : fft.n();  // an odd n has none
  for (int axis = 0; axis < 3; ++axis) {
    ComplexField component(F.size());
    fft.for_each_mode([&](std::size_t offset, std::int64_t kx, std::int64_t ky, std::int64_t kz) {
      const std::int64_t square = kx * kx + ky * ky + kz * kz;
      if (square == 0 || kx == nyquist || ky == nyquist || kz == nyquist) return;
      const std::int64_t k = axis == 0 ? kx : axis == 1 ? ky : kz;
      const double weight = factor * static_cast<double>(k) / (2 * std::numbers::pi * static_cast<double>(square));
      component[offset] = Complex(-F[offset].imag(), F[offset].real()) * weight;
    });
    result[static_cast<std::size_t>(axis)] = fft.inverse(std::move(component));
  }
  return result;
}

// Moves rows of constant ky between the slabs of a grid of n cells per side and those of a finer one, and changes the extents
// of the other two axes, so that every frequency keeps its value. The coarse grid's Nyquist modes and, when coarsening, the
// fine grid's higher modes are dropped. `scale` multiplies.
ComplexField regrid(const SlabFft& from, const SlabFft& to, const ComplexField& F, double scale) {
  auto& transport = from.transport();
  const int ranks = transport.size();
  const std::int64_t limit = (std::min(from.n(), to.n()) - 1) / 2;  // highest frequency kept
  const auto index = [](const SlabFft& grid, std::int64_t frequency) { return frequency < 0 ? frequency + grid.n() : frequency; };
  const std::int64_t side = 2 * limit + 1, depth = limit + 1;  // kept modes of a row: kx, kz
  std::vector<std::int64_t> send_counts(static_cast<std::size_t>(ranks)), receive_counts(static_cast<std::size_t>(ranks));
  ComplexField send;
  send.reserve(static_cast<std::size_t>(from.y_range().size() * side * depth));
  // Rows are sent in ascending order of their index in the target, the order in which the receiver counts them.
  for (int r = 0; r < ranks; ++r) {
    const auto before = send.size();
    const auto theirs = balanced_block(to.n(), ranks, r);
    for (std::int64_t y = theirs.begin; y < theirs.end; ++y) {
      const std::int64_t ky = to.frequency(y);
      if (std::abs(ky) > limit) continue;
      const std::int64_t source = index(from, ky) - from.y_range().begin;
      if (source < 0 || source >= from.y_range().size()) continue;
      for (std::int64_t kx = -limit; kx <= limit; ++kx) {
        const auto* line = F.data() + (source * from.n() + index(from, kx)) * from.half();
        send.insert(send.end(), line, line + depth);
      }
    }
    send_counts[static_cast<std::size_t>(r)] = static_cast<std::int64_t>(2 * (send.size() - before));
  }
  std::vector<std::vector<std::int64_t>> rows(static_cast<std::size_t>(ranks));  // target rows by the rank that sends them
  std::int64_t received = 0;
  for (std::int64_t y = to.y_range().begin; y < to.y_range().end; ++y)
    if (std::abs(to.frequency(y)) <= limit) {
      const auto owner = static_cast<std::size_t>(balanced_owner(from.n(), ranks, index(from, to.frequency(y))));
      rows[owner].push_back(y - to.y_range().begin);
      receive_counts[owner] += 2 * side * depth;
      received += side * depth;
    }
  ComplexField receive(static_cast<std::size_t>(received));
  if (ranks == 1) receive.swap(send);
  else transport.alltoall(send.data(), send_counts, receive.data(), receive_counts, DType::float64);

  ComplexField result(to.complex_size());
  const auto* line = receive.data();
  for (const auto& group : rows)
    for (const auto row : group)
      for (std::int64_t kx = -limit; kx <= limit; ++kx, line += depth) {
        auto* target = result.data() + (row * to.n() + index(to, kx)) * to.half();
        for (std::int64_t z = 0; z < depth; ++z) target[z] = line[z] * scale;
      }
  return result;
}

}  // namespace

Displacement first_order(const SlabFft& fft, const ComplexField& delta) { return inverse_gradient(fft, delta, 1); }

ComplexField second_order_source(const SlabFft& fft, const ComplexField& delta) {
  const SlabFft fine(fft, (3 * fft.n() + 1) / 2);
  const double ratio = std::pow(static_cast<double>(fine.n()) / static_cast<double>(fft.n()), 3);  // of the transforms' sums
  auto padded = regrid(fft, fine, delta, ratio);
  if (fine.y_range().begin == 0 && fine.y_range().size() > 0) padded[0] = 0;  // the potential has no mean
  // sum_{i<j} (phi,ii phi,jj - phi,ij^2) = ((lap phi)^2 - sum_i phi,ii^2) / 2 - sum_{i<j} phi,ij^2: one second derivative in
  // memory at a time.
  RealField source = fine.inverse(padded);  // lap phi = delta
  for (auto& value : source) value *= value / 2;
  for (int i = 0; i < 3; ++i)
    for (int j = i; j < 3; ++j) {
      ComplexField derivative(padded.size());
      fine.for_each_mode([&](std::size_t offset, std::int64_t kx, std::int64_t ky, std::int64_t kz) {
        const std::int64_t square = kx * kx + ky * ky + kz * kz;
        if (square == 0) return;
        const std::array<std::int64_t, 3> k{kx, ky, kz};
        const std::int64_t product = k[static_cast<std::size_t>(i)] * k[static_cast<std::size_t>(j)];
        derivative[offset] = padded[offset] * (static_cast<double>(product) / static_cast<double>(square));
      });
      const RealField values = fine.inverse(std::move(derivative));
      const double weight = i == j ? 0.5 : 1;
      for (std::size_t cell = 0; cell < source.size(); ++cell) source[cell] -= weight * values[cell] * values[cell];
    }
  return regrid(fine, fft, fine.forward(source), 1 / ratio);
}

Displacement second_order(const SlabFft& fft, const ComplexField& delta) {
  // phi2(k) = -source / k^2, so -(3/7) grad phi2 = (3/7) i k / k^2 source
  return inverse_gradient(fft, second_order_source(fft, delta), 3.0 / 7.0);
}

void require_field_memory(std::string_view what, std::int64_t n, int ranks, int order) {
  // Measured at 192^3 on one rank, in numbers per cell.
  const double cells = static_cast<double>((n + ranks - 1) / ranks) * static_cast<double>(n) * static_cast<double>(n);
  require_host_memory(fmt::format("{} {}^3 cells on {} ranks", what, n, ranks), cells * sizeof(double) * (order == 2 ? 24 : 7));
}

}  // namespace mpigrad::universe
